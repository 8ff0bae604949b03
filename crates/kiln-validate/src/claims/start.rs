//! Time to the first result in a fresh process.

use crate::claim::{Context, Evidence};
use crate::subject::{Inputs, Referee, Subject};
use crate::trial::Arm;
use kiln::DeviceKind;
use kiln_bench::{Fault, SamplingConfig};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

pub(super) fn cold_start(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let Some(program) = context.program else {
        return Ok(Evidence::Declined("no `kiln` program was given to start".to_string()));
    };
    let id = context.device.info().id.clone();
    let is_cpu = context.device.info().kind == DeviceKind::Cpu;
    let (kept, fresh) = if is_cpu { (Kernels::None, Kernels::None) } else { (Kernels::Kept, Kernels::Fresh) };
    let subject = Process::new(program, Some(id.clone()), kept)?;
    // On the CPU the baseline is a process that does nothing.
    let baseline = Process::new(program, (!is_cpu).then_some(id), fresh)?;
    // One start per sample.
    let sampling = SamplingConfig { sample: Duration::ZERO, ..context.sampling };
    let names = if is_cpu { ["first result", "empty process"] } else { ["warm kernel cache", "empty kernel cache"] };
    let mut arms = [Arm::new(names[0], subject), Arm::new(names[1], baseline)];
    let saved = std::mem::replace(&mut context.sampling, sampling);
    let measured = context.measure(&mut arms, &Sum);
    context.sampling = saved;
    Ok(Evidence::faster(measured?, |s| (s * 1e3, "ms")))
}

/// The sum of two integers.
struct Sum;

impl Referee for Sum {
    fn inputs(&self, seed: u64) -> Inputs {
        vec![vec![(seed % 1000) as f32, 7.0 + (seed * 31 % 1000) as f32]]
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        let expected: f32 = inputs[0].iter().sum();
        if output == [expected] { Ok(()) } else { Err(format!("output expected {expected}, found {output:?}")) }
    }
}

/// Output of the process.
#[derive(Deserialize)]
struct Answer {
    data: Vec<f32>,
}

/// Where a process caches compiled kernels.
enum Kernels {
    /// No cache directory.
    None,
    /// One directory for all runs.
    Kept,
    /// A new directory for each run.
    Fresh,
}

/// A process that adds two numbers, or does nothing.
struct Process {
    program: PathBuf,
    /// `None` for a process that does nothing.
    device: Option<String>,
    kernels: Kernels,
    dir: TempDir,
    runs: u64,
    sets: Vec<Inputs>,
    last: Vec<f32>,
}

impl Process {
    fn new(program: &Path, device: Option<String>, kernels: Kernels) -> Result<Self, Fault> {
        let (program, dir) = (program.to_path_buf(), tempfile::tempdir()?);
        Ok(Self { program, device, kernels, dir, runs: 0, sets: Vec::new(), last: Vec::new() })
    }

    fn command(&self, set: usize) -> Command {
        let mut command = Command::new(&self.program);
        // These name the address and files of the measuring process.
        command.env_remove("KILN_METRICS").env_remove("KILN_EVENTS");
        // Drivers cache code too; a start with an empty cache must not find it there.
        command.env("MESA_SHADER_CACHE_DISABLE", "true").env("__GL_SHADER_DISK_CACHE", "0");
        let [x, y] = self.sets[set][0][..] else { unreachable!("a sum has two numbers") };
        match &self.device {
            Some(device) => command.args(["eval", &format!("ones(1) * {x} + {y}"), "--json", "--device", device]),
            None => command.arg("--version"),
        };
        match self.kernels {
            Kernels::None => &mut command,
            Kernels::Kept => command.env("KILN_CACHE_DIR", self.dir.path().join("kept")),
            Kernels::Fresh => command.env("KILN_CACHE_DIR", self.dir.path().join(self.runs.to_string())),
        };
        command
    }
}

impl Subject for Process {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        self.sets = sets.to_vec();
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        self.runs += 1;
        let output = self.command(set).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(
                format!("{} expected exit status 0, found {}: {error}", self.program.display(), output.status).into()
            );
        }
        self.last = match &self.device {
            Some(_) => serde_json::from_str::<Answer>(&text)?.data,
            // The process computes nothing, so the expected sum stands in for its output.
            None => vec![self.sets[set][0].iter().sum()],
        };
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        Ok(self.last.clone())
    }
}
