//! The state of the generator: variables in scope, functions so far, and lines.

use super::barrier_functions::BarrierFunction;
use super::types::{Projection, Scalar, Type};
use crate::Rng;
use std::collections::BTreeSet;
use std::fmt;

/// The access that statements have to a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The compiler knows its value. It is not an operand of arithmetic, because overflow in a constant expression is an error.
    Constant,
    Read,
    Write,
    /// Like `Write`, and pointers to it can be passed to functions, which do not access it by name.
    Given(Space),
}

impl Access {
    pub(super) fn can_write(self) -> bool {
        matches!(self, Self::Write | Self::Given(_))
    }
}

/// The address space of variables that functions take pointers to. naga accepts no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Function,
    Private,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "function",
            Self::Private => "private",
        })
    }
}

/// A variable in scope.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) access: Access,
    /// Whether its value may differ a little between devices. It then affects no control flow and no exact value.
    pub(super) is_approximate: bool,
    /// Whether its value is uniform in a workgroup.
    pub(super) is_uniform: bool,
}

impl Variable {
    /// Creates a readable variable.
    pub(super) fn read(name: &str, ty: &Type) -> Self {
        Self { name: name.to_string(), ty: ty.clone(), access: Access::Read, is_approximate: false, is_uniform: false }
    }

    /// Creates a readable variable that is uniform in a workgroup.
    pub(super) fn uniform(name: &str, ty: &Type) -> Self {
        Self { is_uniform: true, ..Self::read(name, ty) }
    }
}

/// A function that can be called.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) name: String,
    /// The types of its parameters; for pointers also the address space.
    pub(super) parameters: Vec<(Type, Option<Space>)>,
    pub(super) result: Option<Type>,
    /// Approximate number of statements that a call runs.
    pub(super) cost: usize,
}

/// The return value of a function that a whole workgroup leaves at once.
#[derive(Clone, Debug)]
pub(super) enum Return {
    Nothing,
    /// A value per invocation.
    Own(Type),
    /// A uniform value.
    Uniform(Type),
}

/// The jumps that a whole workgroup may take.
#[derive(Clone, Debug, Default)]
pub(super) struct Exits {
    pub(super) can_break: bool,
    pub(super) can_continue: bool,
    pub(super) result: Option<Return>,
}

/// The control flow around the statement being generated.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    /// Loop nesting depth.
    pub(super) loops: usize,
    /// Whether a single invocation may `continue` or `break` here: the loop or `switch` that it leaves has no barriers. Jumps of the whole
    /// workgroup are in `exits`.
    pub(super) can_continue: bool,
    pub(super) can_break: bool,
    /// Whether `return` is allowed here, and of which type.
    pub(super) result: Option<Option<Type>>,
    /// Maximum number of times that the statement runs per invocation.
    pub(super) rounds: usize,
    /// Nesting depth of the current function among functions with barriers, counted from the kernel.
    pub(super) level: usize,
    /// The jumps that a whole workgroup may take from here.
    pub(super) exits: Exits,
}

/// A program being generated.
pub(super) struct Generator {
    pub(super) rng: Rng,
    pub(super) has_f16: bool,
    /// Directives for [`Case::parse`](super::Case::parse), which begin with `//:`.
    pub(super) header: Vec<String>,
    /// Module-scope declarations.
    pub(super) items: Vec<String>,
    /// Lines of functions and of the kernel, one statement each.
    pub(super) lines: Vec<String>,
    /// Structs that buffers can hold, and those that only variables can hold.
    pub(super) structs: Vec<Type>,
    pub(super) local_structs: Vec<Type>,
    pub(super) functions: Vec<Function>,
    /// Functions with barriers.
    pub(super) barrier_functions: Vec<BarrierFunction>,
    /// Greatest nesting depth of the functions with barriers that the current function calls.
    pub(super) height: usize,
    /// Variables in scope. The first `module_variables` are those of the module.
    pub(super) variables: Vec<Variable>,
    pub(super) module_variables: usize,
    /// Emitted functions that bring floats into range, as `(f32, width, small)`.
    pub(super) quantizers: BTreeSet<(bool, usize, bool)>,
    pub(super) context: Context,
    /// The cost of a run of the current function so far.
    pub(super) cost: usize,
    /// Bytes of workgroup memory used so far.
    pub(super) shared_bytes: usize,
    /// Invocations per workgroup.
    pub(super) size: usize,
    pub(super) has_subgroups: bool,
    /// Whether functions take pointers to parts of variables.
    pub(super) gives_parts: bool,
    pub(super) next_name: usize,
    pub(super) next_binding: usize,
}

/// Maximum statements that an invocation runs.
pub(super) const MAX_COST: usize = 3000;

impl Generator {
    pub(super) fn new(seed: u64, has_f16: bool) -> Self {
        Self {
            rng: Rng::new(seed),
            has_f16,
            header: Vec::new(),
            items: Vec::new(),
            lines: Vec::new(),
            structs: Vec::new(),
            local_structs: Vec::new(),
            functions: Vec::new(),
            barrier_functions: Vec::new(),
            height: 0,
            variables: Vec::new(),
            module_variables: 0,
            quantizers: BTreeSet::new(),
            context: Context { rounds: 1, ..Context::default() },
            cost: 0,
            shared_bytes: 0,
            size: 1,
            has_subgroups: false,
            gives_parts: false,
            next_name: 0,
            next_binding: 0,
        }
    }

    /// Returns true with a probability of `percent`.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.rng.below(100) < percent
    }

    pub(super) fn choose<T: Clone>(&mut self, choices: &[T]) -> T {
        self.rng.pick(choices).clone()
    }

    /// Returns a new name. Some prefixes have a meaning: `k` is a loop counter, `at` and `gat` are indices, `same` is a uniform variable,
    /// `v` is a result; see `is_result` in `program`.
    pub(super) fn name(&mut self, prefix: &str) -> String {
        self.next_name += 1;
        format!("{prefix}{}", self.next_name)
    }

    /// Appends a line, and adds the number of times that it runs to the cost.
    pub(super) fn line(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
        self.cost += self.context.rounds;
    }

    /// Generates the lines of `body` in braces. The variables of `with` are in scope; those that `body` declares go out of scope at
    /// the end.
    pub(super) fn block(&mut self, head: &str, with: &[Variable], body: impl FnOnce(&mut Self)) {
        let (scope, outer) = (self.variables.len(), self.context.clone());
        self.variables.extend_from_slice(with);
        self.line(format!("{head} {{").trim_start());
        body(self);
        self.lines.push("}".to_string());
        self.variables.truncate(scope);
        self.context = outer;
    }

    pub(super) fn declare(&mut self, name: &str, ty: Type, access: Access) {
        self.variables.push(Variable { name: name.to_string(), ty, access, is_approximate: false, is_uniform: false });
    }

    /// Declares a variable that is uniform in a workgroup.
    pub(super) fn declare_uniform(&mut self, name: &str, ty: &Type) {
        self.variables.push(Variable::uniform(name, ty));
    }

    /// Returns a random number type.
    pub(super) fn number(&mut self) -> Scalar {
        let scalar =
            self.choose(&[Scalar::I32, Scalar::I32, Scalar::U32, Scalar::U32, Scalar::F32, Scalar::F32, Scalar::F16]);
        if scalar == Scalar::F16 && !self.has_f16 { Scalar::F32 } else { scalar }
    }

    fn width(&mut self) -> usize {
        self.choose(&[1, 1, 1, 2, 3, 4])
    }

    fn float_type(&mut self) -> Scalar {
        if self.has_f16 && self.chance(40) { Scalar::F16 } else { Scalar::F32 }
    }

    /// Returns a random scalar or vector type that buffers can hold.
    pub(super) fn plain_type(&mut self) -> Type {
        let (scalar, width) = (self.number(), self.width());
        Type::wide(scalar, width)
    }

    /// Returns a random type that buffers can hold, nested up to `depth` levels.
    pub(super) fn shared_type(&mut self, depth: usize) -> Type {
        match self.rng.below(10) {
            0 => {
                let (scalar, columns, rows) = (self.float_type(), 2 + self.rng.below(3), 2 + self.rng.below(3));
                Type::Matrix(scalar, columns, rows)
            }
            1 | 2 if depth > 0 => {
                let (of, len) = (self.shared_type(depth - 1), 2 + self.rng.below(4));
                Type::array(of, len)
            }
            3 | 4 if depth > 0 && !self.structs.is_empty() => {
                let structs = self.structs.clone();
                self.choose(&structs)
            }
            _ => self.plain_type(),
        }
    }

    /// Returns a random type for a function variable.
    pub(super) fn any_type(&mut self) -> Type {
        match self.rng.below(20) {
            0..2 => Type::wide(Scalar::Bool, self.width()),
            2 => Type::array(Type::wide(Scalar::Bool, self.width()), 2 + self.rng.below(4)),
            3 if !self.local_structs.is_empty() => {
                let structs = self.local_structs.clone();
                self.choose(&structs)
            }
            4 => self.shared_type(2),
            _ => self.shared_type(1),
        }
    }

    /// Returns a part of a variable that has the wanted type, and whether it is part of a matrix. Indices are arbitrary expressions
    /// if there is depth left, and may be out of bounds. If `is_addressed`, the part has an address.
    pub(super) fn part(
        &mut self,
        depth: usize,
        wanted: &Type,
        is_addressed: bool,
        fits: impl Fn(&Variable) -> bool,
    ) -> Option<(String, bool)> {
        let fitting: Vec<usize> = (self.variables.iter().enumerate())
            .filter(|(_, variable)| fits(variable) && variable.ty.contains(wanted, is_addressed))
            .map(|(index, _)| index)
            .collect();
        if fitting.is_empty() {
            return None;
        }
        // Prefers recent variables half of the time, so that statements depend on each other.
        let recent = &fitting[fitting.len().saturating_sub(4)..];
        let index = if self.chance(50) { self.choose(recent) } else { self.choose(&fitting) };
        let Variable { name, ty, .. } = self.variables[index].clone();
        Some(self.descend(name, ty, depth, wanted, is_addressed))
    }

    /// Returns the path from a value of type `ty` to a part of the wanted type, and whether the part is in a matrix.
    pub(super) fn descend(
        &mut self,
        path: String,
        ty: Type,
        depth: usize,
        wanted: &Type,
        is_addressed: bool,
    ) -> (String, bool) {
        let (mut path, mut ty, mut in_matrix) = (path, ty, false);
        while ty != *wanted {
            // Parts of a pointee can be accessed without `*`.
            if self.chance(30)
                && let Some(pointer) = path.strip_prefix("(*").and_then(|path| path.strip_suffix(')'))
            {
                path = pointer.to_string();
            }
            in_matrix |= matches!(ty, Type::Matrix(..));
            let projections: Vec<_> = ty.projections_to(wanted, is_addressed).collect();
            let (projection, inner) = self.choose(&projections);
            match projection {
                Projection::Member(number) => path = format!("{path}.m{number}"),
                Projection::Index(len) if matches!(ty, Type::Vector(..)) && self.chance(50) => {
                    path = format!("{path}.{}", ["x", "y", "z", "w"][self.rng.below(len)]);
                }
                Projection::Index(len) => path = format!("{path}[{}]", self.index(len, depth)),
            }
            ty = inner;
        }
        in_matrix |= matches!(ty, Type::Matrix(..));
        (path, in_matrix)
    }

    /// Returns an index below a length, sometimes out of bounds. Both devices clamp it to the last element, for reads and writes.
    pub(super) fn index(&mut self, len: usize, depth: usize) -> String {
        if depth == 0 || self.chance(25) {
            return self.rng.below(len).to_string();
        }
        if self.chance(25)
            && let Some(index) = self.counted_index(len)
        {
            return index;
        }
        let scalar = self.choose(&[Scalar::I32, Scalar::U32]);
        let index = self.dynamic(&Type::Scalar(scalar), depth - 1);
        match (self.rng.below(10), scalar) {
            // Unrestricted: often out of bounds.
            (0..2, _) => index,
            (2, Scalar::I32) => format!("clamp({index}, 0i, {}i)", len - 1),
            (2, _) => format!("min({index}, {}u)", len - 1),
            // The greatest power of two that is at most `len`, less 1. A remainder would be negative for a negative index.
            (_, Scalar::I32) => format!("({index} & {})", (len + 1).next_power_of_two() / 2 - 1),
            _ => format!("({index} % {len}u)"),
        }
    }
}
