//! Plans: made once, found again.

use crate::claim::{Context, Evidence, counts};
use crate::subject::{Inputs, Referee, Subject};
use crate::trial::Arm;
use kiln::{Device, Tensor};
use kiln_bench::Fault;

/// Elements of which a run uses the first ones.
const ELEMENTS: usize = 4096;

pub(super) fn hit(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let before = context.device.plan_cache_stats();
    // As many elements as the new shapes have in the mean, and as many axes.
    let known = Planned::new(context.device, Some([5, 4, 5, 4]));
    let new = Planned::new(context.device, None);
    let (asked, runs) = (known.runs.clone(), new.runs.clone());
    let measured = context.measure(&mut [Arm::new("known", known), Arm::new("new", new)], &Roots)?;
    let after = context.device.plan_cache_stats();
    let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
    let made = runs.get();
    // The known shape is planned at most once, and once for each place of a set in its buffer.
    let passed = misses >= made && hits + 8 >= asked.get();
    let check = counts(passed, format!("{made} shapes were new: {misses} plans were made, {hits} found"));
    let value = (measured.arms[0].median() * 1e6, "µs");
    Ok(Evidence::faster(measured, value).with(check))
}

/// Four ops on the first elements of an input.
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

/// The ops in a shape that is always the same, or in one that was never seen.
struct Planned {
    device: Device,
    shape: Option<[usize; 4]>,
    sets: Vec<Tensor>,
    last: Option<Tensor>,
    /// How often it ran, which gives the next shape.
    runs: std::rc::Rc<std::cell::Cell<u64>>,
}

impl Planned {
    fn new(device: &Device, shape: Option<[usize; 4]>) -> Self {
        Self { device: device.clone(), shape, sets: Vec::new(), last: None, runs: std::rc::Rc::default() }
    }

    /// A shape of four axes, or with more of length one in front, that no run before had.
    fn shape(&self) -> Vec<usize> {
        let number = self.runs.get() as usize;
        let (a, b, c, d) = (1 + number % 8, 1 + number / 8 % 8, 1 + number / 64 % 8, 1 + number / 512 % 8);
        // Ones in front tell shapes apart when lengths come again.
        let mut shape = vec![1; number / 4096];
        shape.extend([a, b, c, d]);
        shape
    }
}

impl Subject for Planned {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        (self.last, self.sets) = (None, Vec::new());
        for set in sets {
            self.sets.push(Tensor::from_slice(&set[0], ELEMENTS, &self.device)?);
        }
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        let shape = self.shape.map_or_else(|| self.shape(), Vec::from);
        self.runs.set(self.runs.get() + 1);
        let part = self.sets[set].slice(0, 0..shape.iter().product::<usize>())?.reshape(&shape[..])?;
        let result = part.mul_scalar(0.5)?.abs()?.add_scalar(1.0)?.sqrt()?;
        result.eval()?;
        self.last = Some(result);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(self.device.synchronize()?)
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        let last = self.last.as_ref().ok_or("expected a run before its output, found none")?;
        Ok(last.to_vec()?)
    }
}
