//! Memory: written in place or through staging, and bounded while sizes change.

use super::reopen::reopen;
use crate::claim::{Context, Evidence, counts};
use crate::report::{Check, PoolPoint};
use crate::subject::{Computation, Inputs, Referee, Subject, WorkReferee};
use crate::trial::{Arm, check};
use kiln::{Buffer, Device, HostAccess};
use kiln_bench::{Fault, Number, Op};

/// Numbers that are written.
const ELEMENTS: usize = 1 << 20;

pub(super) fn unified(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let in_place = reopen(context.device, true, HostAccess::Auto)?;
    if !in_place.buffer(16)?.usage().is_host_visible() {
        return Ok(Evidence::Declined(
            "the device has memory of its own, which the host cannot write in place".to_string(),
        ));
    }
    let staged = reopen(context.device, true, HostAccess::Staged)?;
    let arm = |device: &Device| Writing { device: device.clone(), sets: Vec::new(), to: None };
    let mut arms = [Arm::new("in place", arm(&in_place)), Arm::new("staged", arm(&staged))];
    let measured = context.measure(&mut arms, &Numbers)?;
    let value = (4.0 * ELEMENTS as f64 / measured.arms[0].median() / 1e9, "GB/s");
    Ok(Evidence::faster(measured, value))
}

/// Numbers that come back as they were written.
struct Numbers;

impl Referee for Numbers {
    fn inputs(&self, seed: u64) -> Inputs {
        vec![kiln_bench::uniform(4000 + seed, ELEMENTS).collect()]
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        match inputs[0].iter().zip(output).position(|(expected, found)| expected != found) {
            None if inputs[0].len() == output.len() => Ok(()),
            None => Err(format!("output expected {} elements, found {}", inputs[0].len(), output.len())),
            Some(place) => Err(format!("output expected {} at {place}, found {}", inputs[0][place], output[place])),
        }
    }
}

/// Writes numbers to a buffer.
struct Writing {
    device: Device,
    sets: Vec<Inputs>,
    to: Option<kiln::TypedBuffer<f32>>,
}

impl Subject for Writing {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        self.sets = sets.to_vec();
        self.to = Some(self.device.buffer_of::<f32>(ELEMENTS)?);
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        Ok(self.to.as_ref().ok_or("expected inputs first")?.write(&self.sets[set][0])?)
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(self.device.synchronize()?)
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        Ok(self.to.as_ref().ok_or("expected inputs first")?.read()?)
    }
}

/// Steps of the work whose sizes change.
const STEPS: usize = 120;

pub(super) fn plateau(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let device = reopen(context.device, true, HostAccess::Auto)?;
    let id = device.info().id.clone();
    let mut peaks = [0u64; 2];
    let mut wrong: Option<String> = None;
    let held: Vec<Buffer> = vec![device.buffer(1 << 16)?];
    for step in 0..STEPS {
        // Sizes come and go in no order, and none is new in the second half.
        let batch = 1 + (step % (STEPS / 2)) * 37 % 61;
        let work = WorkReferee { op: Op::Mlp { batch, width: 64 }, number: Number::F32 };
        let mut mlp = Computation::of_work(work, &device);
        let inputs = work.inputs(step as u64);
        mlp.load(std::slice::from_ref(&inputs))?;
        mlp.run(0)?;
        mlp.wait()?;
        wrong = wrong.or(work.judge(&inputs, &mlp.output()?).err());
        let found = device.buffer_pool_stats();
        let half = step * 2 / STEPS;
        peaks[half] = peaks[half].max(found.bytes_reserved);
        let (in_use_bytes, reserved_bytes) = (found.bytes_in_use, found.bytes_reserved);
        context.plots.pool.push(PoolPoint { device: id.clone(), step, in_use_bytes, reserved_bytes });
    }
    device.synchronize()?;
    device.pool().clear()?;
    let left = device.buffer_pool_stats();
    let (in_use_bytes, reserved_bytes) = (left.bytes_in_use, left.bytes_reserved);
    context.plots.pool.push(PoolPoint { device: id, step: STEPS, in_use_bytes, reserved_bytes });
    drop(held);
    let detail = wrong.clone().unwrap_or_else(|| format!("right in all of {STEPS} steps"));
    let output = Check { name: check::OUTPUT.to_string(), passed: wrong.is_none(), detail };
    let given_back = counts(
        left.bytes_reserved <= peaks[1] / 2,
        format!("{} bytes at most, {} after a cleanup, of which {} are in use", peaks[1], reserved_bytes, in_use_bytes),
    );
    let ratio = peaks[0] as f64 / peaks[1].max(1) as f64;
    Ok(Evidence::counted(ratio, (peaks[1] as f64 / (1 << 20) as f64, "MiB"), vec![output, given_back]))
}
