//! Kernels from memory, from disk and from the compiler, and the commands that launch them.

use super::reopen::cpu_options;
use crate::claim::{Context, Evidence, counts};
use crate::report::{Check, Tier};
use crate::subject::{Computation, Inputs, Referee, Subject};
use crate::trial::{Arm, Measured};
use kiln::Device;
use kiln::buffer::TypedBuffer;
use kiln::cache::{DiskTier, KernelCacheOptions, KernelCacheStatistics};
use kiln::graph::CommandList;
use kiln::kernel::{Grid, Kernel, KernelSource};
use kiln_bench::Fault;
use std::cell::Cell;
use std::rc::Rc;
use std::time::SystemTime;

/// Number of elements that a kernel processes.
const ELEMENTS: usize = 64;

/// Returns a kernel that scales `x` by a factor. `number` makes the source unique.
fn source(factor: f32, number: u64) -> KernelSource {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x < {ELEMENTS}u) {{ out[id.x] = x[id.x] * f32({factor:?}); }}
    if (id.x == 0u) {{ out[{ELEMENTS}] = f32({number}); }}
}}"
    );
    KernelSource::wgsl(text).named("validate_scale")
}

/// The source of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Memory,
    Disk,
    Compiler,
}

/// Requests a kernel that is new, on disk only, or in memory, and counts the requests. New kernels take increasing numbers from `number`, so
/// that none repeats within a claim.
fn requests(device: &Device, origin: Origin, number: &Rc<Cell<u64>>, requested: &Rc<Cell<u64>>) -> impl Subject {
    let (number, requested) = (Rc::clone(number), Rc::clone(requested));
    let prepare = |set: &Inputs, device: &Device| -> Result<(KernelSource, Vec<f32>), Fault> {
        let known = source(set[0][0], 0);
        device.kernel(&known)?;
        Ok((known, set[1].clone()))
    };
    let request = move |(known, _): &(KernelSource, Vec<f32>), _: Option<(u64, Kernel)>, device: &Device| {
        requested.set(requested.get() + 1);
        if origin == Origin::Disk {
            // Empties the memory tier, so that the request is served from disk.
            device.clear_kernels();
        }
        if origin != Origin::Compiler {
            return Ok((0, device.kernel(known)?));
        }
        number.set(number.get() + 1);
        // Another constant in the source is another key, so neither tier has the kernel.
        let text = known.text().replace("f32(0)", &format!("f32({})", number.get()));
        Ok((number.get(), device.kernel(KernelSource::wgsl(text).named("validate_scale"))?))
    };
    Computation::new(device, prepare, request, |(_, x), (number, kernel), device| {
        let (x, mut out) = (device.buffer_from(x)?, device.buffer_of::<f32>(ELEMENTS + 1)?);
        kernel.launch().bind("x", &x).bind("out", &mut out).grid(Grid::workgroups([1, 1, 1])).submit()?;
        let mut output = out.read()?;
        // A different number means that another kernel ran. It stays as an extra element, which the referee rejects.
        if output.last() == Some(&(*number as f32)) {
            output.pop();
        }
        Ok(output)
    })
}

/// Scales inputs by a factor.
struct Scaled {
    /// Whether every input has its own factor, and so its own kernel.
    is_varied: bool,
}

impl Referee for Scaled {
    fn inputs(&self, seed: u64) -> Inputs {
        vec![
            vec![if self.is_varied { 1.5 + seed as f32 } else { 1.5 }],
            kiln_bench::uniform(2000 + seed, ELEMENTS).collect(),
        ]
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        let expected: Vec<f32> = inputs[1].iter().map(|x| x * inputs[0][0]).collect();
        if expected == output {
            Ok(())
        } else {
            Err(format!("output expected {:?}…, found {:?}…", &expected[..2], &output[..2]))
        }
    }
}

/// Compares a kernel from memory or from disk with compiling one.
pub(super) fn against_compiling(context: &mut Context<'_>, origin: Origin) -> Result<Evidence, Fault> {
    // Numbers that no earlier process used, because drivers cache code too. Below 2^24, which `f32` represents exactly.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let (dir, number) = (tempfile::tempdir()?, Rc::new(Cell::new(since % (1 << 23))));
    let device = context.device;
    let open = |kernels: KernelCacheOptions| match cpu_options(device) {
        Some(options) => Device::cpu_with(options.kernels(kernels)),
        None => Device::by_name_with(&device.info().id, kernels),
    };
    // A device per arm, so that each has its own counters. The compiling device has no disk tier.
    let own = open(KernelCacheOptions::new().disk(DiskTier::new(dir.path())))?;
    let other = open(KernelCacheOptions::new().without_disk())?;
    let (requested, compiles) = (Rc::default(), Rc::default());
    let hit = requests(&own, origin, &number, &requested);
    let compiled = requests(&other, Origin::Compiler, &number, &compiles);
    let name = if origin == Origin::Disk { "from disk" } else { "from memory" };
    let measured =
        context.measure(&mut [Arm::new(name, hit), Arm::new("compiled", compiled)], &Scaled { is_varied: true })?;
    plot(context, &measured);
    let check =
        counted(origin, requested.get(), compiles.get(), &own.kernel_cache_stats(), &other.kernel_cache_stats());
    Ok(Evidence::faster(measured, |s| (s * 1e6, "µs")).with(check))
}

/// Checks that hits are counted as hits and compile nothing.
fn counted(
    origin: Origin,
    requested: u64,
    compiles: u64,
    own: &KernelCacheStatistics,
    other: &KernelCacheStatistics,
) -> Check {
    let (hits, name) = match origin {
        Origin::Disk => (own.disk_hits, "disk hits"),
        _ => (own.memory_hits, "memory hits"),
    };
    // Loading compiles each set of inputs once: 2 timed sets, and 3 audits of at most 33 sets.
    let passed = hits >= requested && other.compiles >= compiles && own.compiles <= 2 + 3 * 33;
    let detail = format!(
        "{requested} requests: {hits} {name}, {} compiles to load inputs; {compiles} requests for new kernels: {} compiles",
        own.compiles, other.compiles
    );
    counts(passed, detail)
}

fn plot(context: &mut Context<'_>, measured: &Measured) {
    let device = context.device.info().id.clone();
    for times in &measured.arms {
        let tier = Tier { device: device.clone(), tier: times.name.clone(), seconds: times.median() };
        let is_there = |known: &Tier| known.device == tier.device && known.tier == tier.tier;
        if !context.plots.tiers.iter().any(is_there) {
            context.plots.tiers.push(tier);
        }
    }
}

const DISPATCHES: usize = 8;

pub(super) fn commands(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let (recorded, run) = (recording(context.device, false)?, recording(context.device, true)?);
    let mut arms = [Arm::new("recording", recorded), Arm::new("running", run)];
    let measured = context.measure(&mut arms, &Scaled { is_varied: false })?;
    Ok(Evidence::faster(measured, |s| (s * 1e6, "µs")))
}

/// Records a command list, then submits or keeps it.
fn recording(device: &Device, runs: bool) -> Result<impl Subject, Fault> {
    let mut out = device.buffer_of::<f32>(ELEMENTS + 1)?;
    let written = out.clone();
    let record = move |(kernel, x): &(Kernel, TypedBuffer<f32>), _: Option<Option<CommandList>>, device: &Device| {
        let mut commands = device.commands();
        for _ in 0..DISPATCHES {
            let launch = kernel.launch().bind("x", x).bind("out", &mut out);
            launch.grid(Grid::workgroups([1, 1, 1])).record(&mut commands)?;
        }
        if !runs {
            return Ok(Some(commands));
        }
        device.submit(commands)?;
        device.synchronize()?;
        Ok(None)
    };
    let prepare =
        |set: &Inputs, device: &Device| Ok((device.kernel(source(set[0][0], 0))?, device.buffer_from(&set[1])?));
    Ok(Computation::new(device, prepare, record, move |_, commands, device| {
        // Submits the recorded commands, so that their output can be checked.
        if let Some(commands) = commands.take() {
            device.submit(commands)?;
        }
        let mut output = written.read()?;
        output.pop();
        Ok(output)
    }))
}
