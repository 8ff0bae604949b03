//! Values that are uniform in a workgroup, and the branches, loops and jumps that depend on them. All invocations of a
//! workgroup take the same path through these, so they may contain barriers.

use super::program::INPUT_LEN;
use super::scope::{Generator, Return, Variable};
use super::types::{Scalar, Type};
use Scalar::{Bool, I32, U32};

impl Generator {
    /// Returns a random type of uniform values.
    pub(super) fn uniform_type(&mut self) -> Type {
        let (number, boolean) = (Type::Scalar(U32), Type::Scalar(Bool));
        self.choose(&[number.clone(), number, Type::Scalar(I32), boolean.clone(), boolean, Type::Vector(U32, 2)])
    }

    /// Declares a uniform variable. Only [`Self::advance`] writes to it.
    pub(super) fn uniform_variable(&mut self) {
        let (name, value) = (self.name("same"), self.uniform(1));
        self.line(format!("var {name} = {value};"));
        self.declare_uniform(&name, &Type::Scalar(U32));
    }

    /// Assigns a new uniform value to a uniform variable in scope, if there is one.
    pub(super) fn advance(&mut self) {
        // Other uniform values are `let` declarations, parameters or loop counters, which must not be assigned.
        let is_assignable = |variable: &&Variable| variable.is_uniform && variable.name.starts_with("same");
        let names: Vec<String> = self.variables.iter().filter(is_assignable).map(|known| known.name.clone()).collect();
        if names.is_empty() {
            return;
        }
        let (name, value) = (self.choose(&names), self.uniform(1));
        let value = match self.rng.below(4) {
            0 => format!("({value} % {}u)", 2 + self.rng.below(8)),
            1 => format!("({value} & {}u)", self.choose(&[3, 7, 15])),
            _ => format!("({name} * 5u) + {value}"),
        };
        self.line(format!("{name} = {value};"));
    }

    /// Returns a uniform `u32`. Requires uniform control flow, because it may call a function with barriers.
    pub(super) fn uniform(&mut self, depth: usize) -> String {
        if depth == 0 || self.chance(30) {
            return self.uniform_leaf();
        }
        if self.chance(30)
            && let Some(call) = self.uniform_call(&Type::Scalar(U32))
        {
            return call;
        }
        let (one, other) = (self.uniform(depth - 1), self.uniform_leaf());
        match self.rng.below(8) {
            0 => format!("in_u[{one}]"),
            1 => format!("in_u[{one} % {INPUT_LEN}u]"),
            2 => format!("min({one}, {}u)", 1 + self.rng.below(9)),
            3 => format!("({one} % {}u)", 2 + self.rng.below(9)),
            4 => format!("({one} >> {}u)", 1 + self.rng.below(9)),
            5 => format!("select({one}, {other}, ({other} & 1u) == 0u)"),
            _ => format!("({one} {} {other})", self.choose(&["+", "-", "*", "^", "&"])),
        }
    }

    fn uniform_leaf(&mut self) -> String {
        let known: Vec<Variable> = self.variables.iter().filter(|variable| variable.is_uniform).cloned().collect();
        if known.is_empty() || self.chance(30) {
            let sources = ["params.m1", "u32(params.m0)", "in_u[group.x]", "u32(in_i[group.y + 5u])", "group.x"];
            return self.choose(&sources).to_string();
        }
        let recent = &known[known.len().saturating_sub(3)..];
        let variable = if self.chance(60) { self.choose(recent) } else { self.choose(&known) };
        self.number_of(&variable)
    }

    /// Returns a `u32` computed from a uniform variable.
    fn number_of(&mut self, Variable { name, ty, .. }: &Variable) -> String {
        match ty {
            Type::Scalar(Bool) => format!("select(3u, 8u, {name})"),
            Type::Scalar(I32) => format!("u32({name})"),
            Type::Vector(..) => format!("{name}.{}", self.choose(&["x", "y"])),
            _ => name.clone(),
        }
    }

    /// Returns a uniform value of a [uniform type](Self::uniform_type).
    pub(super) fn uniform_of(&mut self, ty: &Type, depth: usize) -> String {
        match ty {
            Type::Scalar(Bool) => self.uniform_condition(),
            Type::Scalar(I32) => format!("i32({})", self.uniform(depth)),
            Type::Vector(..) => format!("{ty}({}, {})", self.uniform(depth), self.uniform_leaf()),
            _ => self.uniform(depth),
        }
    }

    /// Returns a uniform condition.
    pub(super) fn uniform_condition(&mut self) -> String {
        const OTHERS: [&str; 3] = ["(params.m0 > 0i)", "(in_i[3] < in_i[group.x])", "((group.x + group.y) < 1u)"];
        if self.chance(15) {
            return self.choose(&OTHERS).to_string();
        }
        if self.chance(35)
            && let Some(call) = self.uniform_call(&Type::Scalar(Bool))
        {
            return call;
        }
        let booleans: Vec<String> = (self.variables.iter())
            .filter(|variable| variable.is_uniform && variable.ty == Type::Scalar(Bool))
            .map(|variable| variable.name.clone())
            .collect();
        if !booleans.is_empty() && self.chance(50) {
            return format!("{}{}", self.choose(&["", "", "!"]), self.choose(&booleans));
        }
        let value = self.uniform(2);
        self.condition_of(&value)
    }

    /// Returns a condition computed from a `u32`.
    fn condition_of(&mut self, value: &str) -> String {
        match self.rng.below(5) {
            0 => format!("(({value} & 1u) == 0u)"),
            1 => format!("({value} < {}u)", 3 + self.rng.below(20)),
            2 => format!("(({value} % 5u) < ({} % 5u))", self.uniform_leaf()),
            _ => format!("(({value} % 3u) {} 1u)", self.choose(&["==", "!=", "<"])),
        }
    }

    /// Returns a condition that depends on `decision` if given, or any uniform condition.
    fn decided(&mut self, decision: Option<&Variable>) -> String {
        match decision {
            Some(variable) if variable.ty == Type::Scalar(Bool) => variable.name.clone(),
            Some(variable) => {
                let value = self.number_of(variable);
                self.condition_of(&value)
            }
            None => self.uniform_condition(),
        }
    }

    /// Generates a loop with uniform control flow and at most three iterations. It depends on `decision` if given.
    pub(super) fn uniform_loop(&mut self, decision: Option<&Variable>) {
        let is_bool = decision.is_some_and(|decision| decision.ty == Type::Scalar(Bool));
        // 0 and 1: `for` up to a limit; 2: `while` with a condition; 3: `loop` up to a limit; 4: `loop` that ends with `break if`.
        // A boolean decision is no limit, so it needs a kind with a condition.
        let kind = if is_bool { self.choose(&[2, 4]) } else { self.rng.below(5) };
        let name = self.name("k");
        // The condition is evaluated in each iteration, and once more.
        self.context.rounds *= 4;
        let condition = self.decided(decision);
        let limit = match decision {
            Some(decision) => format!("{} % 4u", self.number_of(decision)),
            None => self.choose(&["2u", "3u", "(c & 3u)", "(c % 4u)"]).replace('c', &self.uniform(1)),
        };
        self.context.rounds /= 4;
        let head = match kind {
            0 | 1 => format!("for (var {name} = 0u; {name} < {limit}; {name}++)"),
            2 => format!("while {condition}"),
            _ => "loop".to_string(),
        };
        if kind > 1 {
            self.line(format!("var {name} = 0u;"));
        }
        self.block(&head, &[Variable::uniform(&name, &Type::Scalar(U32))], |this| {
            this.context.loops += 1;
            this.context.rounds *= 3;
            (this.context.exits.can_break, this.context.exits.can_continue) = (true, kind < 4 || this.chance(50));
            match kind {
                0 | 1 => {}
                _ => {
                    let limit = if kind == 3 { &limit } else { "3u" };
                    this.line(format!("if ({name} >= {limit}) {{ break; }} // keep"));
                    this.line(format!("{name} += 1u; // keep"));
                }
            }
            let outer = this.variables.len();
            this.loop_body();
            if kind == 4 {
                if this.context.exits.can_continue {
                    // Variables of the loop body are not in scope there: a `continue` may skip their declaration.
                    this.variables.truncate(outer);
                }
                this.uniform_continuing(decision);
            }
        });
    }

    fn loop_body(&mut self) {
        self.exchange_step();
        self.statements(1, 1);
        self.advance();
        if self.chance(40) {
            self.uniform_exit(false);
            self.use_place();
        }
        if self.chance(25) {
            self.exchange_step();
        }
    }

    fn uniform_continuing(&mut self, decision: Option<&Variable>) {
        self.lines.push("continuing {".to_string());
        // WGSL allows no jumps out of a `continuing` block, except for `break if`.
        let exits = std::mem::take(&mut self.context.exits);
        if self.chance(30) {
            self.advance();
        }
        let condition = self.decided(decision);
        self.context.exits = exits;
        self.line(format!("break if {condition}; // keep"));
        self.lines.push("}".to_string());
    }

    /// Generates a branch with uniform control flow. It depends on `decision` if given.
    pub(super) fn uniform_branch(&mut self, decision: Option<Variable>) {
        let percent = match &decision {
            Some(decision) if decision.ty == Type::Scalar(Bool) => 0,
            Some(_) => 70,
            None => 35,
        };
        if self.chance(percent) {
            let numbers = [Type::Scalar(U32), Type::Scalar(I32)];
            let known: Vec<Variable> = (self.variables.iter())
                .filter(|variable| variable.is_uniform && numbers.contains(&variable.ty))
                .cloned()
                .collect();
            let decision = decision.or_else(|| (!known.is_empty()).then(|| self.choose(&known)));
            return self.uniform_switch(decision);
        }
        let condition = self.decided(decision.as_ref());
        self.block(&format!("if {condition}"), &[], Self::branch_body);
        if self.chance(40) {
            self.lines.pop();
            self.block("} else", &[], |this| {
                this.statements(1, 1);
                this.branch_body();
            });
        }
    }

    fn uniform_switch(&mut self, decision: Option<Variable>) {
        let (value, suffix) = match decision {
            Some(decision) if decision.ty == Type::Scalar(I32) => (decision.name, "i"),
            Some(decision) => (self.number_of(&decision), "u"),
            None => (self.uniform(1), "u"),
        };
        // `% 3` makes the cases likely.
        let value = if self.chance(65) { value } else { format!("({value} % 3{suffix})") };
        self.block(&format!("switch {value}"), &[], |this| {
            this.context.exits.can_break = true;
            for head in ["case 1_, 2_, 3_:", "default:"] {
                this.block(&head.replace('_', suffix), &[], |this| {
                    this.branch_body();
                    this.statements(1, 1);
                });
            }
        });
    }

    fn branch_body(&mut self) {
        self.exchange_step();
        self.advance();
        if self.chance(30) {
            self.uniform_exit(false);
        }
    }

    /// Generates a conditional `break`, `continue` or `return` of the whole workgroup. `is_open` is whether an exchange has begun and its last
    /// barrier would be skipped: then other invocations may still read elements of this one, and a barrier comes before the jump.
    pub(super) fn uniform_exit(&mut self, is_open: bool) {
        let (condition, exits) = (self.uniform_condition(), self.context.exits.clone());
        let loops = [("break;", exits.can_break), ("continue;", exits.can_continue)];
        let mut jumps: Vec<Option<&str>> = loops.iter().filter(|(_, can)| *can).map(|(jump, _)| Some(*jump)).collect();
        jumps.extend(exits.result.iter().map(|_| None));
        if jumps.is_empty() {
            return self.advance();
        }
        let jump = self.choose(&jumps);
        self.block(&format!("if {condition}"), &[], |this| {
            if this.chance(50) {
                this.set_place();
            }
            if this.chance(30) {
                this.assignment();
            }
            let jump = match (jump, exits.result) {
                (Some(jump), _) => jump.to_string(),
                (None, Some(result)) => this.returned(&result, is_open),
                (None, None) => return,
            };
            if is_open {
                this.line("workgroupBarrier(); // keep");
            }
            this.line(jump);
        });
    }

    /// Returns a `return` statement of the whole workgroup. If `is_open`, its value is computed before the barrier, while elements of other
    /// invocations may still be read.
    fn returned(&mut self, result: &Return, is_open: bool) -> String {
        let value = match result {
            Return::Nothing => {
                // Makes the exit observable: `scratch` is one of the compared buffers.
                let value = self.dynamic(&Type::Scalar(U32), 1);
                self.line(format!("scratch[me] = {value};"));
                return "return;".to_string();
            }
            Return::Own(ty) => self.stored(ty, 2),
            Return::Uniform(ty) => self.uniform_of(ty, 2),
        };
        if !is_open {
            return format!("return {value};");
        }
        let name = self.name("v");
        self.line(format!("let {name} = {value};"));
        format!("return {name};")
    }
}
