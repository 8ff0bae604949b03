//! What outlives a region: values that were computed, and variables.

use super::lanes::{Lanes, Number};
use super::pointer::{Base, Index, Length, Pointer};
use super::{Active, Emitter, Operand, Result};
use crate::Refusal;
use crate::analysis::{ActivationId, Variable};
use crate::regions::Place;
use crate::types::{Kind, leaf_count};
use cranelift_codegen::ir::{InstBuilder, types};
use naga::{Expression, Handle, Span};

/// How a number is kept between regions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Same,
    Steps(i32),
    Each,
}

/// Where an operand is kept between regions.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) numbers: Vec<(Kind, Form, u32)>,
    pub(crate) pointer: Option<Pointer>,
    /// Whether the operand is what the pointer leads to.
    pub(crate) is_stored: bool,
}

impl Emitter<'_, '_> {
    /// Takes what earlier regions left: variables, and what was computed.
    pub(crate) fn fetch(&mut self, needs: &std::collections::BTreeSet<Place>) -> Result<()> {
        self.forget_traces();
        let mut variables: Vec<Variable> = (self.homes.keys().copied())
            .filter(|variable| match variable {
                Variable::Private(_) => true,
                Variable::Local(id, _) | Variable::Value(id, _) => self.chain.contains(id),
            })
            .collect();
        variables.sort();
        for variable in variables {
            let home = self.homes[&variable].clone();
            let Some(word) = home.word else { continue };
            // Each region does so: many variables and many barriers are more than either.
            self.spend(home.registers.len(), self.here)?;
            for (place, register) in home.registers.iter().enumerate() {
                let number = self.load_word(word + place as u32, home.kinds[place], home.varies);
                self.set_register(*register, home.varies, number);
            }
        }
        self.fetch_values(needs)
    }

    /// Takes what earlier regions computed.
    pub(crate) fn fetch_values(&mut self, needs: &std::collections::BTreeSet<Place>) -> Result<()> {
        for (id, expression) in needs {
            let kept = self.kept.get(&(*id, *expression)).cloned();
            let kept =
                kept.ok_or_else(|| Refusal::new(self.span(*id, *expression), "expected a kept value, found none"))?;
            let load = |e: &mut Self, (kind, form, word): &(Kind, Form, u32)| match form {
                Form::Same => e.load_word(*word, *kind, false),
                Form::Each => e.load_word(*word, *kind, true),
                Form::Steps(step) => {
                    let base = e.load_word(*word, *kind, false);
                    let base = e.lane(base, 0);
                    Number { kind: *kind, lanes: Lanes::Steps(base, *step) }
                }
            };
            let mut numbers: Vec<Number> = kept.numbers.iter().map(|number| load(self, number)).collect();
            let operand = match kept.pointer {
                None => Operand::Numbers(numbers),
                Some(mut pointer) => {
                    if pointer.moved.is_some() {
                        let moved = numbers.remove(0);
                        pointer.moved = Some(self.within(&pointer, moved, self.span(*id, *expression))?);
                    }
                    if let Some(index) = &mut pointer.index {
                        *index = Index { number: numbers.remove(0), is_proven: false, ..*index };
                    }
                    if kept.is_stored { Operand::Stored(pointer) } else { Operand::Pointer(pointer) }
                }
            };
            self.known[*id].expressions.insert(*expression, operand);
        }
        Ok(())
    }

    /// An offset that comes out of memory, as far as it leads at most: what keeps accesses inside is never a number that somebody wrote.
    fn within(&mut self, pointer: &Pointer, moved: Number, span: Span) -> Result<Number> {
        let size = match pointer.base {
            Base::Variable(_) => leaf_count(self.module, &pointer.inner),
            _ => pointer.inner.try_size(self.module.to_ctx()),
        };
        // Of the last element, where an index follows; the offset is that of a member in it, too.
        let last = match pointer.index.map(|index| (index.length, index.stride)) {
            Some((Length::Known(length), stride)) => length.saturating_sub(1).checked_mul(stride),
            Some((Length::Bound { .. }, _)) => None,
            None => Some(0),
        };
        let end = size.zip(last).and_then(|(size, last)| size.checked_add(last)?.checked_add(pointer.offset));
        let end = end.ok_or_else(|| Refusal::new(span, "expected a pointer into what has a known size"))?;
        let all = match pointer.base {
            Base::Variable(variable) => self.i32(self.homes[&variable].kinds.len() as i32),
            Base::Shared => self.i32(self.shared_bytes.cast_signed()),
            Base::Bound(place) => {
                let (_, bytes) = self.bound(place);
                self.b.ins().ireduce(types::I32, bytes)
            }
        };
        let end = self.i32(end.cast_signed());
        let all = self.b.ins().umax(all, end);
        let most = self.b.ins().isub(all, end);
        Ok(self.map2(Kind::U32, moved, Number::same(Kind::U32, most), |e, x, y| e.b.ins().umin(x, y)))
    }

    /// Puts variables that changed back to where the next region finds them.
    pub(crate) fn save_written(&mut self) {
        for variable in std::mem::take(&mut self.written) {
            let home = self.homes[&variable].clone();
            let Some(word) = home.word else { continue };
            self.cost += home.registers.len() as u64;
            for (place, register) in home.registers.iter().enumerate() {
                let number = self.get_register(*register, home.varies, home.kinds[place]);
                self.store_word(word + place as u32, number, home.varies);
            }
        }
    }

    /// Makes an operand known, and keeps it where another region needs it or the work-group decides by it.
    pub(crate) fn define(&mut self, id: ActivationId, expression: Handle<Expression>, operand: Operand) -> Result<()> {
        if let Operand::Numbers(numbers) = &operand {
            self.note_decision(id, expression, numbers[0]);
        }
        if self.kept_places.contains(&(id, expression)) {
            self.keep((id, expression), &operand)?;
        }
        self.known[id].expressions.insert(expression, operand);
        Ok(())
    }

    /// Writes down what the work-group goes by, where it does so by this.
    pub(crate) fn note_decision(&mut self, id: ActivationId, expression: Handle<Expression>, number: Number) {
        if let Some(at) = self.decisions.get(&(id, expression)).copied() {
            self.check_decision(number, self.span(id, expression));
            self.check_way(id, expression);
            self.decide(at, number);
        }
        if self.conditions.contains(&(id, expression)) {
            self.check_way(id, expression);
        }
    }

    fn keep(&mut self, place: Place, operand: &Operand) -> Result<()> {
        let (numbers, pointer) = match operand {
            Operand::Numbers(numbers) => (numbers.clone(), None),
            Operand::Pointer(pointer) | Operand::Stored(pointer) => {
                let numbers = pointer.moved.into_iter().chain(pointer.index.map(|index| index.number)).collect();
                (numbers, Some(pointer.clone()))
            }
        };
        let first = self.reserve(numbers.len(), self.span(place.0, place.1))?;
        let mut kept = Vec::with_capacity(numbers.len());
        for (number, word) in numbers.into_iter().zip(first..) {
            let form = match number.lanes {
                Lanes::Same(_) => Form::Same,
                Lanes::Steps(_, step) => Form::Steps(step),
                Lanes::Each(_) => Form::Each,
            };
            let number = match number.lanes {
                Lanes::Steps(base, _) => Number::same(number.kind, base),
                _ => number,
            };
            self.store_word(word, number, matches!(form, Form::Each));
            kept.push((number.kind, form, word));
        }
        let is_stored = matches!(operand, Operand::Stored(_));
        self.kept.insert(place, Kept { numbers: kept, pointer, is_stored });
        Ok(())
    }

    /// Keeps the result of a function with barriers; false where it has none.
    pub(crate) fn keep_result(&mut self, id: ActivationId, numbers: &[Number]) -> bool {
        let Some(stepping) = self.stepping.get(&id).cloned() else { return false };
        for ((kind, varies, word), number) in stepping.result.iter().flatten().zip(numbers) {
            let mut number = *number;
            if let (true, Active::Some(_)) = (*varies, self.active) {
                let mask = self.active_mask();
                let old = self.load_word(*word, *kind, true);
                number = self.select(Number::each(Kind::Bool, mask), number, old);
            }
            self.store_word(*word, number, *varies);
        }
        true
    }
}
