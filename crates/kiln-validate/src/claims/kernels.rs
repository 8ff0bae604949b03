//! Kernels: in memory, on disk, compiled; and the commands that launch them.

use crate::claim::{Context, Evidence, counts};
use crate::report::{Check, Tier};
use crate::subject::{Inputs, Referee, Subject};
use crate::trial::{Arm, Measured};
use kiln::{CpuOptions, Device, DiskTier, Grid, Kernel, KernelCacheOptions, KernelCacheStatistics, KernelSource};
use kiln_bench::Fault;
use std::cell::Cell;
use std::rc::Rc;
use std::time::SystemTime;

/// How many numbers a kernel works on.
const ELEMENTS: usize = 64;

/// `x` times a factor, and a number that makes the kernel a new one.
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

/// Where a kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Memory,
    Disk,
    Compiler,
}

/// Asks for a kernel that was never seen, is on disk only, or is in memory.
struct Request {
    device: Device,
    from: From,
    sets: Vec<(KernelSource, Vec<f32>)>,
    last: Option<(usize, u64, Kernel)>,
    /// Of all requests of a claim: no number comes twice.
    number: Rc<Cell<u64>>,
    asked: Rc<Cell<u64>>,
}

impl Request {
    fn new(device: &Device, from: From, number: &Rc<Cell<u64>>) -> Self {
        let (device, number) = (device.clone(), Rc::clone(number));
        Self { device, from, sets: Vec::new(), last: None, number, asked: Rc::default() }
    }
}

impl Subject for Request {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        self.last = None;
        self.sets = sets.iter().map(|set| (source(set[0][0], 0), set[1].clone())).collect();
        for (source, _) in &self.sets {
            self.device.kernel(source)?;
        }
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        self.asked.set(self.asked.get() + 1);
        let (known, _) = &self.sets[set];
        let (number, kernel) = match self.from {
            From::Memory => (0, self.device.kernel(known)?),
            From::Disk => {
                self.device.clear_kernels();
                (0, self.device.kernel(known)?)
            }
            From::Compiler => {
                self.number.set(self.number.get() + 1);
                let number = self.number.get();
                let text = known.text().replace("f32(0)", &format!("f32({number})"));
                (number, self.device.kernel(KernelSource::wgsl(text).named("validate_scale"))?)
            }
        };
        self.last = Some((set, number, kernel));
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(self.device.synchronize()?)
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        let (set, number, kernel) = self.last.as_ref().ok_or("expected a run before its output, found none")?;
        let x = self.device.buffer_from(&self.sets[*set].1)?;
        let mut out = self.device.buffer_of::<f32>(ELEMENTS + 1)?;
        kernel.launch().bind("x", &x).bind("out", &mut out).grid(Grid::workgroups([1, 1, 1])).submit()?;
        let mut output = out.read()?;
        // The number of another kernel stays, as an element too many, and is judged as wrong.
        if output.last() == Some(&(*number as f32)) {
            output.pop();
        }
        Ok(output)
    }
}

/// A factor, and what it scales.
struct Scaled {
    /// Whether every input has a factor, and so a kernel, of its own.
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

pub(super) fn memory_hit(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    against_compiling(context, From::Memory)
}

pub(super) fn disk_hit(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    against_compiling(context, From::Disk)
}

fn against_compiling(context: &mut Context<'_>, from: From) -> Result<Evidence, Fault> {
    // Numbers that no process before had: drivers keep code too. Below what an `f32` counts exactly.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let (dir, number) = (tempfile::tempdir()?, Rc::new(Cell::new(since % (1 << 23))));
    let device = context.device;
    let open = |options: KernelCacheOptions| match device.simd_level() {
        Some(level) => {
            let threads = device.info().limits.threads.unwrap_or(1) as usize;
            Device::cpu_with(CpuOptions::new().threads(threads).simd(level).kernels(options))
        }
        None => Device::by_name_with(&device.info().id, options),
    };
    // A device for each arm, so that what one counts is that of the arm; the one that compiles keeps nothing.
    let own = open(KernelCacheOptions::new().disk(DiskTier::new(dir.path())))?;
    let other = open(KernelCacheOptions::new().without_disk())?;
    let (hit, compiled) = (Request::new(&own, from, &number), Request::new(&other, From::Compiler, &number));
    let (asked, compiles) = (Rc::clone(&hit.asked), Rc::clone(&compiled.asked));
    let name = if from == From::Disk { "from disk" } else { "from memory" };
    let measured =
        context.measure(&mut [Arm::new(name, hit), Arm::new("compiled", compiled)], &Scaled { is_varied: true })?;
    plot(context, &measured);
    let check = counted(from, asked.get(), compiles.get(), &own.kernel_cache_stats(), &other.kernel_cache_stats());
    let value = (measured.arms[0].median() * 1e6, "µs");
    Ok(Evidence::faster(measured, value).with(check))
}

/// A hit is counted as what it is, and compiles nothing.
fn counted(from: From, asked: u64, compiles: u64, own: &KernelCacheStatistics, other: &KernelCacheStatistics) -> Check {
    let (hits, name) = match from {
        From::Disk => (own.disk_hits, "disk hits"),
        _ => (own.memory_hits, "memory hits"),
    };
    // Each set of inputs is compiled once when it is loaded.
    let passed = hits >= asked && other.compiles >= compiles && own.compiles <= 2 + 3 * 33;
    let detail = format!(
        "{asked} requests: {hits} {name}, {} compiles to load inputs; {compiles} requests for new kernels: {} compiles",
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

/// How many dispatches a list has.
const DISPATCHES: usize = 8;

pub(super) fn commands(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let recorded = Recording::new(context.device, false);
    let run = Recording::new(context.device, true);
    let mut arms = [Arm::new("recording", recorded), Arm::new("running", run)];
    let measured = context.measure(&mut arms, &Scaled { is_varied: false })?;
    let value = (measured.arms[0].median() * 1e6, "µs");
    Ok(Evidence::faster(measured, value))
}

/// Gets a command list, fills it, and runs it or keeps it.
struct Recording {
    device: Device,
    runs: bool,
    sets: Vec<(Kernel, kiln::TypedBuffer<f32>)>,
    out: Option<kiln::TypedBuffer<f32>>,
    last: Option<(usize, kiln::CommandList)>,
}

impl Recording {
    fn new(device: &Device, runs: bool) -> Self {
        Self { device: device.clone(), runs, sets: Vec::new(), out: None, last: None }
    }
}

impl Subject for Recording {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        (self.sets, self.last) = (Vec::new(), None);
        for set in sets {
            self.sets.push((self.device.kernel(source(set[0][0], 0))?, self.device.buffer_from(&set[1])?));
        }
        self.out = Some(self.device.buffer_of::<f32>(ELEMENTS + 1)?);
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        let ((kernel, x), out) = (&self.sets[set], self.out.as_mut().ok_or("expected inputs first")?);
        let mut commands = self.device.commands();
        for _ in 0..DISPATCHES {
            let launch = kernel.launch().bind("x", x).bind("out", &mut *out);
            launch.grid(Grid::workgroups([1, 1, 1])).record(&mut commands)?;
        }
        if self.runs {
            self.device.submit(commands)?;
            self.device.synchronize()?;
            self.last = None;
        } else {
            self.last = Some((set, commands));
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(self.device.synchronize()?)
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        // What was recorded is shown by running it.
        if let Some((_, commands)) = self.last.take() {
            self.device.submit(commands)?;
        }
        let mut output = self.out.as_ref().ok_or("expected inputs first")?.read()?;
        output.pop();
        Ok(output)
    }
}
