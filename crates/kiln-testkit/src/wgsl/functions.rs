//! Functions and their calls: with values, and with pointers to variables.

use super::scope::{Access, Context, Function, Generator, MAX_COST, Space, Variable};
use super::types::Type;

impl Generator {
    /// Generates a function, which may call earlier ones.
    pub(super) fn function(&mut self) {
        let name = self.name("fun");
        let result = if self.chance(85) {
            Some(if self.chance(70) { self.plain_type() } else { self.any_type() })
        } else {
            None
        };
        let mut parameters = Vec::new();
        for _ in 0..1 + self.rng.below(3) {
            let space = self.choose(&[None, None, None, Some(Space::Function), Some(Space::Private)]);
            parameters.push((self.any_type(), space));
        }
        let (mut texts, mut locals) = (Vec::new(), Vec::new());
        for (number, (ty, space)) in parameters.iter().enumerate() {
            let parameter = format!("p{number}");
            let (written, name, access) = match space {
                Some(space) => (format!("ptr<{space}, {ty}>"), format!("(*{parameter})"), Access::Given(*space)),
                None => (ty.to_string(), parameter.clone(), Access::Read),
            };
            texts.push(format!("{parameter}: {written}"));
            locals.push(Variable { access, ..Variable::read(&name, ty) });
        }
        let arrow = result.as_ref().map_or(String::new(), |ty| format!(" -> {ty}"));
        self.context = Context { rounds: 1, result: Some(result.clone()), ..Context::default() };
        self.cost = 1;
        let count = 1 + self.rng.below(3);
        self.block(&format!("fn {name}({}){arrow}", texts.join(", ")), &locals, |this| {
            if this.chance(40) {
                this.call_statement();
            }
            this.statements(count, 1);
            if let Some(ty) = &result {
                let value = this.stored(ty, 2);
                this.line(format!("return {value}; // keep"));
            }
        });
        self.functions.push(Function { name, parameters, result, cost: self.cost });
    }

    fn affordable(&self) -> Vec<Function> {
        let budget = MAX_COST.saturating_sub(self.cost) / self.context.rounds;
        self.functions.iter().filter(|function| function.cost < budget).cloned().collect()
    }

    /// Returns a call of a function that takes only values.
    pub(super) fn call(&mut self, ty: &Type, depth: usize) -> Option<String> {
        let mut functions = self.affordable();
        functions.retain(|function| {
            function.result.as_ref() == Some(ty) && function.parameters.iter().all(|(_, space)| space.is_none())
        });
        if functions.is_empty() {
            return None;
        }
        let function = self.choose(&functions);
        self.cost += function.cost * self.context.rounds;
        let arguments: Vec<String> =
            (function.parameters.iter()).map(|(ty, _)| self.stored(ty, depth.min(1))).collect();
        Some(format!("{}({})", function.name, arguments.join(", ")))
    }

    /// Generates a call for its side effects, with pointers to distinct variables.
    pub(super) fn call_statement(&mut self) {
        let functions = self.affordable();
        if functions.is_empty() {
            return self.assignment();
        }
        let function = self.choose(&functions);
        let (mut arguments, mut taken) = (Vec::new(), Vec::new());
        for (ty, space) in &function.parameters {
            arguments.push(match space {
                Some(space) => self.pointer_argument(ty, *space, &mut taken),
                None => self.stored(ty, 2),
            });
        }
        self.cost += function.cost * self.context.rounds;
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

    /// Returns a pointer to a variable that is not taken yet. Points to a part of a variable only if no driver gets the program: naga accepts
    /// that, but its SPIR-V backend panics.
    pub(super) fn pointer_argument(&mut self, ty: &Type, space: Space, taken: &mut Vec<String>) -> String {
        if self.gives_parts
            && self.chance(60)
            && let Some(part) = self.part_argument(ty, space, taken)
        {
            return part;
        }
        let free: Vec<String> = (self.variables.iter())
            .filter(|variable| variable.access == Access::Given(space) && variable.ty == *ty)
            .map(|variable| variable.name.clone())
            .filter(|name| !taken.contains(name))
            .collect();
        if !free.is_empty() {
            let name = self.choose(&free);
            taken.push(name.clone());
            let pointer = name.strip_prefix("(*").and_then(|name| name.strip_suffix(')'));
            return pointer.map_or_else(|| format!("&{name}"), str::to_string);
        }
        let name = self.name("v");
        match space {
            Space::Function => {
                let value = self.stored(ty, 1);
                self.line(format!("var {name} = {value};"));
            }
            Space::Private => self.items.push(format!("var<private> {name}: {ty};")),
        }
        self.declare(&name, ty.clone(), Access::Given(space));
        taken.push(name.clone());
        format!("&{name}")
    }

    /// Returns a pointer to a part of a variable that is not taken yet.
    fn part_argument(&mut self, ty: &Type, space: Space, taken: &mut Vec<String>) -> Option<String> {
        let free: Vec<Variable> = (self.variables.iter())
            .filter(|variable| variable.access == Access::Given(space) && !taken.contains(&variable.name))
            .filter(|variable| variable.ty != *ty && variable.ty.contains(ty, true))
            .cloned()
            .collect();
        let variable = if free.is_empty() {
            // Declares an array of the type.
            let (name, array) = (self.name("v"), Type::array(ty.clone(), 2 + self.rng.below(5)));
            match space {
                Space::Function => self.line(format!("var {name}: {array};")),
                Space::Private => self.items.push(format!("var<private> {name}: {array};")),
            }
            self.declare(&name, array.clone(), Access::Given(space));
            Variable { access: Access::Given(space), ..Variable::read(&name, &array) }
        } else {
            self.choose(&free)
        };
        let (path, in_matrix) = self.descend(variable.name.clone(), variable.ty, 2, ty, true);
        // Functions do not keep elements of a matrix in their smaller range.
        if in_matrix && !matches!(ty, Type::Matrix(..)) {
            return None;
        }
        taken.push(variable.name);
        if !self.chance(40) {
            return Some(format!("&{path}"));
        }
        let name = self.name("p");
        self.line(format!("let {name} = &{path};"));
        Some(name)
    }
}
