//! Indexing `x[0, 1:3, ..., none]`, with the rules of NumPy.

use super::ast::{ExprId, Item};
use super::fault::{Fault, Span};
use kiln::Tensor;
use kiln::function::Dynamic;
use std::ops::Range;

enum Part {
    At(isize, Span),
    NewAxis,
    Slice([Option<isize>; 3], Span),
    Rest,
}

/// Returns the indexed part of a tensor.
pub(super) fn apply(
    mut tensor: Tensor,
    items: &[Item],
    span: Span,
    mut take: impl FnMut(ExprId) -> (Dynamic, Span),
) -> Result<Tensor, Fault> {
    let parts = items.iter().map(|item| part(item, &mut take)).collect::<Result<Vec<_>, _>>()?;
    let (rank, shape) = (tensor.rank(), tensor.shape().clone());
    let wanted = parts.iter().filter(|part| matches!(part, Part::At(..) | Part::Slice(..))).count();
    if wanted > rank {
        return Err(Fault::new(
            span,
            format!("expected at most {rank} indices and slices for {shape}, found {wanted}"),
        ));
    }
    if parts.iter().filter(|part| matches!(part, Part::Rest)).count() > 1 {
        return Err(Fault::new(span, "expected `...` once in an index, found it twice"));
    }
    // The axis of the current tensor, and of the original one.
    let (mut axis, mut first) = (0, 0);
    for part in parts {
        let at_span = |error: kiln::Error| Fault::new(span, error.to_string());
        match part {
            Part::Rest => {
                axis += rank - wanted;
                first += rank - wanted;
            }
            Part::NewAxis => {
                tensor = tensor.unsqueeze(axis).map_err(at_span)?;
                axis += 1;
            }
            Part::At(index, span) => {
                let length = shape[first];
                let from_front = if index < 0 { index + length as isize } else { index };
                let place = usize::try_from(from_front).ok().filter(|place| *place < length).ok_or_else(|| {
                    let range = if length == 0 {
                        "no index".to_string()
                    } else {
                        format!("an index from -{length} to {}", length - 1)
                    };
                    Fault::new(span, format!("expected {range} for axis {first} of {shape}, found {index}"))
                })?;
                tensor = tensor.select(axis, place).map_err(at_span)?;
                first += 1;
            }
            Part::Slice(bounds, span) => {
                let step = bounds[2].unwrap_or(1);
                if step == 0 {
                    return Err(Fault::new(span, "expected a step other than 0, found 0"));
                }
                let range = range(bounds[0], bounds[1], step, shape[first]);
                tensor = tensor.slice_step(axis, range, step).map_err(at_span)?;
                axis += 1;
                first += 1;
            }
        }
    }
    Ok(tensor)
}

fn part(item: &Item, take: &mut impl FnMut(ExprId) -> (Dynamic, Span)) -> Result<Part, Fault> {
    match item {
        Item::Rest(_) => Ok(Part::Rest),
        Item::At(id) => match take(*id) {
            (Dynamic::None, _) => Ok(Part::NewAxis),
            (Dynamic::Tensor(_), span) => {
                let message = "expected a whole number, a slice or none, found a tensor; see index_select and gather";
                Err(Fault::new(span, message))
            }
            (value, span) => match value.integer() {
                Some(index) => Ok(Part::At(index, span)),
                None => Err(Fault::instead_of("a whole number, a slice or none", &value, span)),
            },
        },
        Item::Slice { bounds, span } => {
            let mut numbers = [None; 3];
            for (number, id) in numbers.iter_mut().zip(bounds) {
                let Some((value, span)) = id.map(&mut *take) else { continue };
                *number = match value {
                    Dynamic::None => None,
                    _ => Some(value.integer().ok_or_else(|| Fault::instead_of("a whole number", &value, span))?),
                };
            }
            Ok(Part::Slice(numbers, *span))
        }
    }
}

/// Returns the range of elements of a slice, independent of its direction: negative bounds count from the end, and bounds are clamped to the
/// axis. With a negative step the slice begins at the last element of the range.
fn range(start: Option<isize>, stop: Option<isize>, step: isize, length: usize) -> Range<usize> {
    let length = length as isize;
    let clamp = |bound: isize, least: isize, most: isize| {
        (if bound < 0 { bound.saturating_add(length) } else { bound }).clamp(least, most)
    };
    let (from, to) = if step > 0 {
        (start.map_or(0, |start| clamp(start, 0, length)), stop.map_or(length, |stop| clamp(stop, 0, length)))
    } else {
        // Backwards, `stop` is before the first element, and `start` is the last one.
        let first = start.map_or(length - 1, |start| clamp(start, -1, length - 1));
        (stop.map_or(-1, |stop| clamp(stop, -1, length - 1)) + 1, first + 1)
    };
    let from = from as usize;
    // An empty slice such as `3:1` becomes `3..3`, because `slice_step` rejects a reversed range.
    from..(to as usize).max(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Python's definition: the indices of `range(*slice(start, stop, step).indices(length))`.
    fn reference(start: Option<isize>, stop: Option<isize>, step: isize, length: usize) -> Vec<usize> {
        let length = length as isize;
        let bound = |bound: isize, low: isize, high: isize| {
            let bound = if bound < 0 { bound + length } else { bound };
            if bound < low {
                low
            } else if bound > high {
                high
            } else {
                bound
            }
        };
        let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let mut at = start.map_or(if step > 0 { low } else { high }, |start| bound(start, low, high));
        let end = stop.map_or(if step > 0 { high } else { low }, |stop| bound(stop, low, high));
        let mut all = Vec::new();
        while (step > 0 && at < end) || (step < 0 && at > end) {
            all.push(at as usize);
            at += step;
        }
        all
    }

    #[test]
    fn slices_go_over_what_python_says() {
        let bounds: Vec<Option<isize>> = (-7..=7).map(Some).chain([None, Some(isize::MAX), Some(isize::MIN)]).collect();
        for length in [0, 1, 2, 5] {
            for (&start, &stop) in bounds.iter().flat_map(|start| bounds.iter().map(move |stop| (start, stop))) {
                if [start, stop].contains(&Some(isize::MIN)) {
                    // The reference would overflow; this only checks that the range does not.
                    range(start, stop, -1, length);
                    continue;
                }
                for step in [1, 2, 3, -1, -2, -7] {
                    let range = range(start, stop, step, length);
                    assert!(range.end <= length, "{range:?}");
                    let by = step.unsigned_abs();
                    let all: Vec<usize> =
                        if step > 0 { range.step_by(by).collect() } else { range.rev().step_by(by).collect() };
                    assert_eq!(all, reference(start, stop, step, length), "{start:?}:{stop:?}:{step} of {length}");
                }
            }
        }
    }
}
