//! Trials: subjects are interleaved under one clock, and everything that could invalidate their times is checked.

use crate::clock::{Clock, Order};
use crate::report::Check;
use crate::subject::{Inputs, Referee, Subject};
use crate::times::Times;
use kiln_bench::{Fault, SamplingConfig};

/// Names of the checks.
pub mod check {
    /// The output of timed runs is correct.
    pub const OUTPUT: &str = "output";
    /// Runs on unseen inputs take as long as the timed ones.
    pub const WORK: &str = "work";
    /// No work was pending when the clock was stopped.
    pub const SYNCHRONISED: &str = "synchronised";
    /// The time is not below the measured roofline.
    pub const ROOFLINE: &str = "roofline";
    /// No arm ran before the others more often than after them.
    pub const ORDER: &str = "order";
    /// Samples are long compared with the clock resolution and have a small spread.
    pub const CLOCK: &str = "clock";
    /// Device counters agree with the requested work.
    pub const COUNTS: &str = "counts";
}

/// Maximum interquartile range, as a fraction of the median. Samples that spread further are inconclusive.
const MAX_SPREAD: f64 = 0.5;
/// Minimum length of a sample, in clock steps.
const MIN_STEPS: f64 = 20.0;
/// Maximum time of a run on new inputs relative to one on known inputs, after subtracting the time that its bytes take from memory. Cache and
/// branch predictor misses explain a factor up to this; above it, results were cached or work was skipped.
const MAX_FRESH: f64 = 3.0;
/// Minimum time as a fraction of the measured limit, which is itself noisy.
const MIN_OF_LIMIT: f64 = 0.9;
/// How often the output of a sample is read and judged, and how often fresh inputs are timed.
const AUDITS: usize = 3;
/// Approximate size of all input sets of an audit.
const AUDIT_BYTES: usize = 4 << 20;

/// One of the subjects of a trial.
///
/// See the [crate documentation](crate) for an example.
pub struct Arm<'a> {
    /// Name of the arm.
    pub name: String,
    /// The code it runs.
    pub subject: Box<dyn Subject + 'a>,
}

impl<'a> Arm<'a> {
    /// Creates an arm.
    pub fn new(name: impl Into<String>, subject: impl Subject + 'a) -> Self {
        Self { name: name.into(), subject: Box::new(subject) }
    }
}

/// Configuration of a trial.
///
/// See the [crate documentation](crate) for an example.
pub struct Trial<'a> {
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Chooses the order of the arms.
    pub order: &'a mut dyn Order,
    /// How long to measure.
    pub sampling: SamplingConfig,
    /// Memory bandwidth beyond the caches, because unseen inputs are not cached.
    pub memory_bytes_per_s: f64,
}

/// The result of a trial.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct Measured {
    /// Times of each arm.
    pub arms: Vec<Times>,
    /// The checks and their results.
    pub checks: Vec<Check>,
}

impl Measured {
    /// Checks that no arm is below the roofline time of `roofline_s` seconds per run.
    pub fn bounded(mut self, roofline_s: f64) -> Self {
        for times in &self.arms {
            // Above 1, an arm is faster than the limit. The measured limit is noisy, which the tolerance allows for.
            let share = roofline_s / times.median();
            let passed = share <= 1.0 / MIN_OF_LIMIT;
            let what = if passed { "" } else { ": faster than the machine allows" };
            let detail = format!("{}: {:.0} % of the roofline{what}", times.name, share * 100.0);
            self.checks.push(Check::new(check::ROOFLINE, passed, detail));
        }
        self
    }
}

/// State of an arm during a trial.
struct Running<'a, 'b> {
    arm: &'a mut Arm<'b>,
    /// Runs per sample.
    runs: usize,
    /// Seconds per run, by round; `None` if the arm sat out.
    times: Vec<Option<f64>>,
    /// Seconds used in rounds so far, including rewarming and reads.
    spent: f64,
    /// By how much the first read of an output took longer than 1.5 times the other reads, as a fraction of a sample.
    late: Vec<f64>,
    /// Time of a run on fresh inputs, and the part of it that memory bandwidth explains.
    fresh: Vec<(f64, f64)>,
    /// The first wrong output.
    wrong: Option<String>,
}

impl Trial<'_> {
    /// Times the arms and checks them.
    ///
    /// # Errors
    /// Returns the error of an arm that cannot run.
    pub fn measure(&mut self, arms: &mut [Arm<'_>], referee: &dyn Referee) -> Result<Measured, Fault> {
        let first = referee.inputs(0);
        let bytes = first.iter().map(|input| 4 * input.len()).sum::<usize>().max(1);
        // Rounds alternate between two sets, so that a subject that always returns its first result is found.
        let sets = [first, referee.inputs(1)];
        let mut running = Vec::new();
        for arm in arms {
            running.push(self.warmed_up(arm, &sets)?);
        }
        let firsts = self.rounds(&mut running, &sets, referee)?;
        let fresh_sets = (AUDIT_BYTES / bytes).clamp(2, 32);
        for number in 0..AUDITS {
            for one in &mut running {
                // Seeds 0 and 1 are the timed sets. Each audit has one set more than it times, so no arm sees a set twice.
                self.audit(one, referee, 2 + (number * (fresh_sets + 1)) as u64, fresh_sets)?;
            }
        }
        Ok(self.judged(&running, &firsts))
    }

    /// Warms up an arm and determines the number of runs per sample.
    fn warmed_up<'a, 'b>(&self, arm: &'a mut Arm<'b>, sets: &[Inputs]) -> Result<Running<'a, 'b>, Fault> {
        arm.subject.load(sets)?;
        for set in 0..sets.len() {
            arm.subject.run(set)?;
            arm.subject.wait()?;
        }
        // The resolution of a clock that stands still is infinite. Capped, the trial ends, and the check of the clock fails.
        let wanted = self.sampling.sample.as_secs_f64().max(MIN_STEPS * self.clock.resolution().min(1e-3));
        let mut running =
            Running { arm, runs: 1, times: Vec::new(), spent: 0.0, late: Vec::new(), fresh: Vec::new(), wrong: None };
        kiln_bench::runs_per_sample(wanted, |runs| {
            running.runs = runs;
            self.sample(&mut running, 0)
        })?;
        Ok(running)
    }

    /// Takes one sample and returns the total seconds of its runs.
    fn sample(&self, running: &mut Running<'_, '_>, set: usize) -> Result<f64, Fault> {
        let subject = &mut running.arm.subject;
        let start = self.clock.now();
        for _ in 0..running.runs {
            subject.run(set)?;
        }
        subject.wait()?;
        Ok(self.clock.now() - start)
    }

    /// Takes one sample per round from each arm that has time left. Returns how often each arm was first.
    fn rounds(
        &mut self,
        running: &mut [Running<'_, '_>],
        sets: &[Inputs],
        referee: &dyn Referee,
    ) -> Result<Vec<usize>, Fault> {
        let SamplingConfig { min_samples, max_samples, budget, .. } = self.sampling;
        // Every arm gets the same time, not the same number of samples: a slow arm sits out the last rounds.
        let share = budget.as_secs_f64() / running.len() as f64;
        let between_audits = (min_samples / AUDITS).max(1);
        let mut firsts = vec![0; running.len()];
        for round in 0..max_samples {
            let has_time = |one: &Running<'_, '_>| round < min_samples || one.spent < share;
            if !running.iter().any(has_time) {
                break;
            }
            let order = self.order.round(running.len());
            let mut is_first = true;
            // Samples are stored by round, because ratios are of samples of the same round.
            running.iter_mut().for_each(|one| one.times.push(None));
            for index in order {
                let one = &mut running[index];
                if !has_time(one) {
                    continue;
                }
                firsts[index] += usize::from(std::mem::take(&mut is_first));
                let (set, began) = (round % sets.len(), self.clock.now());
                let is_read = round % between_audits == 0 && round < min_samples;
                if is_read {
                    // Drains work left over from earlier rounds, which would count as time of the read.
                    self.timed_output(one)?;
                }
                // Rewarms the caches, which the previous arm has evicted.
                one.arm.subject.run(set)?;
                one.arm.subject.wait()?;
                let reading = if is_read { self.timed_output(one)?.1 } else { 0.0 };
                let took = self.sample(one, set)?;
                one.times[round] = Some(took / one.runs as f64);
                if is_read {
                    self.read(one, took, reading, &sets[set], referee)?;
                }
                one.spent += self.clock.now() - began;
            }
        }
        Ok(firsts)
    }

    /// Reads the output twice and judges it. If work is still pending, the first read waits for it and takes longer than the second one and than
    /// the one before the sample.
    fn read(
        &self,
        running: &mut Running<'_, '_>,
        sample: f64,
        before: f64,
        inputs: &Inputs,
        referee: &dyn Referee,
    ) -> Result<(), Fault> {
        let (output, first) = self.timed_output(running)?;
        running.judge(inputs, &output, referee);
        // Dropped first, so that both reads allocate under the same conditions.
        drop(output);
        let (_, again) = self.timed_output(running)?;
        running.late.push((first - 1.5 * before.max(again)) / sample);
        Ok(())
    }

    fn timed_output(&self, running: &mut Running<'_, '_>) -> Result<(Vec<f32>, f64), Fault> {
        let start = self.clock.now();
        let output = running.arm.subject.output()?;
        Ok((output, self.clock.now() - start))
    }

    /// Times runs on unseen inputs, each of them once.
    fn audit(
        &self,
        running: &mut Running<'_, '_>,
        referee: &dyn Referee,
        seed: u64,
        count: usize,
    ) -> Result<(), Fault> {
        // One extra set to warm up.
        let sets: Vec<Inputs> = (0..=count as u64).map(|set| referee.inputs(seed + set)).collect();
        let subject = &mut running.arm.subject;
        // Loading may compile or cache something for each set. Only `run` is timed.
        subject.load(&sets)?;
        let wanted = self.sampling.sample.as_secs_f64();
        let start = self.clock.now();
        for _ in 0..running.runs {
            subject.run(count)?;
            if self.clock.now() - start >= wanted {
                break;
            }
        }
        subject.wait()?;
        let start = self.clock.now();
        for set in 0..count {
            subject.run(set)?;
        }
        subject.wait()?;
        let took = (self.clock.now() - start) / count as f64;
        let output = subject.output()?;
        let elements = sets[0].iter().map(Vec::len).sum::<usize>() + output.len();
        running.fresh.push((took, (size_of::<f32>() * elements) as f64 / self.memory_bytes_per_s));
        // The output is that of the last run.
        running.judge(&sets[count - 1], &output, referee);
        Ok(())
    }

    /// Evaluates the checks.
    fn judged(&self, running: &[Running<'_, '_>], firsts: &[usize]) -> Measured {
        let times = |one: &Running<'_, '_>| Times { name: one.arm.name.clone(), by_round: one.times.clone() };
        let arms: Vec<Times> = running.iter().map(times).collect();
        let mut checks = Vec::new();
        for (one, times) in running.iter().zip(&arms) {
            checks.push(one.output());
            checks.push(one.work(times));
            checks.push(one.synchronised());
            checks.push(one.clock(times, self.clock.resolution()));
        }
        if arms.len() > 1 {
            checks.push(order(&arms, firsts));
        }
        Measured { arms, checks }
    }
}

impl Running<'_, '_> {
    fn judge(&mut self, inputs: &Inputs, output: &[f32], referee: &dyn Referee) {
        if let Err(wrong) = referee.judge(inputs, output) {
            self.wrong.get_or_insert(wrong);
        }
    }

    fn check(&self, name: &str, passed: bool, detail: impl AsRef<str>) -> Check {
        Check::new(name, passed, format!("{}: {}", self.arm.name, detail.as_ref()))
    }

    fn output(&self) -> Check {
        let judged = self.late.len() + self.fresh.len();
        let right = format!("correct in all {judged} checked samples");
        self.check(check::OUTPUT, self.wrong.is_none(), self.wrong.as_ref().unwrap_or(&right))
    }

    fn work(&self, times: &Times) -> Check {
        let times_as_long = |(took, memory): &(f64, f64)| (took - memory).max(0.0) / times.median();
        // The minimum, because other load delays one audit, but cached results make every audit slower.
        let fresh = self.fresh.iter().map(times_as_long).fold(f64::INFINITY, f64::min);
        let what = if fresh > MAX_FRESH { ": results were cached or work was skipped" } else { "" };
        let detail = format!("a run on new inputs takes {fresh:.2} times as long as the timed ones{what}");
        self.check(check::WORK, fresh <= MAX_FRESH, detail)
    }

    fn synchronised(&self) -> Check {
        // The minimum distinguishes unfinished work, which delays every read, from descheduling, which delays one.
        let late = self.late.iter().copied().fold(f64::INFINITY, f64::min);
        let detail = if late > 0.5 {
            format!("not synchronised: reading the output waited for {late:.1} samples of unfinished work")
        } else {
            "no work was pending when the clock stopped".to_string()
        };
        self.check(check::SYNCHRONISED, late <= 0.5, detail)
    }

    fn clock(&self, times: &Times, resolution: f64) -> Check {
        let (steps, percent) = (times.median() * self.runs as f64 / resolution, times.spread() * 100.0);
        // The spread is negative if the clock goes backwards.
        let is_steady = (0.0..=MAX_SPREAD).contains(&times.spread());
        let passed = steps >= MIN_STEPS && is_steady;
        let detail = if !is_steady {
            format!("too noisy: the interquartile range is {:.0} % of the median", percent.abs())
        } else if passed {
            format!("samples span {steps:.0} clock steps; their interquartile range is {percent:.0} % of the median")
        } else {
            format!("samples span only {steps:.1} clock steps")
        };
        self.check(check::CLOCK, passed, detail)
    }
}

/// Checks that no arm is first more often than the others by a quarter of the rounds.
fn order(arms: &[Times], firsts: &[usize]) -> Check {
    let rounds: usize = firsts.iter().sum();
    let max = firsts.iter().max().copied().unwrap_or(0);
    let min = firsts.iter().min().copied().unwrap_or(0);
    // After an arm has used up its time, the others are first in the remaining rounds.
    let together = arms.iter().map(Times::samples).min().unwrap_or(0);
    // A quarter of the common rounds, and at least two: a few rounds in random order are seldom even.
    let passed = max - min <= (rounds - together.min(rounds)) + (together / 4).max(2);
    let counts: Vec<String> =
        arms.iter().zip(firsts).map(|(arm, first)| format!("{} {first} times", arm.name)).collect();
    let what = if passed { "" } else { "unfair order: " };
    Check::new(check::ORDER, passed, format!("{what}first in a round: {}", counts.join(", ")))
}
