//! What a program in the making knows: its variables, the functions so far, and the lines.

use super::together::Together;
use super::types::{Projection, Scalar, Type};
use crate::Rng;
use std::collections::BTreeSet;
use std::fmt;

/// What may be done with a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The compiler knows its value: it is no operand of arithmetic, because what overflows there is an error.
    Constant,
    Read,
    Write,
    /// As `Write`, and pointers to it can be given to functions, which do not know it by name.
    Given(Space),
}

impl Access {
    pub(super) fn can_write(self) -> bool {
        matches!(self, Self::Write | Self::Given(_))
    }
}

/// Where a variable lives that functions get pointers to. naga takes no others.
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

/// A variable that is in scope.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) access: Access,
    /// Whether its value may differ a little between devices. It then decides nothing.
    pub(super) is_approximate: bool,
    /// Whether all invocations of a workgroup have the same in it.
    pub(super) is_common: bool,
}

impl Variable {
    /// One that can be read.
    pub(super) fn read(name: &str, ty: &Type) -> Self {
        Self { name: name.to_string(), ty: ty.clone(), access: Access::Read, is_approximate: false, is_common: false }
    }

    /// One that can be read, and is the same for all of a workgroup.
    pub(super) fn common(name: &str, ty: &Type) -> Self {
        Self { is_common: true, ..Self::read(name, ty) }
    }
}

/// A function that can be called.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) name: String,
    /// The types of its parameters, and of those that are pointers the space.
    pub(super) parameters: Vec<(Type, Option<Space>)>,
    pub(super) result: Option<Type>,
    /// About how many statements a call runs.
    pub(super) cost: usize,
}

/// How a function ends that all of a workgroup leave at once.
#[derive(Clone, Debug)]
pub(super) enum Return {
    Nothing,
    /// With a value of each invocation.
    Own(Type),
    /// With one that all have.
    Common(Type),
}

/// Where a whole workgroup may go at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Exits {
    pub(super) can_break: bool,
    pub(super) can_continue: bool,
    pub(super) result: Option<Return>,
}

/// The control flow around the statement that is being generated.
#[derive(Clone, Debug, Default)]
pub(super) struct Context {
    /// How many loops.
    pub(super) loops: usize,
    /// Whether `break` and `continue` belong to a loop or to a `switch` in one.
    pub(super) can_continue: bool,
    pub(super) can_break: bool,
    /// Whether `return` may come here, and with what.
    pub(super) result: Option<Option<Type>>,
    /// How often it runs, at most.
    pub(super) rounds: usize,
    /// How many functions around it are such in which invocations wait for each other.
    pub(super) level: usize,
    /// Where all may go from here, if the workgroup decides so.
    pub(super) exits: Exits,
}

/// A program in the making.
pub(super) struct Generator {
    pub(super) rng: Rng,
    pub(super) has_f16: bool,
    /// Lines of `//:`.
    pub(super) header: Vec<String>,
    /// Declarations outside of functions.
    pub(super) items: Vec<String>,
    pub(super) lines: Vec<String>,
    /// Structs that buffers can hold, and those that only variables can.
    pub(super) structs: Vec<Type>,
    pub(super) local_structs: Vec<Type>,
    pub(super) functions: Vec<Function>,
    /// Functions in which invocations wait for each other.
    pub(super) together: Vec<Together>,
    /// Of the function in the making: how deep those are inside of each other that it calls.
    pub(super) height: usize,
    /// Variables in scope, those of the module first, which are as many as said.
    pub(super) variables: Vec<Variable>,
    pub(super) module_variables: usize,
    /// Functions of the text that bring floats into range, as `(f32, width, small)`.
    pub(super) quantizers: BTreeSet<(bool, usize, bool)>,
    pub(super) context: Context,
    /// What a run of the function in the making costs so far.
    pub(super) cost: usize,
    /// What workgroups share so far.
    pub(super) shared_bytes: usize,
    /// Invocations of a workgroup.
    pub(super) size: usize,
    pub(super) has_subgroups: bool,
    /// Whether functions get pointers to parts of variables.
    pub(super) gives_parts: bool,
    pub(super) next_name: usize,
    pub(super) next_binding: usize,
}

/// The most statements that an invocation runs.
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
            together: Vec::new(),
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

    /// True `percent` times of a hundred.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.rng.below(100) < percent
    }

    pub(super) fn choose<T: Clone>(&mut self, choices: &[T]) -> T {
        self.rng.pick(choices).clone()
    }

    pub(super) fn name(&mut self, prefix: &str) -> String {
        self.next_name += 1;
        format!("{prefix}{}", self.next_name)
    }

    pub(super) fn line(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
        self.cost += self.context.rounds;
    }

    /// The lines of `body` in braces, and the variables that it declares gone at the end. In scope are those of `with`
    /// too.
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
        self.variables.push(Variable { name: name.to_string(), ty, access, is_approximate: false, is_common: false });
    }

    /// Declares a name for what is the same for all of a workgroup.
    pub(super) fn declare_common(&mut self, name: &str, ty: &Type) {
        self.variables.push(Variable::common(name, ty));
    }

    /// A number type at random.
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

    /// A type at random: numbers and vectors that buffers can hold.
    pub(super) fn plain_type(&mut self) -> Type {
        let (scalar, width) = (self.number(), self.width());
        Type::wide(scalar, width)
    }

    /// Any type at random that buffers can hold, up to some levels deep.
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

    /// Any type at random for a variable of a function.
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

    /// A part of a variable that has the wanted type, and whether it is a part of a matrix. Indices are any expressions
    /// where there is depth left for one, and may be out of bounds. The part has an address where that is asked for.
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
        // The newest as often as all others: programs in which things depend on each other.
        let recent = &fitting[fitting.len().saturating_sub(4)..];
        let index = if self.chance(50) { self.choose(recent) } else { self.choose(&fitting) };
        let Variable { name, ty, .. } = self.variables[index].clone();
        Some(self.descend(name, ty, depth, wanted, is_addressed))
    }

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
            // What a pointer leads to has its parts without `*` as well.
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

    /// An index below a length; beyond it at times. Both devices then take the last element, to read and to write.
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
            (0..2, _) => index,
            (2, Scalar::I32) => format!("clamp({index}, 0i, {}i)", len - 1),
            (2, _) => format!("min({index}, {}u)", len - 1),
            (_, Scalar::I32) => format!("({index} & {})", (len + 1).next_power_of_two() / 2 - 1),
            _ => format!("({index} % {len}u)"),
        }
    }
}
