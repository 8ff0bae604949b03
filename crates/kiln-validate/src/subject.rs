//! What is measured, and who says whether its output is right.

use kiln::Device;
use kiln_bench::{Fault, Number, Op, Ours};

/// The inputs of a work, one list of elements for each.
pub type Inputs = Vec<Vec<f32>>;

/// One way to do a work. It never sees the clock, and does not judge itself.
pub trait Subject {
    /// Takes several sets of inputs in place of those that it had.
    ///
    /// # Errors
    /// What keeps it from that.
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault>;

    /// Does the work on a set, or begins to.
    ///
    /// # Errors
    /// What keeps it from that.
    fn run(&mut self, set: usize) -> Result<(), Fault>;

    /// Returns when everything that was begun is done.
    ///
    /// # Errors
    /// What went wrong in the meantime.
    fn wait(&mut self) -> Result<(), Fault>;

    /// What the last run gave.
    ///
    /// # Errors
    /// What keeps it from that.
    fn output(&mut self) -> Result<Vec<f32>, Fault>;
}

/// Who knows what must come out.
pub trait Referee {
    /// Inputs that nobody has seen, the same for the same seed.
    fn inputs(&self, seed: u64) -> Inputs;

    /// Whether this is the output for these inputs.
    ///
    /// # Errors
    /// What is wrong with it.
    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String>;
}

/// A work of `kiln-bench`, with its reference in `f64`.
#[derive(Clone, Copy, Debug)]
pub struct WorkReferee {
    /// What is computed.
    pub op: Op,
    /// How elements are stored.
    pub number: Number,
}

impl Referee for WorkReferee {
    fn inputs(&self, seed: u64) -> Inputs {
        let inputs = self.op.inputs().into_iter();
        let own = inputs.map(|input| kiln_bench::Input { seed: input.seed + 16 * seed, ..input });
        own.map(|input| input.elements_of(self.number)).collect()
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        self.op.check_on(self.number, inputs, output).map(drop).map_err(|wrong| wrong.to_string())
    }
}

/// Kiln's form of a work on a device.
#[derive(Debug)]
pub struct KilnWork {
    work: WorkReferee,
    device: Device,
    sets: Vec<Ours>,
    /// The set of the last run, and its results.
    last: Option<(usize, Vec<kiln::Tensor>)>,
}

impl KilnWork {
    /// A work that has no inputs yet.
    pub fn new(work: WorkReferee, device: &Device) -> Self {
        Self { work, device: device.clone(), sets: Vec::new(), last: None }
    }
}

impl Subject for KilnWork {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        (self.last, self.sets) = (None, Vec::new());
        for set in sets {
            self.sets.push(Ours::with_data(&self.work.op, self.work.number, set, &self.device)?);
        }
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        // The memory of the last results serves for these.
        self.last = None;
        self.last = Some((set, self.sets[set].compute()?));
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(self.device.synchronize()?)
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        let (_, results) = self.last.as_ref().ok_or("expected a run before its output, found none")?;
        Ok(Ours::read(results)?)
    }
}
