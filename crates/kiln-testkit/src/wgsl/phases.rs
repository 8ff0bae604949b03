//! What invocations do together: exchange through shared memory and atomics. All of it in uniform control
//! flow, and without races: an invocation writes its own place, all wait, each reads what it likes, all wait.

use super::scope::{Access, Generator, Variable};
use super::types::{Scalar, Type};
use Scalar::{Bool, I32, U32};

/// Of a workgroup, in exchanges; every device has more, for the rest.
const MAX_SHARED_BYTES: usize = 12 << 10;

impl Generator {
    /// An exchange between the invocations of a workgroup. `size` is how many there are.
    pub(super) fn phase(&mut self, size: usize, has_subgroups: bool) {
        match self.rng.below(100) {
            0..20 if self.place.loops < 2 => self.uniform_loop(size, has_subgroups),
            20..30 => self.uniform_branch(size, has_subgroups),
            30..38 if !self.place.in_phase_function => self.phase_function(size, has_subgroups),
            _ if has_subgroups && self.chance(70) => self.subgroup(),
            _ => match self.rng.below(8) {
                0..3 => self.exchange(size),
                3 => self.strided(size),
                4 => self.through_storage(size),
                5 => self.shared_atomics(),
                6 => self.own_atomic(size),
                _ => self.uniform_load(),
            },
        }
    }

    fn uniform_loop(&mut self, size: usize, has_subgroups: bool) {
        let name = self.name("k");
        let limit = self.choose(&["2u", "3u", "(params.m1 & 3u)", "(in_u[group.x] % 4u)"]);
        self.block(&format!("for (var {name} = 0u; {name} < {limit}; {name}++)"), &[], |this| {
            this.place.loops += 1;
            this.place.rounds *= 3;
            this.declare(&name, Type::Scalar(U32), Access::Read);
            this.phase(size, has_subgroups);
            this.statements(1, 1);
        });
    }

    /// A branch that all invocations of a workgroup take, or none.
    fn uniform_branch(&mut self, size: usize, has_subgroups: bool) {
        const CONDITIONS: [&str; 4] =
            ["(params.m0 > 0i)", "((params.m1 & 1u) == 0u)", "(in_i[3] < in_i[group.x])", "((group.x + group.y) < 1u)"];
        if self.chance(30) {
            return self.block("switch (params.m1 % 3u)", &[], |this| {
                for head in ["case 1u:", "default:"] {
                    this.block(head, &[], |this| {
                        this.phase(size, has_subgroups);
                        this.statements(1, 1);
                    });
                }
            });
        }
        let condition = self.choose(&CONDITIONS);
        self.block(&format!("if {condition}"), &[], |this| this.phase(size, has_subgroups));
        if self.chance(40) {
            self.lines.pop();
            self.block("} else", &[], |this| {
                this.statements(1, 1);
                this.phase(size, has_subgroups);
            });
        }
    }

    /// A function in which invocations wait for each other.
    fn phase_function(&mut self, size: usize, has_subgroups: bool) {
        let (name, ty, result) = (self.name("together"), self.plain_type(), self.plain_type());
        let lane = has_subgroups.then_some(("lane", Type::Scalar(U32)));
        let known = [("lid", Type::Scalar(U32)), ("me", Type::Scalar(U32)), ("group", Type::Vector(U32, 3))];
        let known: Vec<(&str, Type)> = known.into_iter().chain(lane).collect();
        let texts: Vec<String> = known.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
        let given = [("p0", ty.clone())];
        let parameters: Vec<Variable> = known.iter().chain(&given).map(|(name, ty)| Variable::read(name, ty)).collect();
        let (outer, lines) = (self.variables.split_off(self.module_variables), std::mem::take(&mut self.lines));
        let place = self.place.clone();
        self.place.in_phase_function = true;
        let head = format!("fn {name}({}, p0: {ty}) -> {result}", texts.join(", "));
        self.block(&head, &parameters, |this| {
            this.statements(1, 1);
            this.phase(size, has_subgroups);
            let value = this.stored(&result, 2);
            this.line(format!("return {value}; // keep"));
        });
        self.items.extend(std::mem::replace(&mut self.lines, lines));
        self.variables.truncate(self.module_variables);
        self.variables.extend(outer);
        self.place = place;
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        for _ in 0..self.rng.below(2) + 1 {
            let (kept, value) = (self.name("v"), self.stored(&ty, 2));
            self.line(format!("let {kept} = {name}({}, {value});", names.join(", ")));
            self.declare(&kept, result.clone(), Access::Read);
        }
    }

    /// Declares memory of the workgroup.
    fn shared(&mut self, ty: &str) -> String {
        let name = self.name("w");
        self.items.push(format!("var<workgroup> {name}: {ty};"));
        name
    }

    /// A type of which there is room for so many.
    fn affordable_type(&mut self, count: usize) -> Type {
        let ty = self.any_type();
        let ty = if self.shared_bytes + ty.bytes() * count > MAX_SHARED_BYTES { Type::Scalar(U32) } else { ty };
        self.shared_bytes += ty.bytes() * count;
        ty
    }

    /// A length of an array: as a number, or as one that the caller may set.
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

    fn exchange(&mut self, size: usize) {
        let (ty, len) = (self.affordable_type(size), self.array_length(size));
        let name = self.shared(&format!("array<{ty}, {len}>"));
        let value = self.stored(&ty, 2);
        self.block("", &[], |this| {
            this.line(format!("{name}[lid] = {value};"));
            if this.chance(40) {
                let own = Variable { access: Access::Write, ..Variable::read(&format!("{name}[lid]"), &ty) };
                this.block("", &[own], |this| this.statements(2, 1));
            }
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

    /// More elements than there are invocations: each fills every so many.
    fn strided(&mut self, size: usize) {
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
                    this.place.loops += 1;
                    this.place.rounds *= 3;
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

    /// What the first invocation says, to all.
    fn uniform_load(&mut self) {
        let ty = if self.chance(50) { self.plain_type() } else { self.affordable_type(1) };
        let (name, value) = (self.shared(&ty.to_string()), self.stored(&ty, 2));
        self.block("", &[], |this| {
            this.block("if (lid == 0u)", &[], |this| this.line(format!("{name} = {value};")));
            let kept = this.name("v");
            this.line(format!("let {kept} = workgroupUniformLoad(&{name});"));
            this.declare(&kept, ty, Access::Read);
            this.statements(2, 1);
        });
    }
}
