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

/// Work on a device in three closures: they prepare a set of inputs, compute a result, and read the elements of the result.
pub struct Computation<S, R> {
    device: Device,
    prepare: Box<Prepare<S>>,
    compute: Box<Compute<S, R>>,
    read: Box<Read<S, R>>,
    sets: Vec<S>,
    /// The set and the result of the last run.
    last: Option<(usize, R)>,
}

type Prepare<S> = dyn Fn(&Inputs, &Device) -> Result<S, Fault>;
type Compute<S, R> = dyn FnMut(&S, Option<R>, &Device) -> Result<R, Fault>;
type Read<S, R> = dyn Fn(&S, &mut R, &Device) -> Result<Vec<f32>, Fault>;

impl<S, R> Computation<S, R> {
    /// Creates a computation. `compute` also gets the result of the last run, whose memory it can reuse.
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
    /// Creates a computation of tensors.
    pub fn of_tensors(
        device: &Device,
        prepare: impl Fn(&Inputs, &Device) -> kiln::Result<S> + 'static,
        mut compute: impl FnMut(&S) -> kiln::Result<Vec<Tensor>> + 'static,
    ) -> Self {
        let compute = move |set: &S, last: Option<Vec<Tensor>>, _: &Device| {
            // These results can take the memory of the last ones.
            drop(last);
            Ok(compute(set)?)
        };
        let prepare = move |set: &Inputs, device: &Device| Ok(prepare(set, device)?);
        Self::new(device, prepare, compute, |_, results, _| Ok(Ours::read(results)?))
    }
}

impl Computation<Ours, Vec<Tensor>> {
    /// Creates a work of `kiln-bench`.
    pub fn of_work(work: WorkReferee, device: &Device) -> Self {
        let prepare = move |set: &Inputs, device: &Device| Ours::with_data(&work.op, work.number, set, device);
        Self::of_tensors(device, prepare, Ours::compute)
    }
}

impl<S, R> Subject for Computation<S, R> {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
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
