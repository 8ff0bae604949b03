//! Measures the overhead of events on small ops: Kiln built without events, with events off, and with events on, in three interleaved processes.
//!
//! Each process is `kiln bench --serve`. In every round each gives one sample, in random order. The result is the median of the per-round
//! ratios with its 95 % confidence interval. Each build checks its outputs, which are identical to the byte.

use crate::command::NamedCommand;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const WORKLOADS: [&str; 2] = ["tiny-chain", "tiny-independent"];
const ROUNDS: usize = 300;
/// Warm-up rounds, which are discarded.
const WARM_UP: usize = 20;

/// Runs per sample.
const RUNS: u32 = 4;

/// Builds both variants, or reuses those of the last call, and compares them.
pub(crate) fn run(root: &Path, with_build: bool) -> Result<(), String> {
    let build = ["build", "--release", "--package", "kiln-command"];
    let folder = root.join("target/events-cost");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    let keep = |name: &str| {
        let from = root.join("target/release/kiln");
        fs::copy(&from, folder.join(name)).map_err(|error| format!("cannot copy {}: {error}", from.display()))
    };
    if with_build {
        NamedCommand::cargo("without events", &build)
            .args(&["--no-default-features", "--features", "gpu"])
            .run(root)?;
        keep("without")?;
        NamedCommand::cargo("with events", &build).run(root)?;
        keep("with")?;
    }
    let (without, with) = (folder.join("without"), folder.join("with"));
    let events = folder.join("events.jsonl");
    for workload in WORKLOADS {
        for program in [&without, &with] {
            check(program, workload)?;
        }
        compare(workload, &without, &with, &events)?;
    }
    Ok(())
}

/// Lets the program check its output against the reference.
fn check(program: &Path, workload: &str) -> Result<(), String> {
    let output = Command::new(program).args(["bench", workload, "--quick"]).env_remove("KILN_EVENTS").output();
    let output = output.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Invariant 5: no time is reported for an output that was not checked.
    if output.status.success() && text.contains("output checked") {
        return Ok(());
    }
    Err(format!("{workload} expected a checked output of {}, found {text}", program.display()))
}

fn compare(workload: &str, without: &Path, with: &Path, events: &Path) -> Result<(), String> {
    let mut arms = [Server::start(without, None)?, Server::start(with, None)?, Server::start(with, Some(events))?];
    let outputs = arms.iter_mut().enumerate().map(|(index, arm)| {
        let path = events.with_file_name(format!("output-{index}.npy"));
        arm.ask(&json!({ "do": "prepare", "workload": workload, "dtype": "f32" }))?;
        arm.ask(&json!({ "do": "output", "path": path }))?;
        fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    });
    let outputs = outputs.collect::<Result<Vec<_>, String>>()?;
    if outputs.iter().any(|output| *output != outputs[0]) {
        return Err(format!("{workload} expected the same output with and without events, found different ones"));
    }
    // A fixed seed, so that two runs of this task use the same orders.
    let mut random = 1u64;
    let mut rounds: Vec<[f64; 3]> = Vec::new();
    for round in 0..WARM_UP + ROUNDS {
        let mut order = [0, 1, 2];
        // Fisher-Yates shuffle with a linear congruential generator (Knuth's MMIX constants). The upper bits are
        // used, because the lower ones have short periods. A random order spreads the effect of an arm on the next
        // one over all arms.
        for last in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(last, (random >> 33) as usize % (last + 1));
        }
        let mut sample = [0.0; 3];
        for arm in order {
            sample[arm] = arms[arm].sample()?;
        }
        if round >= WARM_UP {
            rounds.push(sample);
        }
    }
    for (arm, name) in ["compiled out", "off", "on"].into_iter().enumerate() {
        let [low, median, high] = median_interval(rounds.iter().map(|round| round[arm] / 1e3).collect());
        // Ratios within a round cancel slow drift of the machine, which ratios of the medians would not.
        let [ratio_low, ratio, ratio_high] =
            median_interval(rounds.iter().map(|round| round[arm] / round[0]).collect());
        println!(
            "{workload:18} {name:13} {median:8.1} µs ({low:.1} to {high:.1})  ratio {ratio:.4} ({ratio_low:.4} to {ratio_high:.4})"
        );
    }
    let [low, ratio, high] = median_interval(rounds.iter().map(|round| round[2] / round[1]).collect());
    println!("{workload:18} on / off: {ratio:.4} ({low:.4} to {high:.4}), {ROUNDS} rounds");
    Ok(())
}

/// Returns the median and the bounds of its 95 % confidence interval: lower bound, median, upper bound.
fn median_interval(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    // 1.96·√n / 2 ranks to each side, the normal approximation to the binomial.
    let (half, margin) = (values.len() / 2, (0.98 * (values.len() as f64).sqrt()).ceil() as usize);
    let last = values.len().saturating_sub(1);
    [half.saturating_sub(margin), half.min(last), (half + margin).min(last)].map(|rank| values[rank])
}

/// `kiln bench --serve` on one thread.
struct Server {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Server {
    fn start(program: &Path, events: Option<&Path>) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["bench", "--serve", "--threads", "1"]).env_remove("KILN_EVENTS");
        if let Some(events) = events {
            command.env("KILN_EVENTS", events);
        }
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let requests = child.stdin.take().ok_or("expected a pipe to the child")?;
        let answers = BufReader::new(child.stdout.take().ok_or("expected a pipe from the child")?);
        Ok(Self { child, requests, answers })
    }

    fn ask(&mut self, request: &Value) -> Result<Value, String> {
        writeln!(self.requests, "{request}").map_err(|error| format!("cannot write to the child: {error}"))?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| format!("cannot read from the child: {error}"))?;
        let answer: Value =
            serde_json::from_str(&line).map_err(|error| format!("expected JSON, found {line}: {error}"))?;
        match answer.get("error") {
            Some(error) => Err(format!("{request}: {error}")),
            None => Ok(answer),
        }
    }

    /// Returns the nanoseconds of one run. A run before it reloads the data into the caches, which the other processes have evicted.
    fn sample(&mut self) -> Result<f64, String> {
        self.ask(&json!({ "do": "sample", "runs": 1 }))?;
        let answer = self.ask(&json!({ "do": "sample", "runs": RUNS }))?;
        let ns = answer["ns"].as_f64().ok_or_else(|| format!("expected nanoseconds, found {answer}"))?;
        Ok(ns / f64::from(RUNS))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.ask(&json!({ "do": "quit" }));
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_surrounds_the_median_and_stays_within_the_values() {
        assert_eq!(median_interval(vec![3.0, 1.0, 2.0]), [1.0, 2.0, 3.0]);
        let [low, median, high] = median_interval((0..100).map(f64::from).collect());
        assert_eq!([low, median, high], [40.0, 50.0, 60.0]);
    }
}
