//! Exchanges between invocations through workgroup memory, buffers and atomics. All are in uniform control flow and free of races: an
//! invocation writes its own element, all wait, each reads any element, all wait. `lid` is the index of an invocation in its workgroup,
//! `me` in the grid. Shrinking does not remove lines marked `// keep`.

use super::scope::{Access, Generator, MAX_COST, Variable};
use super::types::{Scalar, Type};
use Scalar::{Bool, I32, U32};

/// Bytes of workgroup memory after which exchanges use only `u32`. WebGPU guarantees 16 KiB; the difference is for these, and for
/// atomics, which are not counted.
const MAX_SHARED_BYTES: usize = 12 << 10;

impl Generator {
    /// Generates a step in uniform control flow that may contain barriers: a loop or branch around other steps, a call of a function with
    /// barriers, a subgroup operation, or an exchange.
    pub(super) fn exchange_step(&mut self) {
        let has_room = self.cost < MAX_COST / 2;
        match self.rng.below(100) {
            0..15 if has_room && self.context.loops < 2 => self.uniform_loop(None),
            15..27 if has_room => self.uniform_branch(None),
            27..60 => self.barrier_call(),
            _ if self.has_subgroups && self.chance(60) => self.subgroup(),
            _ => match self.rng.below(9) {
                0..3 => self.exchange(),
                3 => self.strided(),
                4 => self.through_storage(),
                5 => self.shared_atomics(),
                6 => self.own_atomic(),
                _ => self.uniform_load(),
            },
        }
    }

    /// Declares a variable in workgroup memory.
    fn shared(&mut self, ty: &str) -> String {
        let name = self.name("w");
        self.items.push(format!("var<workgroup> {name}: {ty};"));
        name
    }

    /// Returns a random type for `count` elements in workgroup memory; `u32` if others no longer fit.
    fn affordable_type(&mut self, count: usize) -> Type {
        let ty = self.any_type();
        let ty = if self.shared_bytes + ty.bytes() * count > MAX_SHARED_BYTES { Type::Scalar(U32) } else { ty };
        self.shared_bytes += ty.bytes() * count;
        ty
    }

    /// Returns an array length, as a literal or as an expression of an `override` constant.
    fn array_length(&mut self, len: usize) -> String {
        if !self.chance(35) {
            return len.to_string();
        }
        let name = self.name("len");
        match self.rng.below(3) {
            0 => self.items.push(format!("override {name}: u32 = {len}u;")),
            1 => {
                self.items.push(format!("override {name}: u32 = 1u;"));
                self.header.push(format!("//: constant {name} {len}"));
            }
            _ => {
                self.items.push(format!("override {name}: u32;"));
                self.header.push(format!("//: constant {name} {}", 2 * len + 1));
                return format!("{name} / 2u");
            }
        }
        name
    }

    /// Generates an exchange through an array in workgroup memory.
    pub(super) fn exchange(&mut self) {
        self.block("", &[], |this| {
            let outer = this.variables.len();
            let pointer = this.write_own_and_read();
            this.statements(2, 2);
            if this.chance(15) {
                this.uniform_exit(true);
            }
            this.line("workgroupBarrier(); // keep");
            // From here on other invocations may write again, so the array goes out of scope; the own element stays accessible.
            this.variables.truncate(outer);
            if let Some((own, ty)) = pointer.filter(|_| this.chance(60)) {
                let (kept, value) = (this.name("v"), this.stored(&ty, 1));
                this.line(format!("*{own} = {value};"));
                this.line(format!("let {kept} = *{own};"));
                this.declare(&kept, ty, Access::Read);
                this.assignment();
            }
        });
    }

    /// Generates the first half of an exchange. After it, each invocation may read all elements, and none writes before the next barrier.
    /// Returns the name and pointee type of the pointer to the own element, if it declares one.
    pub(super) fn write_own_and_read(&mut self) -> Option<(String, Type)> {
        let size = self.size;
        let (ty, len) = (self.affordable_type(size), self.array_length(size));
        let name = self.shared(&format!("array<{ty}, {len}>"));
        let (value, offset) = (self.stored(&ty, 2), self.rng.below(size));
        let pointers = self.chance(35).then(|| (self.name("p"), self.name("p")));
        let (own, other) = match &pointers {
            Some((own, other)) => {
                let index = match self.rng.below(4) {
                    // May be out of bounds, which is clamped to the last element.
                    0 => format!("lid + {offset}u"),
                    1 => format!("min({}, {}u)", self.dynamic(&Type::Scalar(U32), 1), size - 1),
                    _ => format!("(lid + {offset}u) % {size}u"),
                };
                self.line(format!("let {own} = &{name}[lid];"));
                self.line(format!("let {other} = &{name}[{index}];"));
                (format!("(*{own})"), format!("*{other}"))
            }
            None => (format!("{name}[lid]"), format!("{name}[(lid + {offset}u) % {size}u]")),
        };
        self.line(format!("{own} = {value};"));
        if self.chance(40) {
            let own = Variable { access: Access::Write, ..Variable::read(&own, &ty) };
            self.block("", &[own], |this| this.statements(2, 1));
        }
        self.line("workgroupBarrier(); // keep");
        self.declare(&name, Type::array(ty.clone(), size), Access::Read);
        let kept = self.name("v");
        self.line(format!("let {kept} = {other};"));
        self.declare(&kept, ty.clone(), Access::Read);
        pointers.map(|(own, _)| (own, ty))
    }

    /// Generates a strided fill of an array with more elements than invocations.
    fn strided(&mut self) {
        let size = self.size;
        let len = size + 1 + self.rng.below(2 * size);
        let (ty, limit) = (self.affordable_type(len), self.array_length(len));
        let name = self.shared(&format!("array<{ty}, {limit}>"));
        let limit = if limit.contains('/') { len.to_string() } else { limit };
        let counter = self.name("k");
        let known = [Variable::read(&counter, &Type::Scalar(U32))];
        self.block("", &[], |this| {
            this.block(
                &format!("for (var {counter} = lid; {counter} < {limit}; {counter} += {size}u)"),
                &known,
                |this| {
                    this.context.loops += 1;
                    this.context.rounds *= 3;
                    let value = this.stored(&ty, 2);
                    this.line(format!("{name}[{counter}] = {value};"));
                },
            );
            this.line("workgroupBarrier(); // keep");
            this.declare(&name, Type::array(ty.clone(), len), Access::Read);
            this.statements(3, 2);
            this.line("workgroupBarrier(); // keep");
        });
    }

    /// Generates an exchange through a buffer, in which each workgroup has its own part.
    fn through_storage(&mut self) {
        let size = self.size;
        let value = self.dynamic(&Type::Scalar(U32), 2);
        self.block("", &[], |this| {
            let (kept, index) = (this.name("v"), this.dynamic(&Type::Scalar(U32), 1));
            // `me - lid` is the first element of the workgroup's part.
            let element = format!("scratch[(me - lid) + ({index} % {size}u)]");
            if this.chance(50) {
                let (own, other) = (this.name("p"), this.name("p"));
                this.line(format!("let {own} = &scratch[me];"));
                this.line(format!("let {other} = &{element};"));
                this.line(format!("*{own} = {value};"));
                this.line("storageBarrier(); // keep");
                this.line(format!("let {kept} = *{other};"));
            } else {
                this.line(format!("scratch[me] = {value};"));
                this.line("storageBarrier(); // keep");
                this.line(format!("let {kept} = {element};"));
            }
            this.declare(&kept, Type::Scalar(U32), Access::Read);
            this.statements(2, 2);
            this.line("storageBarrier(); // keep");
        });
    }

    /// Generates atomic accumulations by all invocations. Each element has one operation, because different operations do not commute and
    /// the result would depend on the order of the invocations. The old values that they return depend on it and are not used.
    fn shared_atomics(&mut self) {
        const OPERATIONS: [&str; 5] = ["atomicAdd", "atomicMax", "atomicOr", "atomicXor", "atomicSub"];
        let scalar = self.choose(&[I32, U32]);
        let name = self.shared(&format!("array<atomic<{scalar}>, {}>", OPERATIONS.len()));
        let indices = [self.rng.below(OPERATIONS.len()), self.rng.below(OPERATIONS.len())];
        let values = indices.map(|_| self.dynamic(&Type::Scalar(scalar), 2));
        self.block("", &[], |this| {
            for (index, value) in indices.into_iter().zip(values) {
                this.line(format!("{}(&{name}[{index}], {value});", OPERATIONS[index]));
            }
            this.line("workgroupBarrier(); // keep");
            let kept = this.name("v");
            this.line(format!("let {kept} = atomicLoad(&{name}[{}]);", indices[0]));
            this.declare(&kept, Type::Scalar(scalar), Access::Read);
            this.statements(2, 1);
            this.line("workgroupBarrier(); // keep");
        });
    }

    /// Generates operations on an atomic that only one invocation accesses, so that their results are deterministic too.
    fn own_atomic(&mut self) {
        let size = self.size;
        let scalar = self.choose(&[I32, U32]);
        let ty = Type::Scalar(scalar);
        let place = if self.chance(70) {
            format!("{}[lid]", self.shared(&format!("array<atomic<{scalar}>, {size}>")))
        } else {
            format!("own_{scalar}[me]")
        };
        let mut value = || self.dynamic(&ty, 1);
        let (one, two, three) = (value(), value(), value());
        let operation = self.choose(&["Add", "Sub", "Min", "Max", "And", "Or", "Xor", "Exchange"]);
        self.block("", &[], |this| {
            let (old, exchanged) = (this.name("v"), this.name("v"));
            this.line(format!("atomicStore(&{place}, {one});"));
            this.line(format!("let {old} = atomic{operation}(&{place}, {two});"));
            this.declare(&old, ty.clone(), Access::Read);
            let expected = if this.chance(50) { format!("atomicLoad(&{place})") } else { three };
            this.line(format!("let {exchanged} = atomicCompareExchangeWeak(&{place}, {expected}, {old} + 1);"));
            this.declare(&format!("{exchanged}.old_value"), ty, Access::Read);
            this.declare(&format!("{exchanged}.exchanged"), Type::Scalar(Bool), Access::Read);
            this.statements(2, 1);
        });
    }

    /// Generates a broadcast from the first invocation to all. The result is uniform, but is only used as such if it has a
    /// [uniform type](Self::uniform_type).
    pub(super) fn uniform_load(&mut self) {
        let has_uniform_type = self.chance(60);
        let ty = if has_uniform_type { self.uniform_type() } else { self.affordable_type(1) };
        let (name, value) = (self.shared(&ty.to_string()), self.stored(&ty, 2));
        self.block("", &[], |this| {
            let (first, kept) = (this.name("v"), this.name("v"));
            this.line(format!("let {first} = {value};"));
            // On one line, so that shrinking cannot remove the condition alone: then all invocations would write, which is a race.
            this.line(format!("if (lid == 0u) {{ {name} = {first}; }} // keep"));
            this.line(format!("let {kept} = workgroupUniformLoad(&{name});"));
            if !has_uniform_type {
                this.declare(&kept, ty, Access::Read);
                return this.statements(2, 1);
            }
            this.declare_uniform(&kept, &ty);
            this.statements(1, 1);
            this.advance();
            if this.chance(40) {
                this.uniform_exit(false);
            }
        });
    }
}
