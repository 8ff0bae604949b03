//! Plan cache: new plans compared with cached ones.

use crate::claim::{Context, Evidence, counts};
use crate::subject::{Computation, Inputs, Referee, Subject};
use crate::trial::Arm;
use kiln::{Device, Tensor};
use kiln_bench::Fault;
use std::cell::Cell;
use std::rc::Rc;

/// Elements of an input, of which a run uses a prefix.
const ELEMENTS: usize = 4096;

pub(super) fn hit(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let before = context.device.plan_cache_stats();
    // The same rank as the new shapes, and their mean number of elements.
    let (requested, runs) = (Rc::default(), Rc::default());
    let known = planned(context.device, Some([5, 4, 5, 4]), &requested);
    let new = planned(context.device, None, &runs);
    let measured = context.measure(&mut [Arm::new("known", known), Arm::new("new", new)], &Roots)?;
    let after = context.device.plan_cache_stats();
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    let made = runs.get();
    // The known shape is planned at most once for itself and once for each offset of a set in its buffer.
    let passed = misses >= made && hits + 8 >= requested.get();
    let check = counts(passed, format!("{made} new shapes: {misses} plans made, {hits} cache hits"));
    Ok(Evidence::faster(measured, |s| (s * 1e6, "µs")).with(check))
}

/// Four ops on a prefix of an input.
struct Roots;

impl Referee for Roots {
    fn inputs(&self, seed: u64) -> Inputs {
        vec![kiln_bench::uniform(1000 + seed, ELEMENTS).collect()]
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        let expected = inputs[0].iter().map(|x| ((f64::from(*x) * 0.5).abs() + 1.0).sqrt());
        for (place, (expected, found)) in expected.zip(output).enumerate() {
            if (expected - f64::from(*found)).abs() > 1e-6 {
                return Err(format!("output expected {expected} at {place}, found {found}"));
            }
        }
        if output.is_empty() { Err("output expected elements, found none".to_string()) } else { Ok(()) }
    }
}

/// Runs the ops on a fixed shape, or on a shape that no earlier run had.
/// `runs` counts the runs.
fn planned(device: &Device, shape: Option<[usize; 4]>, runs: &Rc<Cell<u64>>) -> impl Subject {
    let runs = Rc::clone(runs);
    let prepare = |inputs: &Inputs, device: &Device| Tensor::from_slice(&inputs[0], ELEMENTS, device);
    Computation::of_tensors(device, prepare, move |input: &Tensor| {
        // The number of runs so far selects the shape, so no shape repeats, not even across sets and audits.
        let shape = shape.map_or_else(|| new_shape(runs.get() as usize), Vec::from);
        runs.set(runs.get() + 1);
        let part = input.slice(0, 0..shape.iter().product::<usize>())?.reshape(&shape[..])?;
        let result = part.mul_scalar(0.5)?.abs()?.add_scalar(1.0)?.sqrt()?;
        result.eval()?;
        Ok(vec![result])
    })
}

/// Returns a unique shape of four axes for each number, with leading axes of length one if needed.
fn new_shape(number: usize) -> Vec<usize> {
    let (a, b, c, d) = (1 + number % 8, 1 + number / 8 % 8, 1 + number / 64 % 8, 1 + number / 512 % 8);
    // Leading ones keep shapes unique after the lengths repeat.
    let mut shape = vec![1; number / 4096];
    shape.extend([a, b, c, d]);
    shape
}
