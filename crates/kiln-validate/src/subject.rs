//! The measured code, and the referee that checks its output.

use kiln::{Device, Tensor};
use kiln_bench::{ElementType, Fault, KilnWorkload, Op};

/// The inputs of a workload, one list of elements for each.
///
/// See the [crate documentation](crate) for an example.
pub type Inputs = Vec<Vec<f32>>;

/// An implementation of a workload. It never sees the clock and does not judge itself.
///
/// See the [crate documentation](crate) for an example.
pub trait Subject {
    /// Replaces the input sets.
    ///
    /// # Errors
    /// Returns an error if the inputs cannot be loaded.
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault>;

    /// Runs the workload on a set, or starts to.
    ///
    /// # Errors
    /// Returns an error if the run fails or cannot be started.
    fn run(&mut self, set: usize) -> Result<(), Fault>;

    /// Waits until all started work is done.
    ///
    /// # Errors
    /// Returns an error if started work failed.
    fn wait(&mut self) -> Result<(), Fault>;

    /// Returns the output of the last run.
    ///
    /// # Errors
    /// Returns an error if the output cannot be read.
    fn output(&mut self) -> Result<Vec<f32>, Fault>;
}

/// Generates inputs and checks outputs.
///
/// See the [crate documentation](crate) for an example.
pub trait Referee {
    /// Generates inputs that no subject has seen, deterministically from the seed.
    fn inputs(&self, seed: u64) -> Inputs;

    /// Checks the output for these inputs.
    ///
    /// # Errors
    /// Returns a description of what is wrong.
    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String>;
}

/// A workload of `kiln-bench`, with its `f64` reference.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadReferee {
    /// The computed op.
    pub op: Op,
    /// Storage type of the elements.
    pub dtype: ElementType,
}

impl Referee for WorkloadReferee {
    fn inputs(&self, seed: u64) -> Inputs {
        let inputs = self.op.inputs().into_iter();
        // A workload has fewer than 16 inputs, so no two sets have a seed in common.
        let own = inputs.map(|input| kiln_bench::Input { seed: input.seed + 16 * seed, ..input });
        own.map(|input| input.elements_of(self.dtype)).collect()
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        self.op.check_on(self.dtype, inputs, output).map(drop).map_err(|wrong| wrong.to_string())
    }
}

/// A computation on a device as three closures: prepare a set of inputs, compute a result, read the elements of the result.
///
/// See the [crate documentation](crate) for an example.
pub struct Computation<S, R> {
    device: Device,
    prepare: Box<Prepare<S>>,
    compute: Box<Compute<S, R>>,
    read: Box<Read<S, R>>,
    sets: Vec<S>,
    /// Set index and result of the last run.
    last: Option<(usize, R)>,
}

type Prepare<S> = dyn Fn(&Inputs, &Device) -> Result<S, Fault>;
type Compute<S, R> = dyn FnMut(&S, Option<R>, &Device) -> Result<R, Fault>;
type Read<S, R> = dyn Fn(&S, &mut R, &Device) -> Result<Vec<f32>, Fault>;

impl<S, R> Computation<S, R> {
    /// Creates a computation. `compute` also receives the result of the last run, whose memory it can reuse.
    pub fn new(
        device: &Device,
        prepare: impl Fn(&Inputs, &Device) -> Result<S, Fault> + 'static,
        compute: impl FnMut(&S, Option<R>, &Device) -> Result<R, Fault> + 'static,
        read: impl Fn(&S, &mut R, &Device) -> Result<Vec<f32>, Fault> + 'static,
    ) -> Self {
        let (prepare, compute, read) = (Box::new(prepare), Box::new(compute), Box::new(read));
        Self { device: device.clone(), prepare, compute, read, sets: Vec::new(), last: None }
    }
}

impl<S> Computation<S, Vec<Tensor>> {
    /// Creates a computation on tensors.
    pub fn of_tensors(
        device: &Device,
        prepare: impl Fn(&Inputs, &Device) -> kiln::Result<S> + 'static,
        mut compute: impl FnMut(&S) -> kiln::Result<Vec<Tensor>> + 'static,
    ) -> Self {
        let compute = move |set: &S, last: Option<Vec<Tensor>>, _: &Device| {
            // Dropped first, so that the new results can reuse this memory.
            drop(last);
            Ok(compute(set)?)
        };
        let prepare = move |set: &Inputs, device: &Device| Ok(prepare(set, device)?);
        Self::new(device, prepare, compute, |_, results, _| Ok(KilnWorkload::read(results)?))
    }
}

impl Computation<KilnWorkload, Vec<Tensor>> {
    /// Creates a computation from a `kiln-bench` workload.
    pub fn of_workload(workload: WorkloadReferee, device: &Device) -> Self {
        let prepare =
            move |set: &Inputs, device: &Device| KilnWorkload::with_data(&workload.op, workload.dtype, set, device);
        Self::of_tensors(device, prepare, KilnWorkload::compute)
    }
}

impl<S, R> Subject for Computation<S, R> {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        // Freed first, so that device memory never holds the old and the new sets. `last` refers to an old set by index.
        (self.last, self.sets) = (None, Vec::new());
        self.sets = sets.iter().map(|set| (self.prepare)(set, &self.device)).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        let last = self.last.take().map(|(_, result)| result);
        self.last = Some((set, (self.compute)(&self.sets[set], last, &self.device)?));
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(self.device.synchronize()?)
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        let (set, result) = self.last.as_mut().ok_or("expected a run before its output, found none")?;
        (self.read)(&self.sets[*set], result, &self.device)
    }
}
