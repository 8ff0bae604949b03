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
enum BarrierParameter {
    Own(Type),
    /// A uniform value, which control flow may depend on.
    Uniform(Type),
    Pointer(Type, Space),
}

/// A function with barriers.
#[derive(Clone, Debug)]
pub(super) struct BarrierFunction {
    name: String,
    /// Its parameters after those that identify the invocation.
    parameters: Vec<BarrierParameter>,
    result: Type,
    /// Whether the result is uniform.
    is_uniform: bool,
    /// Whether some invocations may still read what others wrote when it ends.
    is_open: bool,
    /// Nesting depth of functions with barriers, including this one.
    height: usize,
    cost: usize,
}

impl Generator {
    /// Generates calls of a function with barriers.
    pub(super) fn barrier_call(&mut self) {
        let callable = self.callable();
        let can_make = self.context.level < MAX_LEVELS && self.budget() > MIN_COST;
        let function = match callable.is_empty() {
            false if !can_make || self.chance(40) => self.choose(&callable),
            _ if can_make => self.barrier_function(),
            _ => return self.exchange(),
        };
        if function.is_uniform && self.chance(70) {
            return self.depend_on_result(&function);
        }
        if self.context.loops < 2 && self.budget() > 3 * function.cost && self.chance(30) {
            let (name, limit) = (self.name("k"), self.choose(&["2u", "3u", "(params.m1 & 3u)"]));
            let counter = Variable::uniform(&name, &Type::Scalar(U32));
            return self.block(&format!("for (var {name} = 0u; {name} < {limit}; {name}++)"), &[counter], |this| {
                this.context.loops += 1;
                this.context.rounds *= 3;
                this.call_barrier_function(&function);
                this.use_place();
                this.assignment();
            });
        }
        self.call_barrier_function(&function);
        if self.budget() > function.cost && self.chance(50) {
            self.statements(1, 1);
            self.call_barrier_function(&function);
        }
    }

    /// Generates a branch or loop that depends on the result of a function.
    fn depend_on_result(&mut self, function: &BarrierFunction) {
        let has_room = self.context.loops < 2 && self.budget() > 4 * function.cost;
        if function.is_open || self.chance(25) {
            self.call_barrier_function(function);
            return if has_room && self.chance(50) { self.uniform_loop(None) } else { self.uniform_branch(None) };
        }
        let is_loop = has_room && self.chance(40);
        // The condition is evaluated in each iteration, and once more.
        self.context.rounds *= if is_loop { 4 } else { 1 };
        let call = self.call_text(function);
        self.context.rounds /= if is_loop { 4 } else { 1 };
        let decision = Variable::uniform(&call, &function.result);
        if is_loop { self.uniform_loop(Some(&decision)) } else { self.uniform_branch(Some(decision)) }
    }

    /// Returns the maximum cost of a function that is called here.
    fn budget(&self) -> usize {
        MAX_COST.saturating_sub(self.cost) / self.context.rounds
    }

    fn callable(&self) -> Vec<BarrierFunction> {
        let (level, budget) = (self.context.level, self.budget());
        let is_callable = |function: &&BarrierFunction| level + function.height <= MAX_LEVELS && function.cost < budget;
        self.barrier_functions.iter().filter(is_callable).cloned().collect()
    }

    /// Returns a call as a uniform value, if there is a function for it.
    pub(super) fn uniform_call(&mut self, ty: &Type) -> Option<String> {
        let mut functions = self.callable();
        functions.retain(|function| function.is_uniform && !function.is_open && function.result == *ty);
        if functions.is_empty() {
            return None;
        }
        let function = self.choose(&functions);
        Some(self.call_text(&function))
    }

    fn call_barrier_function(&mut self, function: &BarrierFunction) {
        let call = self.call_text(function);
        let name = self.name("v");
        self.line(format!("let {name} = {call};"));
        if function.is_open {
            self.line("workgroupBarrier(); // keep");
        }
        if function.is_uniform {
            self.declare_uniform(&name, &function.result);
            return self.advance();
        }
        self.declare(&name, function.result.clone(), Access::Read);
    }

    fn call_text(&mut self, function: &BarrierFunction) -> String {
        // Charged before the arguments are generated, which may be calls too.
        self.cost += function.cost * self.context.rounds;
        self.height = self.height.max(function.height);
        let mut arguments: Vec<String> =
            self.invocation_parameters().into_iter().map(|(name, _)| name.to_string()).collect();
        let mut taken = Vec::new();
        for parameter in &function.parameters {
            arguments.push(match parameter {
                BarrierParameter::Own(ty) => self.stored(ty, 2),
                BarrierParameter::Uniform(ty) => match self.uniform_call(ty) {
                    Some(call) if self.chance(40) => call,
                    _ => self.uniform_of(ty, 1),
                },
                BarrierParameter::Pointer(ty, space) => self.pointer_argument(ty, *space, &mut taken),
            });
        }
        format!("{}({})", function.name, arguments.join(", "))
    }

    /// Returns the parameters that identify an invocation.
    fn invocation_parameters(&self) -> Vec<(&'static str, Type)> {
        let mut known = vec![("lid", Type::Scalar(U32)), ("me", Type::Scalar(U32)), ("group", Type::Vector(U32, 3))];
        if self.has_subgroups {
            known.push(("lane", Type::Scalar(U32)));
        }
        known
    }

    fn parameters(&mut self) -> Vec<BarrierParameter> {
        let mut parameters = vec![BarrierParameter::Own(self.plain_type())];
        if self.chance(60) {
            parameters.push(BarrierParameter::Uniform(self.uniform_type()));
        }
        if self.chance(45) {
            let ty =
                if self.chance(50) { Type::array(self.plain_type(), 2 + self.rng.below(6)) } else { self.any_type() };
            parameters.push(BarrierParameter::Pointer(ty, self.choose(&[Space::Function, Space::Private])));
        }
        parameters
    }

    /// Generates a function with barriers.
    fn barrier_function(&mut self) -> BarrierFunction {
        let (name, is_uniform, is_open) = (self.name("together"), self.chance(55), self.chance(25));
        let result = match self.rng.below(4) {
            _ if is_uniform => self.uniform_type(),
            0 => self.any_type(),
            _ => self.plain_type(),
        };
        let parameters = self.parameters();
        let own = self.invocation_parameters();
        let mut texts: Vec<String> = own.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
        let mut locals: Vec<Variable> = own.iter().map(|(name, ty)| Variable::read(name, ty)).collect();
        for (number, parameter) in parameters.iter().enumerate() {
            let name = format!("p{number}");
            let (text, local) = match parameter {
                BarrierParameter::Own(ty) => (ty.to_string(), Variable::read(&name, ty)),
                BarrierParameter::Uniform(ty) => (ty.to_string(), Variable::uniform(&name, ty)),
                BarrierParameter::Pointer(ty, space) => {
                    let access = Access::Given(*space);
                    (format!("ptr<{space}, {ty}>"), Variable { access, ..Variable::read(&format!("(*{name})"), ty) })
                }
            };
            texts.push(format!("{name}: {text}"));
            locals.push(local);
        }
        let head = format!("fn {name}({}) -> {result}", texts.join(", "));
        let returned = if is_uniform { Return::Uniform(result.clone()) } else { Return::Own(result.clone()) };
        let (height, cost) =
            self.separate_function(&head, &locals, returned, |this| this.barrier_body(&result, is_uniform, is_open));
        let function = BarrierFunction { name, parameters, result, is_uniform, is_open, height, cost };
        self.barrier_functions.push(function.clone());
        function
    }

    /// Generates a function outside the current one. Returns its nesting depth and its cost.
    fn separate_function(
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

    fn barrier_body(&mut self, result: &Type, is_uniform: bool, is_open: bool) {
        self.uniform_variable();
        self.statements(1, 1);
        if self.chance(50) {
            self.hold();
        }
        if self.chance(60) {
            self.new_place();
        }
        for _ in 0..1 + self.rng.below(2) {
            self.exchange_step();
            if self.chance(50) {
                self.uniform_exit(false);
                self.use_place();
            }
            self.advance();
        }
        if is_open {
            self.write_own_and_read();
            if self.chance(40) {
                self.uniform_exit(false);
            }
        }
        if is_uniform {
            let value = self.uniform_of(result, 2);
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
