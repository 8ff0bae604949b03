//! Arms of a comparison, interleaved in random order.

use std::sync::Barrier;
use std::time::Instant;

/// One contender: a name and a function that runs once and returns a duration per operation.
pub(crate) struct Arm<'a> {
    name: &'static str,
    measure: Box<dyn FnMut() -> f64 + 'a>,
}

impl<'a> Arm<'a> {
    pub(crate) fn new(name: &'static str, measure: impl FnMut() -> f64 + 'a) -> Self {
        Self { name, measure: Box::new(measure) }
    }
}

/// The samples of every arm, by round.
pub(crate) struct Results(Vec<(&'static str, Vec<f64>)>);

/// Runs all arms once as warm-up, then once per round in random order.
pub(crate) fn run(rounds: usize, arms: &mut [Arm<'_>]) -> Results {
    let mut random = Random::new(42);
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
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    pub(crate) fn quartiles(&self, name: &str) -> Quartiles {
        Quartiles::new(self.samples(name).to_vec())
    }

    /// How many times as long `name` takes as `base`: quartiles over the rounds of the ratio within a round, which a
    /// processor that changes its speed from round to round does not move.
    pub(crate) fn ratio(&self, name: &str, base: &str) -> Quartiles {
        Quartiles::new(self.samples(name).iter().zip(self.samples(base)).map(|(one, other)| one / other).collect())
    }

    fn samples(&self, name: &str) -> &[f64] {
        self.0.iter().find(|(arm, _)| *arm == name).map(|(_, samples)| samples.as_slice()).expect("a known arm")
    }
}

/// The middle half of some samples.
#[derive(Clone, Copy)]
pub(crate) struct Quartiles {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Quartiles {
    pub(crate) fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |quarter: usize| samples[(samples.len() - 1) * quarter / 4];
        Self { low: at(1), median: at(2), high: at(3) }
    }
}

/// Runs `work` on that many threads at once, with the thread's number; nanoseconds from the common start to the last
/// end. `warm` runs before the start on each of the threads, so that what belongs to a thread is there.
pub(crate) fn on_threads(threads: usize, warm: impl Fn(usize) + Sync, work: impl Fn(usize) + Sync) -> f64 {
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

/// xorshift64*, seeded: the same numbers in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        // The high bits are the random ones.
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
