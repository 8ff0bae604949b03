//! The layouts that every op must support.

use crate::{Array, View};

/// A base array and the views that lead from it to the wanted array.
#[derive(Clone, Debug)]
pub struct LayoutCase {
    /// The name of the layout, for messages.
    pub name: &'static str,
    /// The array in memory. Elements that the views leave out are NaN, so that using them is noticed.
    pub base: Array,
    /// The views.
    pub views: Vec<View>,
}

/// Returns the same elements in every layout that their shape allows: contiguous, transposed, at an offset, stepped, reversed, all of
/// these at once, and broadcast if all rows are equal.
pub fn layouts(wanted: &Array) -> Vec<LayoutCase> {
    let shape = wanted.shape();
    let mut layouts = vec![LayoutCase { name: "contiguous", base: wanted.clone(), views: vec![] }];
    let Some(last) = shape.len().checked_sub(1) else { return layouts };
    let backwards: Vec<usize> = (0..shape.len()).rev().collect();
    let mut add = |name, base, views| layouts.push(LayoutCase { name, base, views });

    add("transposed", wanted.view(&View::Permute(backwards.clone())), vec![View::Permute(backwards.clone())]);
    let inner = View::Slice { axis: last, start: 3, end: 3 + shape[last], step: 1 };
    add("offset", spaced(wanted, last, 3, 1, 2), vec![inner]);
    for (name, axis) in [("stepped", last), ("stepped rows", 0)] {
        let every = View::Slice { axis, start: 1, end: 1 + 2 * shape[axis], step: 2 };
        add(name, spaced(wanted, axis, 1, 2, 0), vec![every]);
    }
    add("reversed", wanted.view(&View::Flip(last)), vec![View::Flip(last)]);
    let every = View::Slice { axis: 0, start: 1, end: 1 + 3 * shape[0], step: 3 };
    let base = spaced(&wanted.view(&View::Flip(0)), 0, 1, 3, 1).view(&View::Permute(backwards.clone()));
    add("transposed, stepped, reversed", base, vec![View::Permute(backwards), every, View::Flip(0)]);

    let first = wanted.view(&View::Slice { axis: 0, start: 0, end: shape[0].min(1), step: 1 });
    if shape[0] > 1 && first.broadcast(shape) == *wanted {
        add("broadcast", first, vec![View::BroadcastTo(shape.to_vec())]);
    }
    layouts
}

/// Places the elements along an axis at `start`, `start + step`, ..., with `after` more elements after the last, and NaN in between.
fn spaced(wanted: &Array, axis: usize, start: usize, step: usize, after: usize) -> Array {
    let mut lengths = wanted.shape().to_vec();
    lengths[axis] = start + step * lengths[axis] + after;
    Array::from_fn(&lengths, |index| {
        let mut from = index.to_vec();
        let Some(place) = index[axis].checked_sub(start) else { return f64::NAN };
        from[axis] = place / step;
        if place % step == 0 && from[axis] < wanted.shape()[axis] { wanted.at(&from) } else { f64::NAN }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_leads_to_the_elements_asked_for() {
        let shapes: [&[usize]; 7] = [&[], &[1], &[5], &[2, 3], &[0, 3], &[3, 0], &[2, 1, 3, 1, 2, 2]];
        for shape in shapes {
            let mut next = 0.0;
            let wanted = Array::from_fn(shape, |_| {
                next += 1.0;
                next
            });
            let layouts = layouts(&wanted);
            assert!(layouts.len() >= if shape.is_empty() { 1 } else { 7 }, "{shape:?}");
            for layout in layouts {
                let seen = layout.views.iter().fold(layout.base, |array, view| array.view(view));
                assert_eq!(seen, wanted, "{} of {shape:?}", layout.name);
            }
        }
        let rows = Array::from_fn(&[3, 2], |index| index[1] as f64);
        assert_eq!(layouts(&rows).last().unwrap().name, "broadcast");
    }
}
