//! Memory: direct and staged writes, and bounded usage while sizes change.

use super::reopen::reopen;
use crate::claim::{Context, Evidence, counts, output};
use crate::report::PoolPoint;
use crate::subject::{Computation, Inputs, Referee, Subject, WorkloadReferee};
use crate::trial::Arm;
use kiln::Device;
use kiln::buffer::Buffer;
use kiln::device::HostAccess;
use kiln_bench::{ElementType, Fault, Op};

/// Elements per write.
const ELEMENTS: usize = 1 << 20;

pub(super) fn unified(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let in_place = reopen(context.device, true, HostAccess::Auto)?;
    if !in_place.buffer(16)?.usage().is_host_visible() {
        return Ok(Evidence::Declined(
            "the device has separate memory, which the host cannot write in place".to_string(),
        ));
    }
    let staged = reopen(context.device, true, HostAccess::Staged)?;
    let mut arms = [Arm::new("in place", writing(&in_place)?), Arm::new("staged", writing(&staged)?)];
    let measured = context.measure(&mut arms, &Numbers)?;
    Ok(Evidence::faster(measured, |s| (4.0 * ELEMENTS as f64 / s / 1e9, "GB/s")))
}

/// Elements that must read back as written.
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

fn writing(device: &Device) -> Result<impl Subject, Fault> {
    let to = device.buffer_of::<f32>(ELEMENTS)?;
    let written = to.clone();
    let write = move |set: &Vec<f32>, _: Option<()>, _: &Device| Ok(to.write(set)?);
    Ok(Computation::new(device, |set, _| Ok(set[0].clone()), write, move |_, (), _| Ok(written.read()?)))
}

/// Steps of the workload with changing sizes.
const STEPS: usize = 120;

pub(super) fn plateau(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let device = reopen(context.device, true, HostAccess::Auto)?;
    let plot = |context: &mut Context<'_>, step: usize| {
        let (device, found) = (device.info().id.clone(), device.buffer_pool_stats());
        let (in_use_bytes, reserved_bytes) = (found.bytes_in_use, found.bytes_reserved);
        let point = PoolPoint { device, step, in_use_bytes, reserved_bytes };
        context.plots.pool.push(point.clone());
        point
    };
    let mut peaks = [0u64; 2];
    let mut wrong: Option<String> = None;
    // Lives across the cleanup, which must not release memory in use.
    let held: Vec<Buffer> = vec![device.buffer(1 << 16)?];
    for step in 0..STEPS {
        // Sizes vary without an order, and the second half repeats those of the first.
        let batch = 1 + (step % (STEPS / 2)) * 37 % 61;
        let workload = WorkloadReferee { op: Op::Mlp { batch, width: 64 }, dtype: ElementType::F32 };
        let mut mlp = Computation::of_workload(workload, &device);
        let inputs = workload.inputs(step as u64);
        mlp.load(std::slice::from_ref(&inputs))?;
        mlp.run(0)?;
        mlp.wait()?;
        wrong = wrong.or(workload.judge(&inputs, &mlp.output()?).err());
        let half = step * 2 / STEPS;
        peaks[half] = peaks[half].max(plot(context, step).reserved_bytes);
    }
    device.synchronize()?;
    device.pool().clear()?;
    let PoolPoint { in_use_bytes, reserved_bytes, .. } = plot(context, STEPS);
    drop(held);
    let output = output(wrong, format!("correct in all {STEPS} steps"));
    let given_back = counts(
        reserved_bytes <= peaks[1] / 2,
        format!("peak {} bytes, {} after a cleanup, {} of them in use", peaks[1], reserved_bytes, in_use_bytes),
    );
    // Both halves have the same sizes, so a pool that reuses memory needs no more in the second one: the ratio is at least 1.
    let ratio = peaks[0] as f64 / peaks[1].max(1) as f64;
    Ok(Evidence::counted(ratio, (peaks[1] as f64 / (1 << 20) as f64, "MiB"), vec![output, given_back]))
}
