//! The clock and the arm order. Both are injected into a trial, so that tests can pass faulty ones.

pub use kiln_bench::BalancedOrder;
use std::time::Instant;

/// A source of time.
///
/// See the [crate documentation](crate) for an example.
pub trait Clock {
    /// Returns seconds since a fixed moment.
    fn now(&self) -> f64;

    /// Returns the smallest step in seconds; infinite if the clock does not advance.
    fn resolution(&self) -> f64 {
        // Gives up after many readings, because a clock that stands still never advances. The minimum counts, because an interruption makes a
        // step look longer.
        let step = |_| {
            let start = self.now();
            (0..100_000).map(|_| self.now()).find(|now| *now > start).map_or(f64::INFINITY, |now| now - start)
        };
        (0..20).map(step).fold(f64::INFINITY, f64::min)
    }
}

/// The system's monotonic clock.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    /// Creates a clock that starts now.
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Chooses the order of the arms.
///
/// See the [crate documentation](crate) for an example.
pub trait Order {
    /// Returns the arms of a round, in run order.
    fn round(&mut self, arms: usize) -> Vec<usize>;
}

impl Order for BalancedOrder {
    fn round(&mut self, arms: usize) -> Vec<usize> {
        Self::round(self, arms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_arm_is_first_as_often_as_any_other() {
        let mut order = BalancedOrder::new(7);
        let rounds: Vec<Vec<usize>> = (0..200).map(|_| order.round(2)).collect();
        assert_eq!(rounds.iter().filter(|round| round[0] == 0).count(), 100);
        let changes = rounds.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((101..199).contains(&changes), "neither fixed nor alternating: {changes}");
        let mut of_three = order.round(3);
        of_three.sort_unstable();
        assert_eq!(of_three, [0, 1, 2]);
    }

    #[test]
    fn the_clock_of_the_system_goes_on_and_has_small_steps() {
        let clock = SystemClock::default();
        let (first, resolution) = (clock.now(), clock.resolution());
        assert!(clock.now() > first && resolution > 0.0 && resolution < 1e-3, "{resolution}");
    }
}
