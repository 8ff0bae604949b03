//! Subgroup operations, only where all eight invocations of a subgroup are active. `lane` is the index of an invocation in its subgroup.

use super::program::terms_of;
use super::scope::{Access, Generator};
use super::types::{Scalar, Type};
use Scalar::{Bool, F32, I32, U32};

impl Generator {
    /// Generates a subgroup operation, sometimes in a branch that is uniform in the subgroup.
    pub(super) fn subgroup(&mut self) {
        if self.chance(15) {
            let condition = self.dynamic(&Type::Scalar(Bool), 2);
            let vote = self.choose(&["subgroupAny", "subgroupAll"]);
            return self.block(&format!("if {vote}({condition})"), &[], |this| {
                this.subgroup_operation();
                this.statements(2, 1);
            });
        }
        self.subgroup_operation();
    }

    fn subgroup_operation(&mut self) {
        let name = self.name("v");
        let (ty, text) = match self.rng.below(12) {
            0..5 => self.reduction_or_scan(),
            5 => {
                let condition = self.dynamic(&Type::Scalar(Bool), 2);
                (Type::Scalar(Bool), format!("subgroup{}({condition})", self.choose(&["All", "Any"])))
            }
            6 => (Type::Vector(U32, 4), format!("subgroupBallot({})", self.dynamic(&Type::Scalar(Bool), 2))),
            _ => self.shuffle(),
        };
        self.line(format!("let {name} = {text};"));
        let mut terms = Vec::new();
        terms_of(&name, &ty, &mut terms);
        // Makes the result observable even if nothing uses it, together with the invocation that got it.
        self.line(format!("atomicAdd(&sum_u[0], ({}) * (me + 1u));", terms.join(" * 7u + ")));
        self.declare(&name, ty, Access::Read);
    }

    /// Returns a value that mostly varies within a subgroup.
    fn divergent_value(&mut self, ty: &Type) -> String {
        let value = self.stored(ty, 2);
        if self.chance(30) {
            return value;
        }
        let other = self.stored(ty, 1);
        format!("select({value}, {other}, (lane & {}u) == 0u)", 1 << self.rng.below(3))
    }

    /// Returns a reduction or scan over the subgroup.
    fn reduction_or_scan(&mut self) -> (Type, String) {
        const SUMS: [&str; 6] = ["Add", "Mul", "ExclusiveAdd", "InclusiveAdd", "ExclusiveMul", "InclusiveMul"];
        let width = self.choose(&[1, 1, 1, 2, 3, 4]);
        if self.chance(25) {
            let operation = self.choose(&["Min", "Max", "Add", "InclusiveAdd", "ExclusiveAdd"]);
            return (Type::wide(F32, width), format!("subgroup{operation}({})", self.small(F32, width, 2)));
        }
        let ty = Type::wide(self.choose(&[I32, U32]), width);
        let operation =
            if self.chance(60) { self.choose(&SUMS) } else { self.choose(&["Min", "Max", "And", "Or", "Xor"]) };
        let value = self.divergent_value(&ty);
        (ty, format!("subgroup{operation}({value})"))
    }

    /// Returns a value of another invocation.
    fn shuffle(&mut self) -> (Type, String) {
        if self.chance(10) {
            // Integers only: on some floats LLVM aborts the process in lavapipe ("cannot select").
            let ty = Type::wide(self.choose(&[I32, U32]), 1 + self.rng.below(4));
            let value = self.divergent_value(&ty);
            return (ty, format!("subgroupBroadcastFirst({value})"));
        }
        let ty = self.plain_type();
        let (value, by) = (self.divergent_value(&ty), self.rng.below(8));
        let text = match self.rng.below(9) {
            0 | 1 => format!("subgroupBroadcast({value}, {by}u)"),
            2 => format!("subgroupShuffleXor({value}, {by}u)"),
            // WGSL does not define reads beyond the ends of the subgroup.
            3 => format!("select({ty}(), subgroupShuffleUp({value}, {by}u), lane >= {by}u)"),
            4 => format!("select({ty}(), subgroupShuffleDown({value}, {by}u), lane + {by}u < 8u)"),
            5 => format!("quadBroadcast({value}, {}u)", by % 4),
            6 => format!("{}({value})", self.choose(&["quadSwapX", "quadSwapY", "quadSwapDiagonal"])),
            _ => format!("subgroupShuffle({value}, {} & 7u)", self.dynamic(&Type::Scalar(U32), 1)),
        };
        (ty, text)
    }
}
