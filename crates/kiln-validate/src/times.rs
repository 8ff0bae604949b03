//! Sample statistics: medians, spreads, and ratios with confidence intervals.

use kiln_bench::quantile;

/// Samples of an arm: seconds per run by round; `None` for rounds that it sat out.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug)]
pub struct Times {
    /// Name of the arm.
    pub name: String,
    pub(crate) by_round: Vec<Option<f64>>,
}

impl Times {
    /// Returns the number of samples.
    pub fn samples(&self) -> usize {
        self.by_round.iter().flatten().count()
    }

    /// Returns the median.
    pub fn median(&self) -> f64 {
        median(self.by_round.iter().copied().flatten())
    }

    /// Returns the interquartile range, as a fraction of the median.
    pub fn spread(&self) -> f64 {
        let sorted = sorted(self.by_round.iter().copied().flatten());
        (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / quantile(&sorted, 0.5)
    }

    /// Returns the speedup over `other`: the median of the per-round ratios, with its interval.
    pub fn faster_than(&self, other: &Self) -> Ratio {
        // Samples of one round are taken shortly after each other, so slow changes of the machine cancel in their ratio. A round that one arm sat out
        // has no pair.
        let pairs = self.by_round.iter().zip(&other.by_round);
        Ratio::of(pairs.filter_map(|(own, other)| Some((*other)? / (*own)?)))
    }

    /// Returns the achieved fraction of a limit. The limit is the best of several tries and other load may have started since, so only the best
    /// sample can show that a target is missed.
    pub fn share_of(&self, roofline_s: f64) -> Ratio {
        let shares = || self.by_round.iter().flatten().map(|own| roofline_s / own);
        let ratio = Ratio::of(shares());
        Ratio { best: shares().fold(ratio.best, f64::max), ..ratio }
    }
}

/// A ratio with its confidence interval.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median.
    pub median: f64,
    /// 95 % confidence interval by rank statistics; minimum and maximum for fewer than six samples.
    pub interval: [f64; 2],
    /// Upper bound that is robust to noise: the upper end of the interval, or the best sample if the comparison is also a best value.
    pub best: f64,
}

impl Ratio {
    /// Computes the median ratio and its interval.
    pub fn of(samples: impl Iterator<Item = f64>) -> Self {
        let sorted = sorted(samples);
        let count = sorted.len() as f64;
        // Ranks (n ± 1.96·√n) / 2, the normal approximation to the binomial. The formula gives a 1-based rank.
        let low = (((count - 1.96 * count.sqrt()) / 2.0).round() - 1.0).max(0.0) as usize;
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        let interval = [at(low), at(sorted.len().saturating_sub(1 + low))];
        Self { median: quantile(&sorted, 0.5), interval, best: interval[1] }
    }

    /// Creates a ratio of counts, which have no noise.
    pub fn exact(ratio: f64) -> Self {
        Self { median: ratio, interval: [ratio; 2], best: ratio }
    }
}

/// Returns the median, the upper of two middle samples; NaN for no samples.
///
/// See the [crate documentation](crate) for an example.
pub fn median(samples: impl Iterator<Item = f64>) -> f64 {
    quantile(&sorted(samples), 0.5)
}

pub(crate) fn sorted(samples: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(seconds: &[Option<f64>]) -> Times {
        Times { name: String::new(), by_round: seconds.to_vec() }
    }

    #[test]
    fn ratios_are_of_samples_of_the_same_round() {
        let own = times(&[Some(1.0), Some(2.0), None, Some(4.0)]);
        let other = times(&[Some(3.0), Some(4.0), Some(100.0), Some(8.0)]);
        let ratio = own.faster_than(&other);
        assert_eq!((ratio.median, ratio.interval), (2.0, [2.0, 3.0]));
        assert_eq!((own.samples(), own.median()), (3, 2.0));
        assert!(times(&[]).median().is_nan() && times(&[None]).faster_than(&own).median.is_nan());
    }

    /// For 25 samples the interval is from the 8th to the 18th, as in tables of the binomial distribution.
    #[test]
    fn the_interval_of_a_median_follows_from_the_order_of_samples() {
        let ratio = Ratio::of((1..=25).rev().map(f64::from));
        assert_eq!((ratio.median, ratio.interval), (13.0, [8.0, 18.0]));
        assert_eq!(Ratio::of([5.0, 1.0, 3.0].into_iter()).interval, [1.0, 5.0]);
    }

    #[test]
    fn a_share_of_a_limit_has_its_best_sample() {
        let seconds: Vec<Option<f64>> = (0..25).map(|round| Some(if round == 7 { 1.25 } else { 2.0 })).collect();
        let share = times(&seconds).share_of(1.0);
        assert_eq!((share.median, share.interval, share.best), (0.5, [0.5, 0.5], 0.8));
    }
}
