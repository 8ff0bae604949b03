//! burn in a separate process, which runs once per line of its input. In between it is stopped with a signal, if the system supports that:
//! its threads would take a core from the timed arm. Each run includes two signals and two messages, some tens of microseconds.

use burn::tensor::{Device, DeviceKind};
use kiln_bench::{Closeness, ElementType, Fault, PreparedWorkload, find};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Answers of the child: after a run, and at the start if its output is rough.
const DONE: &str = "done";
const ROUGH: &str = "rough";

/// Time limit for a child to tune its kernels.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A process in which burn has prepared a workload.
pub(crate) struct Burn {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    is_rough: bool,
}

impl Burn {
    /// Starts the process, which checks its own output.
    pub(crate) fn start(workload: &str, dtype: ElementType) -> Result<Self, Fault> {
        let mut command = command(workload, dtype)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let to = child.stdin.take().ok_or("expected a pipe to the child")?;
        let from = BufReader::new(child.stdout.take().ok_or("expected a pipe from the child")?);
        let mut burn = Self { child, to, from, is_rough: false };
        burn.is_rough = burn.first_answer()?;
        burn.set_stopped(true)?;
        Ok(burn)
    }

    /// Returns whether the output is less accurate than its dtype allows.
    pub(crate) fn is_rough(&self) -> bool {
        self.is_rough
    }

    /// Runs the workload once.
    pub(crate) fn run(&mut self) -> Result<(), Fault> {
        self.set_stopped(false)?;
        self.to.write_all(b"run\n")?;
        self.answer()?;
        self.set_stopped(true)
    }

    #[cfg(unix)]
    fn set_stopped(&self, stopped: bool) -> Result<(), Fault> {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = if stopped { Signal::STOP } else { Signal::CONT };
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    #[cfg(not(unix))]
    fn set_stopped(&self, _: bool) -> Result<(), Fault> {
        Ok(())
    }

    /// Waits until the child is prepared, for at most [`TIMEOUT`]; returns whether its output is rough.
    fn first_answer(&mut self) -> Result<bool, Fault> {
        let Self { child, from, .. } = self;
        let answered = std::thread::scope(|scope| {
            let reader = scope.spawn(|| read_answer(from));
            let start = Instant::now();
            while !reader.is_finished() {
                if start.elapsed() > TIMEOUT {
                    child.kill()?;
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let timed_out = start.elapsed() > TIMEOUT;
            let answer = reader.join().map_err(|_| "its answer could not be read")??;
            Ok::<_, Fault>((answer, timed_out))
        })?;
        match answered {
            (None, true) => Err(format!("not ready after {} seconds", TIMEOUT.as_secs()).into()),
            (answer, _) => self.done(answer),
        }
    }

    fn answer(&mut self) -> Result<(), Fault> {
        let answer = read_answer(&mut self.from)?;
        self.done(answer).map(drop)
    }

    fn done(&mut self, answer: Option<String>) -> Result<bool, Fault> {
        match answer.as_deref() {
            Some(DONE) => Ok(false),
            Some(ROUGH) => Ok(true),
            Some(fault) => Err(fault.into()),
            None => Err(format!("its process ended with {}", self.child.wait()?).into()),
        }
    }
}

/// Reads a line without its newline; `None` at the end of the input.
fn read_answer(from: &mut impl BufRead) -> Result<Option<String>, Fault> {
    let mut line = String::new();
    let bytes = from.read_line(&mut line)?;
    Ok((bytes > 0).then(|| line.trim_end().to_string()))
}

impl Drop for Burn {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Counts the kernels that burn launches per run, from the log of cubecl.
pub(crate) fn launches(workload: &str, dtype: ElementType) -> Result<usize, Fault> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("launches.log");
    let settings = format!("[profiling]\nlogger = {{ level = \"minimal\", file = {:?}, append = true }}\n", log);
    std::fs::write(folder.path().join("cubecl.toml"), settings)?;
    let output = command(workload, dtype)?.arg("--launches").arg(&log).current_dir(folder.path()).output()?;
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().map_err(|_| format!("expected a number of launches, found {text:?}").into())
}

fn command(workload: &str, dtype: ElementType) -> Result<Command, Fault> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--burn", workload, dtype.name()]);
    Ok(command)
}

/// In the child: prepares the workload, then runs it once per input line.
pub(crate) fn serve(workload: &str, dtype: &str, log: Option<&Path>) -> Result<(), Fault> {
    let workload = find(workload).ok_or_else(|| format!("expected the name of a workload, found {workload}"))?;
    let dtype = ElementType::ALL.into_iter().find(|known| known.name() == dtype);
    let dtype = dtype.ok_or("expected the name of a dtype")?;
    let data = workload.op.data(dtype);
    let prepared = burn_workloads::prepare(&workload.op, dtype, &data, &Device::wgpu(DeviceKind::DefaultDevice));
    if let Some(log) = log {
        println!("{}", count(&prepared, log)?);
        return Ok(());
    }
    match workload.op.check_on(dtype, &data, &prepared.output()?) {
        Ok(Closeness::Close) => println!("{DONE}"),
        Ok(Closeness::Rough) => println!("{ROUGH}"),
        Err(wrong) => {
            println!("wrong: {wrong}");
            return Ok(());
        }
    }
    for line in std::io::stdin().lines() {
        line?;
        prepared.run()?;
        println!("{DONE}");
    }
    Ok(())
}

/// Counts the launches of a run after the first ones, which tune kernels.
fn count(prepared: &PreparedWorkload, log: &Path) -> Result<usize, Fault> {
    // The log is written by another thread.
    let so_far = || {
        let mut last = None;
        loop {
            let text = std::fs::read_to_string(log)?;
            let count = text.lines().filter(|line| line.contains("Executing")).count();
            if last.replace(count) == Some(count) {
                return Ok::<_, Fault>(count);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    for _ in 0..3 {
        prepared.run()?;
    }
    let before = so_far()?;
    prepared.run()?;
    Ok(so_far()? - before)
}
