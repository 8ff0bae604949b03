//! View ops on tensors.

use crate::Array;
use serde_json::Value;

/// A view op, named like the tensor method.
#[derive(Clone, Debug, PartialEq)]
pub enum View {
    /// Swaps two axes.
    Transpose(usize, usize),
    /// Axis `i` is axis `axes[i]` of the input.
    Permute(Vec<usize>),
    /// Along an axis, every `step`-th element from `start` to `end`.
    Slice {
        /// The axis.
        axis: usize,
        /// The first element.
        start: usize,
        /// The end, exclusive.
        end: usize,
        /// The distance between elements.
        step: usize,
    },
    /// Reverses an axis.
    Flip(usize),
    /// Broadcasts to a shape.
    BroadcastTo(Vec<usize>),
    /// Keeps the elements in order, with another shape.
    Reshape(Vec<usize>),
    /// Removes an axis of length 1.
    Squeeze(usize),
    /// Inserts an axis of length 1.
    Unsqueeze(usize),
}

impl View {
    /// Parses a view as the fixtures write it: `["slice", 1, 0, 3]`. Returns `None` for anything else.
    pub fn from_json(value: &Value) -> Option<Self> {
        let parts = value.as_array()?;
        let name = parts.first()?.as_str()?;
        let number = |place: usize| parts.get(place)?.as_u64().map(|number| number as usize);
        let list = || -> Option<Vec<usize>> {
            parts.get(1)?.as_array()?.iter().map(|number| number.as_u64().map(|number| number as usize)).collect()
        };
        Some(match name {
            "transpose" => Self::Transpose(number(1)?, number(2)?),
            "permute" => Self::Permute(list()?),
            "slice" => Self::Slice { axis: number(1)?, start: number(2)?, end: number(3)?, step: 1 },
            "slice_step" => Self::Slice { axis: number(1)?, start: number(2)?, end: number(3)?, step: number(4)? },
            "flip" => Self::Flip(number(1)?),
            "broadcast_to" => Self::BroadcastTo(list()?),
            "reshape" => Self::Reshape(list()?),
            "squeeze" => Self::Squeeze(number(1)?),
            "unsqueeze" => Self::Unsqueeze(number(1)?),
            _ => return None,
        })
    }
}

impl Array {
    /// Applies a view.
    ///
    /// # Panics
    /// Panics if the array has no such view.
    #[must_use]
    pub fn view(&self, view: &View) -> Self {
        let shape = self.shape();
        match view {
            &View::Transpose(a, b) => {
                let mut axes: Vec<usize> = (0..shape.len()).collect();
                axes.swap(a, b);
                self.view(&View::Permute(axes))
            }
            View::Permute(axes) => {
                let lengths: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
                Self::from_fn(&lengths, |index| {
                    let mut from = vec![0; axes.len()];
                    axes.iter().zip(index).for_each(|(&axis, &place)| from[axis] = place);
                    self.at(&from)
                })
            }
            &View::Slice { axis, start, end, step } => {
                let length = end.saturating_sub(start).div_ceil(step);
                self.moved(axis, length, |place| start + place * step)
            }
            &View::Flip(axis) => self.moved(axis, shape[axis], |place| shape[axis] - 1 - place),
            View::BroadcastTo(lengths) => self.broadcast(lengths),
            View::Reshape(lengths) => Self::new(lengths, self.numbers().to_vec()),
            &View::Squeeze(axis) => {
                let mut lengths = shape.to_vec();
                assert_eq!(lengths.remove(axis), 1, "squeeze of {shape:?} at {axis}");
                Self::new(&lengths, self.numbers().to_vec())
            }
            &View::Unsqueeze(axis) => {
                let mut lengths = shape.to_vec();
                lengths.insert(axis, 1);
                Self::new(&lengths, self.numbers().to_vec())
            }
        }
    }

    /// Remaps indices along one axis.
    fn moved(&self, axis: usize, length: usize, place_of: impl Fn(usize) -> usize) -> Self {
        let mut lengths = self.shape().to_vec();
        lengths[axis] = length;
        Self::from_fn(&lengths, |index| {
            let mut from = index.to_vec();
            from[axis] = place_of(index[axis]);
            self.at(&from)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_lead_to_the_elements_that_they_say() {
        let array = Array::from_fn(&[2, 3], |index| (10 * index[0] + index[1]) as f64);
        let table: [(Value, &[usize], &[f64]); 8] = [
            (json!(["transpose", 0, 1]), &[3, 2], &[0.0, 10.0, 1.0, 11.0, 2.0, 12.0]),
            (json!(["permute", [1, 0]]), &[3, 2], &[0.0, 10.0, 1.0, 11.0, 2.0, 12.0]),
            (json!(["slice", 1, 1, 3]), &[2, 2], &[1.0, 2.0, 11.0, 12.0]),
            (json!(["slice_step", 1, 0, 3, 2]), &[2, 2], &[0.0, 2.0, 10.0, 12.0]),
            (json!(["flip", 0]), &[2, 3], &[10.0, 11.0, 12.0, 0.0, 1.0, 2.0]),
            (json!(["broadcast_to", [2, 2, 3]]), &[2, 2, 3], &[0., 1., 2., 10., 11., 12., 0., 1., 2., 10., 11., 12.]),
            (json!(["reshape", [6]]), &[6], &[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]),
            (json!(["unsqueeze", 1]), &[2, 1, 3], &[0.0, 1.0, 2.0, 10.0, 11.0, 12.0]),
        ];
        for (text, shape, numbers) in table {
            let seen = array.view(&View::from_json(&text).unwrap());
            assert_eq!((seen.shape(), seen.numbers()), (shape, numbers), "{text}");
        }
        for text in [json!([]), json!(["slice", 1]), json!(["spin", 1]), json!("flip"), json!(["permute", [-1]])] {
            assert_eq!(View::from_json(&text), None, "{text}");
        }
    }
}
