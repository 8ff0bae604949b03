//! What is measured, and who says whether its output is right.

use kiln::{Device, Tensor};
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

/// A computation with tensors on a device.
pub struct Computation<S> {
    device: Device,
    prepare: Box<Prepare<S>>,
    compute: Box<Compute<S>>,
    sets: Vec<S>,
    /// The results of the last run.
    last: Vec<Tensor>,
}

type Prepare<S> = dyn Fn(&Inputs, &Device) -> kiln::Result<S>;
type Compute<S> = dyn FnMut(&S) -> kiln::Result<Vec<Tensor>>;

impl<S> Computation<S> {
    /// Creates a computation that prepares sets of inputs and computes results from them.
    pub fn new(
        device: &Device,
        prepare: impl Fn(&Inputs, &Device) -> kiln::Result<S> + 'static,
        compute: impl FnMut(&S) -> kiln::Result<Vec<Tensor>> + 'static,
    ) -> Self {
        let (prepare, compute) = (Box::new(prepare), Box::new(compute));
        Self { device: device.clone(), prepare, compute, sets: Vec::new(), last: Vec::new() }
    }
}

impl Computation<Ours> {
    /// Creates a work of `kiln-bench`.
    pub fn of_work(work: WorkReferee, device: &Device) -> Self {
        let prepare = move |set: &Inputs, device: &Device| Ours::with_data(&work.op, work.number, set, device);
        Self::new(device, prepare, Ours::compute)
    }
}

impl<S> Subject for Computation<S> {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        (self.last, self.sets) = (Vec::new(), Vec::new());
        self.sets = sets.iter().map(|set| (self.prepare)(set, &self.device)).collect::<kiln::Result<_>>()?;
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        // These results can take the memory of the last ones.
        self.last.clear();
        self.last = (self.compute)(&self.sets[set])?;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(self.device.synchronize()?)
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        if self.last.is_empty() {
            return Err("expected a run before its output, found none".into());
        }
        Ok(Ours::read(&self.last)?)
    }
}
