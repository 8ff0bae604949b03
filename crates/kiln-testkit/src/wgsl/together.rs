//! Functions with barriers, and their calls. A whole workgroup calls and leaves them at once; after the last barrier, invocations may return
//! independently.

use super::scope::{Access, Context, Exits, Generator, MAX_COST, Return, Space, Variable};
use super::types::{Scalar, Type};
use Scalar::U32;

/// Maximum nesting depth of functions with barriers.
const MAX_LEVELS: usize = 2;
/// Minimum budget for a new function.
const MIN_COST: usize = 40;

/// A parameter.
#[derive(Clone, Debug)]
enum Taken {
    Own(Type),
    /// A uniform value, which control flow may depend on.
    Common(Type),
    Pointer(Type, Space),
}

/// A function with barriers.
#[derive(Clone, Debug)]
pub(super) struct Together {
    name: String,
    /// Its parameters after those that identify the invocation.
    parameters: Vec<Taken>,
    result: Type,
    /// Whether the result is uniform.
    is_common: bool,
    /// Whether some invocations may still read what others wrote when it ends.
    is_open: bool,
    /// Nesting depth of functions with barriers, including this one.
    height: usize,
    cost: usize,
}

impl Generator {
    /// Generates calls of a function with barriers.
    pub(super) fn together(&mut self) {
        let callable = self.callable();
        let can_make = self.context.level < MAX_LEVELS && self.budget() > MIN_COST;
        let function = match callable.is_empty() {
            false if !can_make || self.chance(40) => self.choose(&callable),
            _ if can_make => self.together_function(),
            _ => return self.exchange(),
        };
        if function.is_common && self.chance(70) {
            return self.go_by(&function);
        }
        if self.context.loops < 2 && self.budget() > 3 * function.cost && self.chance(30) {
            let (name, limit) = (self.name("k"), self.choose(&["2u", "3u", "(params.m1 & 3u)"]));
            let counter = Variable::common(&name, &Type::Scalar(U32));
            return self.block(&format!("for (var {name} = 0u; {name} < {limit}; {name}++)"), &[counter], |this| {
                this.context.loops += 1;
                this.context.rounds *= 3;
                this.call_together(&function);
                this.use_place();
                this.assignment();
            });
        }
        self.call_together(&function);
        if self.budget() > function.cost && self.chance(50) {
            self.statements(1, 1);
            self.call_together(&function);
        }
    }

    /// Generates a branch or loop that depends on the result of a function.
    fn go_by(&mut self, function: &Together) {
        let has_room = self.context.loops < 2 && self.budget() > 4 * function.cost;
        if function.is_open || self.chance(25) {
            self.call_together(function);
            return if has_room && self.chance(50) { self.common_loop(None) } else { self.common_branch(None) };
        }
        let is_loop = has_room && self.chance(40);
        // The condition is evaluated in each iteration, and once more.
        self.context.rounds *= if is_loop { 4 } else { 1 };
        let call = self.call_text(function);
        self.context.rounds /= if is_loop { 4 } else { 1 };
        let decision = Variable::common(&call, &function.result);
        if is_loop { self.common_loop(Some(&decision)) } else { self.common_branch(Some(decision)) }
    }

    /// Returns the maximum cost of a function that is called here.
    fn budget(&self) -> usize {
        MAX_COST.saturating_sub(self.cost) / self.context.rounds
    }

    fn callable(&self) -> Vec<Together> {
        let (level, budget) = (self.context.level, self.budget());
        let is_callable = |function: &&Together| level + function.height <= MAX_LEVELS && function.cost < budget;
        self.together.iter().filter(is_callable).cloned().collect()
    }

    /// Returns a call as a uniform value, if there is a function for it.
    pub(super) fn common_call(&mut self, ty: &Type) -> Option<String> {
        let mut functions = self.callable();
        functions.retain(|function| function.is_common && !function.is_open && function.result == *ty);
        if functions.is_empty() {
            return None;
        }
        let function = self.choose(&functions);
        Some(self.call_text(&function))
    }

    fn call_together(&mut self, function: &Together) {
        let call = self.call_text(function);
        let name = self.name("v");
        self.line(format!("let {name} = {call};"));
        if function.is_open {
            self.line("workgroupBarrier(); // keep");
        }
        if function.is_common {
            self.declare_common(&name, &function.result);
            return self.advance();
        }
        self.declare(&name, function.result.clone(), Access::Read);
    }

    fn call_text(&mut self, function: &Together) -> String {
        // Charged before the arguments are generated, which may be calls too.
        self.cost += function.cost * self.context.rounds;
        self.height = self.height.max(function.height);
        let mut arguments: Vec<String> = self.who().into_iter().map(|(name, _)| name.to_string()).collect();
        let mut taken = Vec::new();
        for parameter in &function.parameters {
            arguments.push(match parameter {
                Taken::Own(ty) => self.stored(ty, 2),
                Taken::Common(ty) => match self.common_call(ty) {
                    Some(call) if self.chance(40) => call,
                    _ => self.common_of(ty, 1),
                },
                Taken::Pointer(ty, space) => self.pointer_argument(ty, *space, &mut taken),
            });
        }
        format!("{}({})", function.name, arguments.join(", "))
    }

    /// Returns the parameters that identify an invocation.
    fn who(&self) -> Vec<(&'static str, Type)> {
        let mut known = vec![("lid", Type::Scalar(U32)), ("me", Type::Scalar(U32)), ("group", Type::Vector(U32, 3))];
        if self.has_subgroups {
            known.push(("lane", Type::Scalar(U32)));
        }
        known
    }

    fn parameters(&mut self) -> Vec<Taken> {
        let mut parameters = vec![Taken::Own(self.plain_type())];
        if self.chance(60) {
            parameters.push(Taken::Common(self.common_type()));
        }
        if self.chance(45) {
            let ty =
                if self.chance(50) { Type::array(self.plain_type(), 2 + self.rng.below(6)) } else { self.any_type() };
            parameters.push(Taken::Pointer(ty, self.choose(&[Space::Function, Space::Private])));
        }
        parameters
    }

    /// Generates a function with barriers.
    fn together_function(&mut self) -> Together {
        let (name, is_common, is_open) = (self.name("together"), self.chance(55), self.chance(25));
        let result = match self.rng.below(4) {
            _ if is_common => self.common_type(),
            0 => self.any_type(),
            _ => self.plain_type(),
        };
        let parameters = self.parameters();
        let who = self.who();
        let mut texts: Vec<String> = who.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
        let mut locals: Vec<Variable> = who.iter().map(|(name, ty)| Variable::read(name, ty)).collect();
        for (number, parameter) in parameters.iter().enumerate() {
            let name = format!("p{number}");
            let (text, local) = match parameter {
                Taken::Own(ty) => (ty.to_string(), Variable::read(&name, ty)),
                Taken::Common(ty) => (ty.to_string(), Variable::common(&name, ty)),
                Taken::Pointer(ty, space) => {
                    let access = Access::Given(*space);
                    (format!("ptr<{space}, {ty}>"), Variable { access, ..Variable::read(&format!("(*{name})"), ty) })
                }
            };
            texts.push(format!("{name}: {text}"));
            locals.push(local);
        }
        let head = format!("fn {name}({}) -> {result}", texts.join(", "));
        let returned = if is_common { Return::Common(result.clone()) } else { Return::Own(result.clone()) };
        let (height, cost) =
            self.apart(&head, &locals, returned, |this| this.body_together(&result, is_common, is_open));
        let function = Together { name, parameters, result, is_common, is_open, height, cost };
        self.together.push(function.clone());
        function
    }

    /// Generates a function apart from the current one. Returns its nesting depth and its cost.
    fn apart(
        &mut self,
        head: &str,
        locals: &[Variable],
        result: Return,
        body: impl FnOnce(&mut Self),
    ) -> (usize, usize) {
        let budget = self.budget() / 3;
        let (outer, lines) = (self.variables.split_off(self.module_variables), std::mem::take(&mut self.lines));
        let exits = Exits { result: Some(result), ..Exits::default() };
        let inside = Context { rounds: 1, level: self.context.level + 1, exits, ..Context::default() };
        let context = std::mem::replace(&mut self.context, inside);
        // Statements compare `cost` with `MAX_COST`, so this leaves them the budget.
        let begin = MAX_COST - budget;
        let (cost, height) = (std::mem::replace(&mut self.cost, begin), std::mem::take(&mut self.height));
        // The buffer element of this invocation is accessed by name.
        self.variables.extend(outer.iter().filter(|variable| variable.name == "own[me]").cloned());
        self.block(head, locals, body);
        self.items.extend(std::mem::replace(&mut self.lines, lines));
        self.variables.truncate(self.module_variables);
        self.variables.extend(outer);
        self.context = context;
        let inner_height = std::mem::replace(&mut self.height, height);
        let inner_cost = std::mem::replace(&mut self.cost, cost) - begin;
        (inner_height + 1, inner_cost)
    }

    fn body_together(&mut self, result: &Type, is_common: bool, is_open: bool) {
        self.common_variable();
        self.statements(1, 1);
        if self.chance(50) {
            self.hold();
        }
        if self.chance(60) {
            self.new_place();
        }
        for _ in 0..1 + self.rng.below(2) {
            self.phase();
            if self.chance(50) {
                self.leave_together(false);
                self.use_place();
            }
            self.advance();
        }
        if is_open {
            self.write_own_and_read();
            if self.chance(40) {
                self.leave_together(false);
            }
        }
        if is_common {
            let value = self.common_of(result, 2);
            return self.line(format!("return {value}; // keep"));
        }
        // From here on there are no barriers, and invocations may return independently.
        self.context.result = Some(Some(result.clone()));
        if self.chance(50) {
            self.jump();
            self.use_place();
        }
        self.statements(1, 2);
        let value = self.stored(result, 2);
        self.line(format!("return {value}; // keep"));
    }
}
