//! What invocations do together: exchange through shared memory, atomics, subgroups. All of it in uniform control
//! flow, and without races: an invocation writes its own place, all wait, each reads what it likes, all wait.

use super::scope::{Access, Generator};
use super::types::{Scalar, Type};
use Scalar::{Bool, F32, I32, U32};

/// Of a workgroup, in exchanges; every device has more, for the rest.
const MAX_SHARED_BYTES: usize = 12 << 10;

impl Generator {
    /// An exchange between the invocations of a workgroup. `size` is how many there are.
    pub(super) fn phase(&mut self, size: usize, has_subgroups: bool) {
        if self.chance(25) {
            return self.uniform_loop(size, has_subgroups);
        }
        match self.rng.below(7) {
            _ if has_subgroups && self.chance(70) => self.subgroup(),
            0..3 => self.exchange(size),
            3 => self.through_storage(size),
            4 => self.shared_atomics(),
            5 => self.own_atomic(size),
            _ => self.uniform_load(),
        }
    }

    fn uniform_loop(&mut self, size: usize, has_subgroups: bool) {
        let name = self.name("k");
        let limit = self.choose(&["2u", "3u", "(params.m1 & 3u)"]);
        self.block(&format!("for (var {name} = 0u; {name} < {limit}; {name}++)"), &[], |this| {
            this.place.loops += 1;
            this.place.rounds *= 3;
            this.declare(&name, Type::Scalar(U32), Access::Read);
            this.phase(size, has_subgroups);
            this.statements(1, 1);
        });
    }

    /// Declares memory of the workgroup.
    fn shared(&mut self, ty: &str) -> String {
        let name = self.name("w");
        self.items.push(format!("var<workgroup> {name}: {ty};"));
        name
    }

    fn exchange(&mut self, size: usize) {
        let mut ty = self.any_type();
        if self.shared_bytes + ty.bytes() * size > MAX_SHARED_BYTES {
            ty = Type::Scalar(U32);
        }
        self.shared_bytes += ty.bytes() * size;
        let mut len = format!("{size}");
        if self.chance(25) {
            len = self.name("len");
            self.items.push(format!("override {len}: u32 = {size}u;"));
        }
        let name = self.shared(&format!("array<{ty}, {len}>"));
        let value = self.stored(&ty, 2);
        self.block("", &[], |this| {
            this.line(format!("{name}[lid] = {value};"));
            this.line("workgroupBarrier(); // keep");
            this.declare(&name, Type::array(ty.clone(), size), Access::Read);
            let kept = this.name("v");
            let offset = this.rng.below(size);
            this.line(format!("let {kept} = {name}[(lid + {offset}u) % {size}u];"));
            this.declare(&kept, ty, Access::Read);
            this.statements(2, 2);
            this.line("workgroupBarrier(); // keep");
        });
    }

    /// As through memory of the workgroup, but in a buffer, in which each workgroup has a part of its own.
    fn through_storage(&mut self, size: usize) {
        let value = self.dynamic(&Type::Scalar(U32), 2);
        self.block("", &[], |this| {
            this.line(format!("scratch[me] = {value};"));
            this.line("storageBarrier(); // keep");
            let (kept, index) = (this.name("v"), this.dynamic(&Type::Scalar(U32), 1));
            this.line(format!("let {kept} = scratch[(me - lid) + ({index} % {size}u)];"));
            this.declare(&kept, Type::Scalar(U32), Access::Read);
            this.statements(2, 2);
            this.line("storageBarrier(); // keep");
        });
    }

    /// Places in which all invocations add up what they have, each by an operation of its own.
    fn shared_atomics(&mut self) {
        const OPERATIONS: [&str; 5] = ["atomicAdd", "atomicMax", "atomicOr", "atomicXor", "atomicSub"];
        let scalar = self.choose(&[I32, U32]);
        let name = self.shared(&format!("array<atomic<{scalar}>, {}>", OPERATIONS.len()));
        let places = [self.rng.below(OPERATIONS.len()), self.rng.below(OPERATIONS.len())];
        let values = places.map(|_| self.dynamic(&Type::Scalar(scalar), 2));
        self.block("", &[], |this| {
            for (place, value) in places.into_iter().zip(values) {
                this.line(format!("{}(&{name}[{place}], {value});", OPERATIONS[place]));
            }
            this.line("workgroupBarrier(); // keep");
            let kept = this.name("v");
            this.line(format!("let {kept} = atomicLoad(&{name}[{}]);", places[0]));
            this.declare(&kept, Type::Scalar(scalar), Access::Read);
            this.statements(2, 1);
            this.line("workgroupBarrier(); // keep");
        });
    }

    /// An atomic that only one invocation touches, so that what operations return is determined too.
    fn own_atomic(&mut self, size: usize) {
        let name = self.shared(&format!("array<atomic<u32>, {size}>"));
        let mut value = || self.dynamic(&Type::Scalar(U32), 1);
        let (one, two, three) = (value(), value(), value());
        let operation = self.choose(&["Add", "Sub", "Min", "Max", "And", "Or", "Xor", "Exchange"]);
        self.block("", &[], |this| {
            let (old, exchanged) = (this.name("v"), this.name("v"));
            this.line(format!("atomicStore(&{name}[lid], {one});"));
            this.line(format!("let {old} = atomic{operation}(&{name}[lid], {two});"));
            this.declare(&old, Type::Scalar(U32), Access::Read);
            let expected = if this.chance(50) { format!("atomicLoad(&{name}[lid])") } else { three };
            this.line(format!("let {exchanged} = atomicCompareExchangeWeak(&{name}[lid], {expected}, {old} + 1u);"));
            this.declare(&format!("{exchanged}.old_value"), Type::Scalar(U32), Access::Read);
            this.declare(&format!("{exchanged}.exchanged"), Type::Scalar(Bool), Access::Read);
            this.statements(2, 1);
        });
    }

    /// What the first invocation says, to all.
    fn uniform_load(&mut self) {
        let ty = self.plain_type();
        let (name, value) = (self.shared(&ty.to_string()), self.stored(&ty, 2));
        self.block("", &[], |this| {
            this.block("if (lid == 0u)", &[], |this| this.line(format!("{name} = {value};")));
            let kept = this.name("v");
            this.line(format!("let {kept} = workgroupUniformLoad(&{name});"));
            this.declare(&kept, ty, Access::Read);
            this.statements(2, 1);
        });
    }

    /// An operation of a subgroup. `lane` is the place in it.
    fn subgroup(&mut self) {
        let name = self.name("v");
        let scalar = self.choose(&[I32, U32]);
        let ty = if self.chance(70) { Type::Scalar(scalar) } else { Type::Vector(scalar, 2 + self.rng.below(3)) };
        let value = self.dynamic(&ty, 2);
        let (ty, text) = match self.rng.below(12) {
            0..4 => {
                const REDUCTIONS: [&str; 6] =
                    ["Add", "Mul", "ExclusiveAdd", "InclusiveAdd", "ExclusiveMul", "InclusiveMul"];
                (ty, format!("subgroup{}({value})", self.choose(&REDUCTIONS)))
            }
            4 | 5 => (ty, format!("subgroup{}({value})", self.choose(&["Min", "Max", "And", "Or", "Xor"]))),
            6 => {
                let condition = self.dynamic(&Type::Scalar(Bool), 2);
                (Type::Scalar(Bool), format!("subgroup{}({condition})", self.choose(&["All", "Any"])))
            }
            7 => (Type::Vector(U32, 4), format!("subgroupBallot({})", self.dynamic(&Type::Scalar(Bool), 2))),
            8 => (ty, format!("subgroupBroadcast({value}, {}u)", self.rng.below(8))),
            9 => (ty, format!("subgroupBroadcastFirst({value})")),
            10 => (ty, format!("subgroupShuffleXor({value}, {}u)", self.rng.below(8))),
            _ => {
                let float = self.small(F32, 1, 2);
                let index = self.dynamic(&Type::Scalar(U32), 1);
                match self.rng.below(3) {
                    0 => (Type::Scalar(F32), format!("subgroup{}({float})", self.choose(&["Min", "Max", "Add"]))),
                    1 => (
                        Type::Scalar(F32),
                        format!("{}({float})", self.choose(&["quadSwapX", "quadSwapY", "quadSwapDiagonal"])),
                    ),
                    _ => (ty, format!("subgroupShuffle({value}, {index} & 7u)")),
                }
            }
        };
        self.line(format!("let {name} = {text};"));
        self.declare(&name, ty, Access::Read);
    }
}
