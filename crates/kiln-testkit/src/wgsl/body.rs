//! Statements.

use super::program::INPUT_LEN;
use super::scope::{Access, Context, Generator, MAX_COST, Space, Variable};
use super::types::{Scalar, Type};
use Scalar::{Bool, F32, I32, U32};

impl Generator {
    /// Generates up to `count` statements, within the cost limit.
    pub(super) fn statements(&mut self, count: usize, depth: usize) {
        for _ in 0..count {
            if self.cost > MAX_COST {
                return;
            }
            self.statement(depth);
        }
    }

    fn statement(&mut self, depth: usize) {
        match self.rng.below(100) {
            0..11 => self.local(),
            11 => self.new_place(),
            12 => self.set_place(),
            13 => self.use_place(),
            14..28 => self.assignment(),
            28..36 => self.compound(),
            36..43 => self.approximate_assignment(),
            43..50 => self.call_statement(),
            50..54 => self.pointer(),
            54..58 => self.atomic(),
            58..62 => self.jump(),
            62..67 if self.context.loops < 2 => self.counted_loop(depth.saturating_sub(1)),
            67..71 => self.guarded(depth.saturating_sub(1)),
            71..82 if depth > 0 => self.branch(depth - 1),
            82..88 if depth > 0 => self.switch(depth - 1),
            88..99 if depth > 0 && self.context.loops < 2 => self.repeat(depth - 1),
            99 if depth > 0 => self.block("", &[], |this| this.statements(2, depth - 1)),
            _ => self.assignment(),
        }
    }

    fn local(&mut self) {
        if self.chance(8) {
            let (name, ty) = (self.name("c"), self.any_type());
            let value = self.literal(&ty);
            self.line(format!("const {name} = {value};"));
            return self.declare(&name, ty, Access::Constant);
        }
        if self.chance(6) {
            return self.split();
        }
        let ty = self.any_type();
        let (name, value) = (self.name("v"), self.stored(&ty, 2));
        if self.chance(35) {
            self.line(format!("let {name} = {value};"));
            self.declare(&name, ty, Access::Read);
            return;
        }
        match self.rng.below(4) {
            0 => self.line(format!("var {name}: {ty};")),
            1 => self.line(format!("var {name} = {value};")),
            _ => self.line(format!("var {name}: {ty} = {value};")),
        }
        self.declare(&name, ty, Access::Given(Space::Function));
    }

    /// Declares the result of a function that returns a struct.
    fn split(&mut self) {
        let (name, function) = (self.name("v"), self.choose(&["modf", "frexp"]));
        let width = 1 + self.rng.below(4);
        let ty = Type::wide(F32, width);
        let value = self.stored(&ty, 2);
        // Avoids zero, whose exponent is unspecified.
        self.line(format!("let {name} = {function}(abs({value}) + 0.0625f);"));
        self.declare(&format!("{name}.fract"), ty.clone(), Access::Read);
        match function {
            "modf" => self.declare(&format!("{name}.whole"), ty, Access::Read),
            _ => self.declare(&format!("{name}.exp"), Type::wide(I32, width), Access::Read),
        }
    }

    /// Returns a writable variable or a part of one.
    fn target(&mut self, ty: &Type, depth: usize) -> Option<(String, bool)> {
        self.part(depth, ty, false, |variable| variable.access.can_write() && !variable.is_approximate)
    }

    pub(super) fn assignment(&mut self) {
        let ty = if self.chance(75) { self.plain_type() } else { self.any_type() };
        let Some((target, in_matrix)) = self.target(&ty, 2) else { return self.local() };
        let depth = if matches!(ty, Type::Matrix(..)) { 1 } else { 2 + usize::from(self.chance(30)) };
        let value = self.dynamic(&ty, depth);
        let value = self.in_range(&ty, in_matrix, &value);
        self.line(format!("{target} = {value};"));
    }

    fn compound(&mut self) {
        let ty = self.plain_type();
        let (scalar, width) = match ty {
            Type::Vector(scalar, width) => (scalar, width),
            Type::Scalar(scalar) => (scalar, 1),
            _ => return,
        };
        // A float target is written twice, so its index must not change in between.
        let depth = if scalar.is_float() { 0 } else { 2 };
        let Some((target, in_matrix)) = self.target(&ty, depth) else { return self.local() };
        if scalar.is_float() {
            // Brings the value into range before it is used. One block, which shrinking keeps or removes as a whole.
            let (operator, value) = match self.rng.below(8) {
                0 if width > 1 => ("*=", self.dynamic(&Type::Matrix(scalar, width, width), 1)),
                1 => (self.choose(&["+=", "-=", "*="]), self.dynamic(&Type::Scalar(scalar), 1)),
                _ => (self.choose(&["+=", "-=", "*="]), self.dynamic(&ty, 1)),
            };
            let range = self.in_range(&ty, in_matrix, &target);
            return self.block("", &[], |this| {
                this.line(format!("{target} {operator} {value}; // keep"));
                this.line(format!("{target} = {range}; // keep"));
            });
        }
        match self.rng.below(8) {
            0 if width == 1 => {
                let step = self.choose(&["++", "--"]);
                self.line(format!("{target}{step};"));
            }
            1 => {
                let amount = self.dynamic(&Type::wide(U32, width), 1);
                let operator = self.choose(&["<<=", ">>="]);
                self.line(format!("{target} {operator} ({amount} & {}(31u));", Type::wide(U32, width)));
            }
            2 => {
                let (operator, value) = (self.choose(&["/=", "%="]), self.divisor(scalar, width, 1));
                self.line(format!("{target} {operator} {value};"));
            }
            3 => {
                let (operator, value) = (self.choose(&["+=", "-=", "*="]), self.dynamic(&Type::Scalar(scalar), 2));
                self.line(format!("{target} {operator} {value};"));
            }
            _ => {
                let (operator, value) = (self.choose(&["+=", "-=", "*=", "&=", "|=", "^="]), self.dynamic(&ty, 2));
                self.line(format!("{target} {operator} {value};"));
            }
        }
    }

    fn approximate_assignment(&mut self) {
        let approximate: Vec<Variable> =
            self.variables.iter().filter(|variable| variable.is_approximate).cloned().collect();
        if approximate.is_empty() {
            return self.assignment();
        }
        let variable = self.choose(&approximate);
        let (scalar, width) = match variable.ty {
            Type::Vector(scalar, width) => (scalar, width),
            Type::Scalar(scalar) => (scalar, 1),
            _ => return,
        };
        if width > 1 && self.chance(40) {
            let (index, value) = (self.index(width, 2), self.approximate(scalar, 1, 1));
            return self.line(format!("{}[{index}] = {value};", variable.name));
        }
        let value = self.approximate(scalar, width, 1);
        self.line(format!("{} = {value};", variable.name));
    }

    /// Generates a pointer to a part of a variable, with reads and writes through it.
    fn pointer(&mut self) {
        let ty = self.plain_type();
        let fits = |variable: &Variable| variable.access.can_write() && !variable.is_approximate;
        let Some((target, in_matrix)) = self.part(2, &ty, true, fits) else { return self.local() };
        let (name, value) = (self.name("p"), self.dynamic(&ty, 2));
        let value = self.in_range(&ty, in_matrix, &value);
        self.block("", &[], |this| {
            this.line(format!("let {name} = &{target};"));
            this.line(format!("*{name} = {value};"));
            // Other statements would not keep elements of a matrix in their smaller range.
            this.declare(&format!("(*{name})"), ty, if in_matrix { Access::Read } else { Access::Write });
            this.statements(1, 0);
        });
    }

    /// Generates an atomic on memory that all invocations share. Each element has one operation, whose order does not matter.
    fn atomic(&mut self) {
        const OPERATIONS: [&str; 6] = ["atomicAdd", "atomicMin", "atomicMax", "atomicAnd", "atomicOr", "atomicXor"];
        let place = self.rng.below(OPERATIONS.len());
        let (name, scalar) = self.choose(&[("sum_i", I32), ("sum_u", U32)]);
        let value = self.dynamic(&Type::Scalar(scalar), 2);
        self.line(format!("{}(&{name}[{place}], {value});", OPERATIONS[place]));
    }

    pub(super) fn jump(&mut self) {
        let mut jumps = Vec::new();
        if self.context.can_break {
            jumps.push("break;".to_string());
        }
        if self.context.can_continue {
            jumps.push("continue;".to_string());
        }
        if let Some(result) = self.context.result.clone() {
            jumps.push(match result {
                Some(ty) => format!("return {};", self.stored(&ty, 1)),
                None => "return;".to_string(),
            });
        }
        if jumps.is_empty() {
            return self.assignment();
        }
        let (jump, condition) = (self.choose(&jumps), self.condition());
        self.block(&format!("if {condition}"), &[], |this| {
            if this.chance(25) {
                this.set_place();
            }
            this.line(jump);
        });
    }

    /// Returns a branch condition: divergent, uniform, or uniform only by its value.
    fn condition(&mut self) -> String {
        match self.rng.below(10) {
            0..6 => self.dynamic(&Type::Scalar(Bool), 2),
            6..8 => format!("({} {} 2u)", self.same_for_all(), self.choose(&["<", ">=", "=="])),
            _ => format!("(({} | 1u) != 0u)", self.dynamic(&Type::Scalar(U32), 1)),
        }
    }

    /// Returns a small uniform number.
    pub(super) fn same_for_all(&mut self) -> String {
        let below = 3 + self.rng.below(20);
        match self.rng.below(3) {
            0 => format!("(in_u[{}] % {below}u)", self.rng.below(INPUT_LEN)),
            _ => format!("(params.m1 % {below}u)"),
        }
    }

    fn some(&mut self) -> usize {
        1 + self.rng.below(2)
    }

    fn branch(&mut self, depth: usize) {
        let (condition, count) = (self.condition(), self.some());
        self.block(&format!("if {condition}"), &[], |this| this.statements(count, depth));
        while self.chance(40) {
            let (condition, count) = (self.condition(), self.some());
            let is_last = self.chance(60);
            let head = if is_last { "} else".to_string() } else { format!("}} else if {condition}") };
            self.lines.pop();
            self.block(&head, &[], |this| this.statements(count, depth));
            if is_last {
                return;
            }
        }
    }

    fn switch(&mut self, depth: usize) {
        let scalar = self.choose(&[I32, U32]);
        let suffix = if scalar == I32 { "i" } else { "u" };
        let selector = self.dynamic(&Type::Scalar(scalar), 2);
        let selector = if self.chance(70) { format!("({selector} & 3{suffix})") } else { selector };
        let (cases, mut value) = (1 + self.rng.below(3), if scalar == I32 { -(self.rng.below(3) as i32) } else { 0 });
        let default = self.rng.below(cases + 1);
        self.block(&format!("switch {selector}"), &[], |this| {
            this.context.can_break = true;
            for case in 0..=cases {
                let mut values = Vec::new();
                for _ in 0..=this.rng.below(3) {
                    values.push(format!("{value}{suffix}"));
                    value += 1 + this.rng.below(2) as i32;
                }
                let head = match case {
                    _ if case != default => format!("case {}:", values.join(", ")),
                    _ if this.chance(40) => format!("case {}, default:", values.join(", ")),
                    _ => "default:".to_string(),
                };
                let count = this.rng.below(3);
                this.block(&head, &[], |this| this.statements(count, depth));
            }
        });
    }

    /// Generates a loop of any kind with a few iterations at most.
    fn repeat(&mut self, depth: usize) {
        let (name, rounds, count) = (self.name("k"), 1 + self.rng.below(5), 1 + self.some());
        let limit = match self.rng.below(10) {
            0..4 => format!("{rounds}u"),
            // Uniform.
            4..6 => format!("(params.m1 % {}u)", rounds + 1),
            6 => format!("(u32(in_i[{}]) % {}u)", self.rng.below(INPUT_LEN), rounds + 1),
            _ => format!("({} % {}u)", self.dynamic(&Type::Scalar(U32), 2), rounds + 1),
        };
        let counter = Variable::read(&name, &Type::Scalar(U32));
        let kind = self.rng.below(4);
        let head = match kind {
            0 if self.chance(30) => format!("for (var {name} = {limit}; {name} > 0u; {name}--)"),
            0 => format!("for (var {name} = 0u; {name} < {limit}; {name}{})", self.choose(&["++", " += 1u", " += 2u"])),
            1 => {
                let condition = self.dynamic(&Type::Scalar(Bool), 2);
                let condition = if self.chance(50) {
                    format!("({name} < {limit})")
                } else {
                    format!("(({name} < {limit}) && {condition})")
                };
                format!("while {condition}")
            }
            _ => "loop".to_string(),
        };
        if kind > 0 {
            self.line(format!("var {name} = 0u;"));
        }
        self.block(&head, &[counter], |this| {
            this.context.loops += 1;
            this.context.rounds *= rounds;
            (this.context.can_break, this.context.can_continue) = (true, true);
            match kind {
                0 => {}
                1 => this.line(format!("{name}++; // keep")),
                2 => {
                    this.line(format!("if ({name} >= {limit}) {{ break; }} // keep"));
                    this.line(format!("{name} += 1u; // keep"));
                }
                _ => this.cost += 1,
            }
            let outer = this.variables.len();
            this.statements(count, depth);
            if kind == 3 {
                // Variables of the loop body are not in scope there: a `continue` may skip their declaration.
                this.variables.truncate(outer);
                this.continuing(&name, &limit);
            }
        });
    }

    fn continuing(&mut self, name: &str, limit: &str) {
        self.lines.push("continuing {".to_string());
        if self.chance(40) {
            let outer = std::mem::take(&mut self.context);
            self.context = Context { loops: 2, rounds: outer.rounds, ..Context::default() };
            self.statements(1, 1);
            self.context = outer;
        }
        self.line(format!("{name} += 1u; // keep"));
        self.line(format!("break if ({name} >= {limit}); // keep"));
        self.lines.push("}".to_string());
    }
}
