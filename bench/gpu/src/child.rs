//! burn in a process of its own, which takes its turns by lines on its input and output. Between them it is stopped where the system can do
//! that: its threads would take a core from the arm that is timed.

use burn::tensor::{Device, DeviceKind};
use kiln_bench::{Fault, Number, Ready, find};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What the child says when a turn is done.
const DONE: &str = "done";

/// A process in which burn is ready to do a work.
pub(crate) struct Burn {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Burn {
    /// Starts the process, which checks its own output.
    pub(crate) fn start(work: &str, number: Number) -> Result<Self, Fault> {
        let mut command = command(work, number)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let to = child.stdin.take().ok_or("expected a pipe to the child")?;
        let from = BufReader::new(child.stdout.take().ok_or("expected a pipe from the child")?);
        let mut burn = Self { child, to, from };
        burn.answer()?;
        burn.set_stopped(true)?;
        Ok(burn)
    }

    /// Lets burn do its work once.
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

    fn answer(&mut self) -> Result<(), Fault> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        match line.trim_end() {
            DONE => Ok(()),
            "" => Err(format!("its process ended with {}", self.child.wait()?).into()),
            other => Err(other.into()),
        }
    }
}

impl Drop for Burn {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many kernels burn launches for a run, from cubecl's log of them.
pub(crate) fn launches(work: &str, number: Number) -> Result<usize, Fault> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("launches.log");
    let settings = format!("[profiling]\nlogger = {{ level = \"minimal\", file = {:?}, append = true }}\n", log);
    std::fs::write(folder.path().join("cubecl.toml"), settings)?;
    let output = command(work, number)?.arg("--launches").arg(&log).current_dir(folder.path()).output()?;
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().map_err(|_| format!("expected a number of launches, found {text:?}").into())
}

fn command(work: &str, number: Number) -> Result<Command, Fault> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--burn", work, number.name()]);
    Ok(command)
}

/// In the child: makes the work ready, then does it once for each line that comes in.
pub(crate) fn serve(work: &str, number: &str, log: Option<&Path>) -> Result<(), Fault> {
    let work = find(work).ok_or_else(|| format!("expected the name of a work, found {work}"))?;
    let number = Number::ALL.into_iter().find(|known| known.name() == number);
    let number = number.ok_or("expected the name of a dtype")?;
    let data = work.op.data(number);
    let ready = burn_works::prepare(&work.op, number, &data, &Device::wgpu(DeviceKind::DefaultDevice));
    if let Some(log) = log {
        println!("{}", count(&ready, log)?);
        return Ok(());
    }
    if let Err(wrong) = work.op.check_on(number, &data, &ready.output()?) {
        println!("wrong: {wrong}");
        return Ok(());
    }
    println!("{DONE}");
    for line in std::io::stdin().lines() {
        line?;
        ready.run()?;
        println!("{DONE}");
    }
    Ok(())
}

/// The launches of a run that is not among the first, in which kernels are tried out.
fn count(ready: &Ready, log: &Path) -> Result<usize, Fault> {
    let so_far =
        || Ok::<_, Fault>(std::fs::read_to_string(log)?.lines().filter(|line| line.contains("Executing")).count());
    for _ in 0..3 {
        ready.run()?;
    }
    let before = so_far()?;
    ready.run()?;
    Ok(so_far()? - before)
}
