//! Arms of a comparison, interleaved in random order.

use std::sync::Barrier;
use std::time::Instant;

/// Passes over the keys in one measurement.
pub(crate) const PASSES: u64 = 8;

/// One contender: a name and a function that runs once and returns nanoseconds per operation.
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
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
        for &arm in &order {
            samples[arm].push((arms[arm].measure)());
        }
    }
    Results(arms.iter().map(|arm| arm.name).zip(samples).collect())
}

impl Results {
    pub(crate) fn median(&self, name: &str) -> f64 {
        median(self.samples(name).to_vec())
    }

    /// How many times as long `name` takes as `base`: the median over the rounds of the ratio within a round, which a
    /// processor that changes its speed from round to round does not move.
    fn ratio(&self, name: &str, base: &str) -> f64 {
        median(self.samples(name).iter().zip(self.samples(base)).map(|(peer, own)| peer / own).collect())
    }

    fn min(&self, name: &str) -> f64 {
        self.samples(name).iter().copied().fold(f64::INFINITY, f64::min)
    }

    fn samples(&self, name: &str) -> &[f64] {
        self.0.iter().find(|(arm, _)| *arm == name).map(|(_, samples)| samples.as_slice()).expect("a known arm")
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Prints medians and minima, and ratios of chosen arms to the first.
pub(crate) struct Table<'a> {
    title: &'a str,
    results: &'a Results,
    against: &'a [&'a str],
}

impl<'a> Table<'a> {
    pub(crate) fn new(title: &'a str, results: &'a Results) -> Self {
        Self { title, results, against: &[] }
    }

    pub(crate) fn against(mut self, peers: &'a [&'a str]) -> Self {
        self.against = peers;
        self
    }

    pub(crate) fn print(&self) {
        println!("{}", self.title);
        let first = self.results.0[0].0;
        for (name, _) in &self.results.0 {
            let (median, min) = (self.results.median(name), self.results.min(name));
            print!("  {name:<24} {median:>8.1} ns   min {min:>8.1}");
            if self.against.contains(name) {
                print!("   ratio {:>5.2}", self.results.ratio(name, first));
            }
            println!();
        }
    }
}

/// Runs the work on that many threads at once; nanoseconds from the common start to the last end.
pub(crate) fn on_threads(threads: usize, work: impl Fn() + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let timed = || {
        barrier.wait();
        let began = Instant::now();
        work();
        began.elapsed().as_nanos() as f64
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (1..threads).map(|_| scope.spawn(timed)).collect();
        let own = timed();
        handles.into_iter().map(|handle| handle.join().expect("an arm does not panic")).fold(own, f64::max)
    })
}

/// xorshift64*, seeded: the same order in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % limit
    }
}
