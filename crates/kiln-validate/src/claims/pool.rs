//! Savings by the buffer pool.

use super::reopen::reopen;
use crate::claim::{Context, Evidence, counts, output};
use crate::subject::{Computation, Inputs, Referee, Subject};
use crate::trial::Arm;
use kiln::Device;
use kiln::buffer::Buffer;
use kiln::device::HostAccess;
use kiln_bench::Fault;

/// Number of buffers held at once.
const BUFFERS: usize = 16;

/// Compares pooled requests with the same requests without pooling.
pub(super) fn against_driver(context: &mut Context<'_>, sizes: Sizes) -> Result<Evidence, Fault> {
    let (pooled, direct) =
        (reopen(context.device, true, HostAccess::Auto)?, reopen(context.device, false, HostAccess::Auto)?);
    let mut arms = [Arm::new("pool", requests(&pooled)), Arm::new("pooling disabled", requests(&direct))];
    let measured = context.measure(&mut arms, &sizes)?;
    drop(arms);
    let (own, other) = (pooled.buffer_pool_stats(), direct.buffer_pool_stats());
    let detail = format!(
        "pool: {} of {} requests reached the driver; pooling disabled: {} of {}",
        own.driver_request_count, own.allocation_count, other.driver_request_count, other.allocation_count
    );
    // With pooling disabled every request must reach the driver; otherwise the comparison would be with another pool.
    let check = counts(other.driver_request_count == other.allocation_count, detail);
    Ok(Evidence::faster(measured, |s| (s / BUFFERS as f64 * 1e9, "ns/buffer")).with(check))
}

pub(super) fn reduction(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let device = reopen(context.device, true, HostAccess::Auto)?;
    let sizes = Sizes::Any;
    let mut requests = requests(&device);
    let sets: Vec<Inputs> = (0..8).map(|seed| sizes.inputs(seed)).collect();
    requests.load(&sets)?;
    let mut wrong = None;
    for round in 0..200 {
        let set = round % sets.len();
        requests.run(set)?;
        if round % 50 == 49 {
            wrong = wrong.or(sizes.judge(&sets[set], &requests.output()?).err());
        }
    }
    let found = device.buffer_pool_stats();
    let output = output(wrong, "every buffer kept its contents");
    let requested = counts(
        found.allocation_count >= 200 * BUFFERS as u64,
        format!("{} requests, {} reached the driver", found.allocation_count, found.driver_request_count),
    );
    let ratio = found.allocation_count as f64 / found.driver_request_count.max(1) as f64;
    Ok(Evidence::counted(ratio, (found.allocation_reduction_percent, "% fewer"), vec![output, requested]))
}

/// Buffer sizes, in units of 256 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    One,
    /// The same mixed sizes in another order each time, so that the pool has seen all of them.
    Shuffled,
    /// New mixed sizes each time.
    Any,
}

impl Referee for Sizes {
    fn inputs(&self, seed: u64) -> Inputs {
        // From 256 B to 1 MiB, small sizes more often.
        let mixed = |number: f32| (2f32.powf(6.0 * (number + 1.0))).floor().max(1.0);
        let drawn = |seed: u64| kiln_bench::uniform(3000 + seed, BUFFERS);
        vec![match self {
            Self::One => vec![1024.0; BUFFERS],
            Self::Any => drawn(seed).map(mixed).collect(),
            Self::Shuffled => {
                let mut places: Vec<(f32, f32)> = drawn(seed).zip(drawn(0).map(mixed)).collect();
                places.sort_by(|a, b| a.0.total_cmp(&b.0));
                places.into_iter().map(|(_, size)| size).collect()
            }
        }]
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        let expected: Vec<f32> = inputs[0].iter().enumerate().flat_map(|(place, size)| [*size, place as f32]).collect();
        if expected == output { Ok(()) } else { Err(format!("buffers expected {expected:?}, found {output:?}")) }
    }
}

/// Allocates buffers, all of which are held before the first is released.
fn requests(device: &Device) -> impl Subject {
    let take = |sizes: &Vec<u64>, last: Option<Vec<Buffer>>, device: &Device| {
        let mut buffers = last.unwrap_or_default();
        // Frees all buffers of the last run before the first request, so that the pool can serve every request from them.
        buffers.clear();
        for &bytes in sizes {
            buffers.push(device.buffer(bytes)?);
        }
        Ok(buffers)
    };
    let prepare = |set: &Inputs, _: &Device| Ok(set[0].iter().map(|size| *size as u64 * 256).collect());
    Computation::new(device, prepare, take, |_, buffers, _| marks(buffers))
}

/// Writes each buffer's size at its start and its index at its end, then reads all of them, which detects aliasing.
fn marks(buffers: &[Buffer]) -> Result<Vec<f32>, Fault> {
    for (place, buffer) in buffers.iter().enumerate() {
        let bytes = buffer.bytes();
        buffer.slice(..4)?.write(&((bytes / 256) as f32).to_le_bytes())?;
        buffer.slice(bytes - 4..)?.write(&(place as f32).to_le_bytes())?;
    }
    let mut found = Vec::new();
    for buffer in buffers {
        for part in [buffer.slice(..4)?, buffer.slice(buffer.bytes() - 4..)?] {
            let bytes: [u8; 4] = part.read()?.try_into().map_err(|_| "expected four bytes")?;
            found.push(f32::from_le_bytes(bytes));
        }
    }
    Ok(found)
}
