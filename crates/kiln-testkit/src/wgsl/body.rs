//! Statements.

use super::scope::{Access, Generator, MAX_COST, Variable};
use super::types::{Scalar, Type};
use Scalar::{Bool, I32, U32};

impl Generator {
    /// Some statements.
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
            0..16 => self.local(),
            16..32 => self.assignment(),
            32..42 => self.compound(),
            42..50 => self.approximate_assignment(),
            50..56 => self.call_statement(),
            56..60 => self.pointer(),
            60..64 => self.atomic(),
            64..68 => self.jump(),
            68..82 if depth > 0 => self.branch(depth - 1),
            82..88 if depth > 0 => self.switch(depth - 1),
            88..99 if depth > 0 && self.place.loops < 2 => self.repeat(depth - 1),
            99 if depth > 0 => self.block("", &[], |this| this.statements(2, depth - 1)),
            _ => self.assignment(),
        }
    }

    fn local(&mut self) {
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
        self.declare(&name, ty, Access::Local);
    }

    /// A place that can be written: all of a variable or a part.
    fn target(&mut self, ty: &Type, depth: usize) -> Option<(String, bool)> {
        let fits =
            |variable: &Variable| matches!(variable.access, Access::Write | Access::Local) && !variable.is_approximate;
        self.part(depth, ty, true, fits)
    }

    fn assignment(&mut self) {
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
        // What is written twice must not move in between.
        let depth = if scalar.is_float() { 0 } else { 2 };
        let Some((target, in_matrix)) = self.target(&ty, depth) else { return self.local() };
        if scalar.is_float() {
            // Into range again before anybody sees it; in one block, which goes or stays as a whole.
            let (operator, value) = (self.choose(&["+=", "-=", "*="]), self.dynamic(&ty, 1));
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
                let (operator, value) = (self.choose(&["/=", "%="]), self.dynamic(&ty, 2));
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
            let (component, value) = (self.choose(&["x", "y"]), self.approximate(scalar, 1, 1));
            return self.line(format!("{}.{component} = {value};", variable.name));
        }
        let value = self.approximate(scalar, width, 1);
        self.line(format!("{} = {value};", variable.name));
    }

    /// A call for what it does, with pointers to local variables, no variable twice.
    fn call_statement(&mut self) {
        let budget = MAX_COST.saturating_sub(self.cost) / self.place.rounds;
        let functions: Vec<_> = self.functions.iter().filter(|function| function.cost < budget).cloned().collect();
        if functions.is_empty() {
            return self.assignment();
        }
        let function = self.choose(&functions);
        let mut arguments: Vec<String> = Vec::new();
        for (ty, is_pointer) in &function.parameters {
            if !is_pointer {
                let value = self.stored(ty, 2);
                arguments.push(value);
                continue;
            }
            let free: Vec<String> = (self.variables.iter())
                .filter(|variable| variable.access == Access::Local && variable.ty == *ty)
                .map(|variable| format!("&{}", variable.name))
                .filter(|pointer| !arguments.contains(pointer))
                .collect();
            if free.is_empty() {
                let (name, value) = (self.name("v"), self.stored(ty, 1));
                self.line(format!("var {name} = {value};"));
                self.declare(&name, ty.clone(), Access::Local);
                arguments.push(format!("&{name}"));
            } else {
                arguments.push(self.choose(&free));
            }
        }
        self.cost += function.cost * self.place.rounds;
        let call = format!("{}({})", function.name, arguments.join(", "));
        match function.result {
            Some(ty) if self.chance(80) => {
                let name = self.name("v");
                self.line(format!("let {name} = {call};"));
                self.declare(&name, ty, Access::Read);
            }
            Some(_) => self.line(format!("_ = {call};")),
            None => self.line(format!("{call};")),
        }
    }

    /// A pointer to a part of a variable, read and written through.
    fn pointer(&mut self) {
        let ty = self.plain_type();
        let Some((target, in_matrix)) = self.target(&ty, 2) else { return self.local() };
        // A component of a vector has no address.
        let is_component = target.ends_with(['x', 'y', 'z', 'w']) || target.ends_with(']');
        if is_component && matches!(ty, Type::Scalar(_)) {
            return self.assignment();
        }
        let (name, value) = (self.name("p"), self.dynamic(&ty, 2));
        let value = self.in_range(&ty, in_matrix, &value);
        self.block("", &[], |this| {
            this.line(format!("let {name} = &{target};"));
            this.line(format!("*{name} = {value};"));
            this.declare(&format!("(*{name})"), ty, Access::Read);
            this.statements(1, 0);
        });
    }

    /// On memory that all invocations share: each place knows one operation, whose order does not matter.
    fn atomic(&mut self) {
        const OPERATIONS: [&str; 6] = ["atomicAdd", "atomicMin", "atomicMax", "atomicAnd", "atomicOr", "atomicXor"];
        let place = self.rng.below(OPERATIONS.len());
        let (name, scalar) = self.choose(&[("sum_i", I32), ("sum_u", U32)]);
        let value = self.dynamic(&Type::Scalar(scalar), 2);
        self.line(format!("{}(&{name}[{place}], {value});", OPERATIONS[place]));
    }

    fn jump(&mut self) {
        let mut jumps = Vec::new();
        if self.place.can_break {
            jumps.push("break;".to_string());
        }
        if self.place.can_continue {
            jumps.push("continue;".to_string());
        }
        if let Some(result) = self.place.result.clone() {
            jumps.push(match result {
                Some(ty) => format!("return {};", self.stored(&ty, 1)),
                None => "return;".to_string(),
            });
        }
        if jumps.is_empty() {
            return self.assignment();
        }
        let (jump, condition) = (self.choose(&jumps), self.dynamic(&Type::Scalar(Bool), 2));
        self.block(&format!("if {condition}"), &[], |this| this.line(jump));
    }

    fn some(&mut self) -> usize {
        1 + self.rng.below(2)
    }

    fn branch(&mut self, depth: usize) {
        let (condition, count) = (self.dynamic(&Type::Scalar(Bool), 2), self.some());
        self.block(&format!("if {condition}"), &[], |this| this.statements(count, depth));
        while self.chance(40) {
            let (condition, count) = (self.dynamic(&Type::Scalar(Bool), 2), self.some());
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
        let (cases, mut value) = (1 + self.rng.below(3), 0);
        let default = self.rng.below(cases + 1);
        self.block(&format!("switch {selector}"), &[], |this| {
            this.place.can_break = true;
            for case in 0..=cases {
                let mut values = Vec::new();
                for _ in 0..=this.rng.below(2) {
                    values.push(format!("{value}{suffix}"));
                    value += 1 + this.rng.below(2);
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

    /// A loop of at most a few rounds, of any kind.
    fn repeat(&mut self, depth: usize) {
        let (name, rounds, count) = (self.name("k"), 1 + self.rng.below(5), 1 + self.some());
        let limit = if self.chance(50) {
            format!("{rounds}u")
        } else {
            format!("({} % {}u)", self.dynamic(&Type::Scalar(U32), 2), rounds + 1)
        };
        let counter =
            Variable { name: name.clone(), ty: Type::Scalar(U32), access: Access::Read, is_approximate: false };
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
            this.place.loops += 1;
            this.place.rounds *= rounds;
            (this.place.can_break, this.place.can_continue) = (true, true);
            match kind {
                0 => {}
                1 => this.line(format!("{name}++; // keep")),
                2 => {
                    this.line(format!("if ({name} >= {limit}) {{ break; }} // keep"));
                    this.line(format!("{name} += 1u; // keep"));
                }
                _ => this.cost += 1,
            }
            // What follows `continuing` must see what is declared here, so no `continue` may jump over it.
            this.statements(count, depth);
            if kind == 3 {
                this.continuing(&name, &limit);
            }
        });
    }

    fn continuing(&mut self, name: &str, limit: &str) {
        self.lines.push("continuing {".to_string());
        self.line(format!("{name} += 1u; // keep"));
        self.line(format!("break if ({name} >= {limit}); // keep"));
        self.lines.push("}".to_string());
    }
}
