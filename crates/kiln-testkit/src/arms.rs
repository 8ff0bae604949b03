//! The benchmark harness: arms of a comparison, interleaved in random order.

use crate::Rng;
use std::sync::Barrier;
use std::time::Instant;

/// One contender: a name and a function that runs once and returns a duration per operation.
pub struct Arm<'a> {
    name: &'static str,
    measure: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Arm<'a> {
    /// Creates an arm.
    pub fn new(name: &'static str, measure: impl FnMut() -> f64 + 'a) -> Self {
        Self { name, measure: Box::new(measure) }
    }
}

/// The samples of every arm, by round.
#[derive(Debug)]
pub struct Results(Vec<(&'static str, Vec<f64>)>);

/// Runs all arms once as warm-up, then once per round in random order.
pub fn run(rounds: usize, arms: &mut [Arm<'_>]) -> Results {
    let mut random = Rng::new(42);
    for arm in arms.iter_mut() {
        (arm.measure)();
    }
    let mut samples = vec![Vec::with_capacity(rounds); arms.len()];
    let mut order: Vec<usize> = (0..arms.len()).collect();
    for _ in 0..rounds {
        random.shuffle(&mut order);
        for &arm in &order {
            samples[arm].push((arms[arm].measure)());
        }
    }
    Results(arms.iter().map(|arm| arm.name).zip(samples).collect())
}

impl Results {
    /// Returns the names of the arms, in order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    /// Returns the quartiles of an arm's samples.
    ///
    /// # Panics
    /// Panics if no arm has this name.
    pub fn quartiles(&self, name: &str) -> Quartiles {
        Quartiles::new(self.samples(name).to_vec())
    }

    /// Returns the time of `name` relative to `base`: quartiles over the rounds of the ratio within a round, which clock frequency
    /// changes between rounds do not affect.
    ///
    /// # Panics
    /// Panics if no arm has one of the names.
    pub fn ratio(&self, name: &str, base: &str) -> Quartiles {
        Quartiles::new(self.samples(name).iter().zip(self.samples(base)).map(|(one, other)| one / other).collect())
    }

    /// Returns the samples of an arm, by round.
    ///
    /// # Panics
    /// Panics if no arm has this name.
    pub fn samples(&self, name: &str) -> &[f64] {
        self.0.iter().find(|(arm, _)| *arm == name).map(|(_, samples)| samples.as_slice()).expect("a known arm")
    }
}

/// The quartiles of some samples.
#[derive(Clone, Copy, Debug)]
pub struct Quartiles {
    /// A quarter of the samples are below.
    pub low: f64,
    /// Half of the samples are below.
    pub median: f64,
    /// Three quarters of the samples are below.
    pub high: f64,
}

impl Quartiles {
    /// Computes the quartiles of at least one sample.
    ///
    /// # Panics
    /// Panics if there are no samples.
    pub fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |quarter: usize| samples[(samples.len() - 1) * quarter / 4];
        Self { low: at(1), median: at(2), high: at(3) }
    }
}

/// Runs `work` on that many threads at once, with the index of the thread. Returns the nanoseconds from the common start to the
/// last end. `warm` runs before the start on each of the threads, so that thread-local state exists.
///
/// # Panics
/// Panics if `warm` or `work` panics.
pub fn on_threads(threads: usize, warm: impl Fn(usize) + Sync, work: impl Fn(usize) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let timed = |thread: usize| {
        warm(thread);
        barrier.wait();
        let began = Instant::now();
        work(thread);
        began.elapsed().as_nanos() as f64
    };
    std::thread::scope(|scope| {
        let timed = &timed;
        let handles: Vec<_> = (1..threads).map(|thread| scope.spawn(move || timed(thread))).collect();
        let own = timed(0);
        handles.into_iter().map(|handle| handle.join().expect("an arm does not panic")).fold(own, f64::max)
    })
}
