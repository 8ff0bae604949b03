//! Array accesses that a compiler could prove in bounds, or nearly: in loops that count up to about the length, and after comparisons
//! with about the length.

use super::program::INPUT_LEN;
use super::scope::{Access, Generator, Variable};
use super::types::{Scalar, Type};
use Scalar::{I32, U32};

/// An array or vector.
#[derive(Clone)]
pub(super) struct Sequence {
    pub(super) path: String,
    pub(super) element: Type,
    pub(super) len: usize,
    pub(super) can_write: bool,
    /// Whether it is an array. Components of a vector have no address.
    pub(super) is_array: bool,
}

impl Generator {
    /// Returns the counter of a loop as an index, or an expression close to it.
    pub(super) fn counted_index(&mut self, len: usize) -> Option<String> {
        let counters: Vec<(String, Scalar)> = (self.variables.iter())
            .filter_map(|variable| match variable.ty {
                Type::Scalar(scalar) if variable.name.starts_with('k') => Some((variable.name.clone(), scalar)),
                _ => None,
            })
            .collect();
        if counters.is_empty() {
            return None;
        }
        let (counter, scalar) = self.choose(&counters);
        let near = self.near(&counter, scalar, len);
        let (other, other_scalar) = self.choose(&counters);
        if other != counter && other_scalar == scalar && self.chance(40) {
            return Some(format!("({near} * {}{} + {other})", 1 + self.rng.below(3), suffix(scalar)));
        }
        Some(near)
    }

    /// Returns an index that is derived from another one.
    fn near(&mut self, index: &str, scalar: Scalar, len: usize) -> String {
        let s = suffix(scalar);
        let (last, small) = (len - 1, 1 + self.rng.below(3));
        match self.rng.below(14) {
            0..5 => index.to_string(),
            5 => format!("({index} + {small}{s})"),
            6 => format!("({index} - {small}{s})"),
            7 => format!("({last}{s} - {index})"),
            8 => format!("({index} * {}{s})", small + 1),
            9 => format!("({index} / {}{s})", small + 1),
            10 => format!("({index} >> {small}u)"),
            11 => format!("({index} ^ {small}{s})"),
            12 => format!("min({index}, {last}{s})"),
            _ => format!("({index} % {}{s})", len + usize::from(self.chance(30))),
        }
    }

    pub(super) fn sequences(&self) -> Vec<Sequence> {
        let mut found = Vec::new();
        for variable in &self.variables {
            if variable.is_approximate || variable.access == Access::Constant {
                continue;
            }
            let can_write = variable.access.can_write();
            let mut add = |path: String, ty: &Type| match ty {
                Type::Array(of, len) => {
                    let element = (**of).clone();
                    found.push(Sequence { path, element, len: *len, can_write, is_array: true });
                }
                Type::Vector(scalar, len) => {
                    let element = Type::Scalar(*scalar);
                    found.push(Sequence { path, element, len: *len, can_write, is_array: false });
                }
                _ => {}
            };
            add(variable.name.clone(), &variable.ty);
            if let Type::Struct(of) = &variable.ty {
                (of.members.iter().enumerate()).for_each(|(at, ty)| add(format!("{}.m{at}", variable.name), ty));
            }
        }
        found
    }

    /// Returns a uniform number that is about the length.
    fn about(&mut self, sequence: &Sequence) -> String {
        let len = sequence.len;
        match self.rng.below(9) {
            0..4 => format!("{len}u"),
            4 => format!("{}u", len + 1 + self.rng.below(2)),
            5 => format!("{}u", len - 1),
            6 => format!("min(params.m1, {len}u)"),
            7 => format!("(params.m1 % {}u)", len + 2),
            _ if sequence.path.starts_with("in_") && len == INPUT_LEN => format!("arrayLength(&{})", sequence.path),
            _ => format!("{len}u"),
        }
    }

    /// Generates a loop over the end of an array, or a little further.
    pub(super) fn counted_loop(&mut self, depth: usize) {
        let sequences = self.sequences();
        if sequences.is_empty() {
            return self.assignment();
        }
        let sequence = self.choose(&sequences);
        let (name, limit, scalar) = (self.name("k"), self.about(&sequence), self.choose(&[I32, U32, U32]));
        let first = sequence.len.saturating_sub(1 + self.rng.below(5));
        let step = 1 + self.rng.below(5) / 4;
        let limit = if scalar == I32 { format!("i32({limit})") } else { limit };
        let s = suffix(scalar);
        let head = match self.rng.below(6) {
            0 => format!("for (var {name} = {first}{s}; {name} <= {limit}; {name} += {step}{s})"),
            1 => format!("for (var {name} = {limit}; {name} > {first}{s}; {name}--)"),
            2 if scalar == I32 => format!("for (var {name} = {limit} - 1i; {name} >= {first}i; {name} -= {step}i)"),
            3 => format!("for (var {name} = {first}{s}; !({name} >= {limit}); {name} += {step}{s})"),
            _ => format!("for (var {name} = {first}{s}; {name} < {limit}; {name} += {step}{s})"),
        };
        let counter = Variable::read(&name, &Type::Scalar(scalar));
        self.block(&head, &[counter], |this| {
            this.context.loops += 1;
            this.context.rounds *= sequence.len + 3 - first;
            (this.context.can_break, this.context.can_continue) = (true, true);
            this.access_elements(&sequence, &name, scalar);
            this.statements(1, depth);
        });
    }

    /// Generates an access after a comparison of its index.
    pub(super) fn guarded(&mut self, depth: usize) {
        let sequences = self.sequences();
        if sequences.is_empty() {
            return self.assignment();
        }
        let sequence = self.choose(&sequences);
        let (name, limit, scalar) = (self.name("at"), self.about(&sequence), self.choose(&[I32, U32]));
        let value = self.dynamic(&Type::Scalar(scalar), 2);
        let value = match self.rng.below(4) {
            0 => value,
            1 => format!("{scalar}({})", self.same_for_all()),
            _ if scalar == I32 => format!("({value} % {}i)", sequence.len + 2),
            _ => format!("({value} % {}u)", sequence.len + 2),
        };
        let limit = if scalar == I32 { format!("i32({limit})") } else { limit };
        let s = suffix(scalar);
        let condition = match (self.rng.below(6), scalar) {
            (0, _) => format!("{name} <= {limit}"),
            (1, _) => format!("!({name} >= {limit})"),
            (2, _) => format!("({name} < {limit}) && {}", self.dynamic(&Type::Scalar(Scalar::Bool), 1)),
            (3, I32) => format!("{name} < {limit}"),
            (_, I32) => format!("({name} >= 0i) && ({name} < {limit})"),
            _ => format!("{name} < {limit}"),
        };
        self.block("", &[], |this| {
            this.line(format!("var {name} = {value};"));
            this.declare(&name, Type::Scalar(scalar), Access::Read);
            if let (Some(jump), true) = (this.context.can_break.then_some("break;"), this.chance(50)) {
                // Invocations with an index out of bounds leave.
                let jump = if this.context.can_continue && this.chance(50) { "continue;" } else { jump };
                this.block(&format!("if (!({condition}))"), &[], |this| this.line(jump));
                this.access_elements(&sequence, &name, scalar);
                return this.statements(1, depth);
            }
            this.block(&format!("if ({condition})"), &[], |this| {
                if this.chance(20) {
                    this.line(format!("{name} += 1{s};"));
                }
                this.access_elements(&sequence, &name, scalar);
                this.statements(1, depth);
            });
            if this.chance(30) {
                this.lines.pop();
                this.block("} else", &[], |this| this.access_elements(&sequence, &name, scalar));
            }
        });
    }

    /// Reads and writes elements at an index and near it.
    pub(super) fn access_elements(&mut self, sequence: &Sequence, index: &str, scalar: Scalar) {
        let Sequence { path, element, len, can_write, .. } = sequence;
        if *can_write && self.chance(60) {
            let (place, value) = (self.near(index, scalar, *len), self.stored(element, 1));
            self.line(format!("{path}[{place}] = {value};"));
        }
        if !can_write || self.chance(50) {
            let (name, place) = (self.name("v"), self.near(index, scalar, *len));
            self.line(format!("let {name} = {path}[{place}];"));
            self.declare(&name, element.clone(), Access::Read);
        }
        // Uses the element before it goes out of scope.
        self.assignment();
    }
}

fn suffix(scalar: Scalar) -> &'static str {
    if scalar == I32 { "i" } else { "u" }
}
