//! Run time of a process that prints one result.

use kiln_bench::{Arm, Fault, SamplingConfig, Timing, compare};
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The programs: each prints `5`, the last one without computing it.
const PROGRAMS: [&str; 3] = ["start-kiln", "start-candle", "start-nothing"];

/// The run time of a program.
#[derive(Serialize)]
pub(crate) struct Start {
    program: &'static str,
    timing: Timing,
}

/// Runs the programs, interleaved.
pub(crate) fn starts(sampling: &SamplingConfig) -> Result<Vec<Start>, Fault> {
    let folder = built()?;
    let mut arms = PROGRAMS.map(|program| {
        let path = folder.join(program);
        Arm::new(program, move || first_result(&path))
    });
    // One start per sample.
    let sampling = SamplingConfig { sample: Duration::ZERO, min_samples: 100, ..*sampling };
    let timings = compare(&mut arms, &sampling);
    let starts = PROGRAMS.into_iter().zip(timings).map(|(program, timing)| Ok(Start { program, timing: timing? }));
    let starts = starts.collect::<Result<Vec<_>, Fault>>()?;
    println!("{:<16} {:>10} {:>10} {:>8}", "program (ms)", "median", "min", "starts");
    for Start { program, timing } in &starts {
        let (median, minimum) = (timing.median * 1e3, timing.minimum * 1e3);
        println!("{program:<16} {median:>10.3} {minimum:>10.3} {:>8}", timing.samples);
    }
    Ok(starts)
}

/// Returns the directory of the programs, and builds them if they are missing.
fn built() -> Result<PathBuf, Fault> {
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or("expected a program in a directory")?;
    if PROGRAMS.iter().any(|program| !folder.join(program).exists()) {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--bins", "--manifest-path"]).arg(manifest);
        if !command.status()?.success() {
            return Err("cannot build the programs to start".into());
        }
    }
    Ok(folder.to_path_buf())
}

fn first_result(program: &Path) -> Result<(), Fault> {
    let mut child = Command::new(program).stdout(Stdio::piped()).spawn()?;
    let mut first = [0];
    let result = child.stdout.take().ok_or("expected a pipe")?.read_exact(&mut first);
    child.wait()?;
    result?;
    if first == *b"5" { Ok(()) } else { Err(format!("expected 5, found {:?}", first[0] as char).into()) }
}
