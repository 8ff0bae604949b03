//! A seeded random number generator.

/// SplitMix64: the same numbers for the same seed, on every system.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed. Neighbouring seeds give unrelated numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The bias is `end / 2^64`, too small for a test to notice.
        (self.bits() % end as u64) as usize
    }

    /// Returns a number from `low` up to `high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.bits() >> 11) as f64 / (1u64 << 53) as f64;
        low + unit * (high - low)
    }

    /// Shuffles items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// Returns one of the choices, of which there must be at least one.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_within_the_interval() {
        let numbers = |seed| {
            let mut rng = Rng::new(seed);
            (0..1000).map(|_| rng.uniform(-2.0, 3.0)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!(numbers(7).iter().all(|number| (-2.0..3.0).contains(number)));
        let mean = numbers(7).iter().sum::<f64>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.15, "{mean}");
        // The first output of SplitMix64 for the seed 0, as its authors publish it.
        assert_eq!(Rng::new(0).bits(), 0xe220_a839_7b1d_cdaf);
    }
}
