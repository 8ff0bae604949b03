//! Values carried across other statements: indices in variables, in bounds or not, and pointers to elements.

use super::bounds::Sequence;
use super::scope::{Access, Generator, Variable};
use super::types::{Scalar, Type};
use Scalar::U32;

impl Generator {
    /// Returns the names of variables that hold indices: those of the function (`at`), and the private one that all functions access (`gat`).
    fn index_variables(&self) -> Vec<String> {
        let holds_index = |variable: &&Variable| {
            let is_named = variable.name.starts_with("at") || variable.name.starts_with("gat");
            is_named && variable.ty == Type::Scalar(U32)
        };
        self.variables.iter().filter(holds_index).map(|variable| variable.name.clone()).collect()
    }

    /// Returns an index that is mostly below `len`.
    fn index_for(&mut self, len: usize) -> String {
        let value = self.dynamic(&Type::Scalar(U32), 2);
        match self.rng.below(8) {
            0 => value,
            1 => format!("min({value}, {}u)", len - 1),
            // Up to three elements beyond the last.
            2 => format!("({value} % {}u)", len + 1 + self.rng.below(3)),
            3 | 4 => format!("({value} & {}u)", (len + 1).next_power_of_two() / 2 - 1),
            _ => format!("({value} % {len}u)"),
        }
    }

    /// Declares a variable that holds an index.
    pub(super) fn new_place(&mut self) {
        let (name, value) = (self.name("at"), self.index_for_any());
        self.line(format!("var {name} = {value};"));
        self.declare(&name, Type::Scalar(U32), Access::Read);
    }

    /// Writes an index to a variable.
    pub(super) fn set_place(&mut self) {
        let places = self.index_variables();
        if places.is_empty() {
            return self.new_place();
        }
        let (name, value) = (self.choose(&places), self.index_for_any());
        self.line(format!("{name} = {value};"));
    }

    /// Returns an index that is mostly in bounds of some sequence in scope.
    fn index_for_any(&mut self) -> String {
        let sequences = self.sequences();
        let len = if sequences.is_empty() { 4 } else { self.choose(&sequences).len };
        self.index_for(len)
    }

    /// Accesses elements at an index in a variable, with or without a bounds check.
    pub(super) fn use_place(&mut self) {
        let (places, sequences) = (self.index_variables(), self.sequences());
        if places.is_empty() || sequences.is_empty() {
            return self.assignment();
        }
        // Prefers writable sequences half of the time.
        let written: Vec<Sequence> = sequences.iter().filter(|sequence| sequence.can_write).cloned().collect();
        let sequence =
            if !written.is_empty() && self.chance(50) { self.choose(&written) } else { self.choose(&sequences) };
        let place = self.choose(&places);
        if self.chance(50) {
            return self.block("", &[], |this| this.access_elements(&sequence, &place, U32));
        }
        let limit = if self.chance(80) { sequence.len } else { sequence.len + 1 };
        self.block(&format!("if ({place} < {limit}u)"), &[], |this| this.access_elements(&sequence, &place, U32));
    }

    /// Declares a pointer to an element of an array. The pointer stays in scope, so that later statements use it.
    pub(super) fn hold(&mut self) {
        let mut arrays = self.sequences();
        arrays.retain(|sequence| sequence.can_write && sequence.is_array);
        if arrays.is_empty() || self.chance(25) {
            let (element, len, name) = (self.plain_type(), 2 + self.rng.below(7), self.name("v"));
            let ty = Type::array(element, len);
            self.line(format!("var {name}: {ty};"));
            self.declare(&name, ty, Access::Write);
            arrays = self.sequences();
            arrays.retain(|sequence| sequence.path == name);
        }
        let array = self.choose(&arrays);
        let (name, place) = (self.name("p"), self.index_for(array.len));
        self.line(format!("let {name} = &{}[{place}];", array.path));
        self.declare(&format!("(*{name})"), array.element, Access::Write);
    }
}
