//! Timing: arms are interleaved in random order, and each reports its median, minimum and spread.

use crate::Fault;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// An implementation of a workload to time.
///
/// See the [crate documentation](crate) for an example.
pub struct Arm<'a> {
    /// Name of the implementation.
    pub name: String,
    run: Box<dyn FnMut() -> Result<(), Fault> + 'a>,
}

impl<'a> Arm<'a> {
    /// Creates an arm whose `run` executes the workload once, waits for completion, and drops the result.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<(), Fault> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// How long to measure.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingConfig {
    /// Time for one comparison, divided equally among its arms. At least [`min_samples`](Self::min_samples) are taken regardless.
    pub budget: Duration,
    /// Minimum number of samples per arm.
    pub min_samples: usize,
    /// Maximum number of samples per arm.
    pub max_samples: usize,
    /// Target duration of a sample, which repeats the workload so that the clock resolution does not matter.
    pub sample: Duration,
    /// Seed of the arm order.
    pub seed: u64,
}

impl SamplingConfig {
    /// Creates the default: samples of 200 microseconds for two seconds.
    pub fn new() -> Self {
        let (budget, sample) = (Duration::from_secs(2), Duration::from_micros(200));
        Self { budget, min_samples: 5, max_samples: 400, sample, seed: 1 }
    }

    /// Creates a minimal configuration with a few samples, to see that everything works.
    pub fn quick() -> Self {
        Self { budget: Duration::from_millis(200), min_samples: 3, ..Self::new() }
    }
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// Time per run of an arm, in seconds.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Median.
    pub median: f64,
    /// Minimum.
    pub minimum: f64,
    /// Interquartile range, as a fraction of the median.
    pub spread: f64,
    /// Number of samples.
    pub samples: usize,
    /// Number of runs per sample.
    pub runs_per_sample: usize,
}

/// The timing of an arm, or its error.
///
/// See the [crate documentation](crate) for an example.
pub type Compared = Result<Timing, Fault>;

/// Times arms interleaved: each is warmed up, then gives one sample per round, in random order.
///
/// Each arm has the same share of the time. An arm that has used up its share sits out while faster ones continue; an arm that fails is
/// dropped.
///
/// See the [crate documentation](crate) for an example.
pub fn compare(arms: &mut [Arm<'_>], sampling: &SamplingConfig) -> Vec<Compared> {
    let share = sampling.budget / arms.len().max(1) as u32;
    let mut states: Vec<Result<Samples, Fault>> =
        arms.iter_mut().map(|arm| Samples::warmed_up(arm, sampling)).collect();
    let mut order = BalancedOrder::new(sampling.seed);
    let mut active: Vec<usize> = (0..arms.len()).collect();
    for round in 0..sampling.max_samples {
        // A failed arm has no samples and is dropped here. The order is drawn for the remaining arms, so that it stays balanced among them.
        active.retain(|&arm| {
            let samples = states[arm].as_ref();
            samples.is_ok_and(|samples| round < sampling.min_samples || samples.spent < share)
        });
        for turn in order.round(active.len()) {
            let arm = active[turn];
            let Ok(samples) = &mut states[arm] else { continue };
            if let Err(fault) = samples.take(&mut arms[arm]) {
                states[arm] = Err(fault);
            }
        }
    }
    states.into_iter().map(|state| state.map(Samples::timing)).collect()
}

/// Runs longer than this are not rewarmed: they exceed the caches, or compute for so long that the cache state does not matter.
const LONG_RUN_S: f64 = 0.05;
/// Maximum runs per sample, in case the clock does not advance.
const MAX_RUNS: usize = 1 << 20;

struct Samples {
    runs: usize,
    /// Whether a run before each sample reloads the arm's data into the caches, which the previous arm has evicted.
    is_rewarmed: bool,
    /// Seconds per run.
    seconds: Vec<f64>,
    spent: Duration,
}

impl Samples {
    /// Warms up the arm and determines the number of runs per sample.
    fn warmed_up(arm: &mut Arm<'_>, sampling: &SamplingConfig) -> Result<Self, Fault> {
        (arm.run)()?;
        let (runs, took) = runs_per_sample(sampling.sample.as_secs_f64(), |runs| timed(arm, runs))?;
        Ok(Self { runs, is_rewarmed: took < LONG_RUN_S, seconds: Vec::new(), spent: Duration::ZERO })
    }

    fn take(&mut self, arm: &mut Arm<'_>) -> Result<(), Fault> {
        let start = Instant::now();
        if self.is_rewarmed {
            (arm.run)()?;
        }
        let took = timed(arm, self.runs)?;
        self.seconds.push(took / self.runs as f64);
        self.spent += start.elapsed();
        Ok(())
    }

    fn timing(mut self) -> Timing {
        self.seconds.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&self.seconds, share);
        let (median, minimum) = (at(0.5), at(0.0));
        let spread = (at(0.75) - at(0.25)) / median;
        Timing { median, minimum, spread, samples: self.seconds.len(), runs_per_sample: self.runs }
    }
}

fn timed(arm: &mut Arm<'_>, runs: usize) -> Result<f64, Fault> {
    let start = Instant::now();
    for _ in 0..runs {
        (arm.run)()?;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Finds how many runs make a sample of at least `wanted_s` seconds, and returns that number and the time they took.
///
/// `sample` executes the given number of runs and returns their total seconds.
///
/// See the [crate documentation](crate) for an example.
///
/// # Errors
/// Returns the error of `sample`.
pub fn runs_per_sample(
    wanted_s: f64,
    mut sample: impl FnMut(usize) -> Result<f64, Fault>,
) -> Result<(usize, f64), Fault> {
    let mut runs = 1;
    loop {
        let mut took = sample(runs)?;
        if took >= wanted_s {
            // Repeated, because a descheduled thread looks like a slow workload.
            took = took.min(sample(runs)?);
        }
        if took >= wanted_s || runs >= MAX_RUNS {
            return Ok((runs, took));
        }
        // At most tenfold, because a time near the clock resolution is unreliable. At least 1.2-fold, so that the loop ends.
        runs = (runs as f64 * (wanted_s / took.max(1e-9)).clamp(1.2, 10.0)).ceil() as usize;
    }
}

/// Returns the quantile `share` of sorted samples; NaN for no samples.
///
/// See the [crate documentation](crate) for an example.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    // The nearest sample, without interpolation.
    let rank = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(rank).copied().unwrap_or(f64::NAN)
}

/// Random, balanced arm orders: every second round reverses the one before it, so no arm runs before another more often than after it.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug)]
pub struct BalancedOrder {
    state: u64,
    last: Option<Vec<usize>>,
}

impl BalancedOrder {
    /// Creates the orders for a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, last: None }
    }

    /// Returns the arms of a round, in run order.
    pub fn round(&mut self, arms: usize) -> Vec<usize> {
        if let Some(mut last) = self.last.take().filter(|last| last.len() == arms) {
            last.reverse();
            return last;
        }
        let mut order: Vec<usize> = (0..arms).collect();
        // Fisher-Yates shuffle.
        for last in (1..arms).rev() {
            order.swap(last, self.below(last + 1));
        }
        self.last = Some(order.clone());
        order
    }

    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The low bits of a linear congruential generator have short periods.
        ((self.state >> 33) as usize) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn sampling() -> SamplingConfig {
        SamplingConfig { min_samples: 20, max_samples: 20, sample: Duration::ZERO, ..SamplingConfig::quick() }
    }

    #[test]
    fn arms_take_turns_in_changing_order_and_have_equal_samples() {
        let log = RefCell::new(Vec::new());
        let arm = |name: &'static str| {
            let log = &log;
            Arm::new(name, move || {
                log.borrow_mut().push(name);
                Ok(())
            })
        };
        let timings = compare(&mut [arm("a"), arm("b"), arm("c")], &sampling());
        assert!(timings.iter().all(|timing| timing.as_ref().is_ok_and(|timing| timing.samples == 20)));
        let log = log.borrow();
        // Three warm-up runs of each arm, then two runs of each arm per round.
        let rounds: Vec<&[&str]> = log[9..].chunks(6).collect();
        assert_eq!(rounds.len(), 20);
        for round in &rounds {
            assert!(["a", "b", "c"].iter().all(|name| round.iter().filter(|found| found == &name).count() == 2));
        }
        assert!(["a", "b", "c"].iter().all(|name| rounds.iter().any(|round| round[0] == *name)));
    }

    #[test]
    fn a_slow_arm_sits_out_when_its_share_is_used_up() {
        let slow = Arm::new("slow", || {
            std::thread::sleep(Duration::from_millis(5));
            Ok(())
        });
        let sampling =
            SamplingConfig { budget: Duration::from_millis(40), min_samples: 2, max_samples: 500, ..sampling() };
        let timings = compare(&mut [slow, Arm::new("fast", || Ok(()))], &sampling);
        let samples: Vec<usize> = timings.into_iter().map(|timing| timing.unwrap().samples).collect();
        assert!((2..=4).contains(&samples[0]), "{samples:?}");
        assert!(samples[1] > samples[0], "{samples:?}");
    }

    #[test]
    fn a_failing_arm_leaves_the_others_alone() {
        let mut left = 5;
        let fails = Arm::new("fails", move || {
            left -= 1;
            if left == 0 { Err("broken".into()) } else { Ok(()) }
        });
        let timings = compare(&mut [fails, Arm::new("works", || Ok(()))], &sampling());
        assert_eq!(timings[0].as_ref().unwrap_err().to_string(), "broken");
        assert_eq!(timings[1].as_ref().unwrap().samples, 20);
    }

    #[test]
    fn median_minimum_and_spread_are_those_of_the_samples() {
        let seconds = vec![5.0, 1.0, 4.0, 2.0, 3.0];
        let samples = Samples { runs: 1, is_rewarmed: true, seconds, spent: Duration::ZERO };
        let timing = samples.timing();
        assert_eq!((timing.median, timing.minimum, timing.samples), (3.0, 1.0, 5));
        assert_eq!(timing.spread, (4.0 - 2.0) / 3.0);
    }
}
