//! Statistics of kernels: sums over their launches.

use super::recorder::KernelRun;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The statistics of one kernel since profiling started.
///
/// Returned by [`Device::kernel_statistics`](crate::Device::kernel_statistics); see [`Profiling`](crate::Profiling) for
/// an example.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KernelStatistics {
    /// The name, as shown by `Tensor::explain`.
    pub name: String,
    /// The number of launches.
    pub launches: u64,
    /// Device time of the timed launches.
    pub total: Duration,
    /// The number of timed launches.
    pub timed: u64,
    /// Bytes read and written by all launches. The bytes of all its buffers if the cost of a kernel is unknown.
    pub bytes: u64,
    /// Arithmetic operations of all launches.
    pub flops: u64,
}

/// The sums, by name.
#[derive(Debug, Default)]
pub(super) struct Totals(HashMap<Arc<str>, KernelStatistics>);

impl Totals {
    pub(super) fn add(&mut self, run: &KernelRun) {
        let KernelRun { name, cost, launches, time } = run;
        // Looks up before inserting, so that the name is copied only for the first launch.
        if !self.0.contains_key(name) {
            let first = KernelStatistics { name: name.to_string(), ..KernelStatistics::default() };
            self.0.insert(Arc::clone(name), first);
        }
        let Some(sum) = self.0.get_mut(name) else { return };
        sum.launches += launches;
        sum.bytes = sum.bytes.saturating_add(cost.bytes.saturating_mul(*launches));
        sum.flops = sum.flops.saturating_add(cost.flops.saturating_mul(*launches));
        if let Some((_, took)) = time {
            sum.total += *took;
            sum.timed += launches;
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the statistics, longest total time first, then by name, so that the order is deterministic.
    pub(super) fn statistics(&self) -> Vec<KernelStatistics> {
        let mut all: Vec<KernelStatistics> = self.0.values().cloned().collect();
        all.sort_by(|a, b| (Reverse(a.total), &a.name).cmp(&(Reverse(b.total), &b.name)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::KernelCost;
    use super::*;
    use std::time::Instant;

    fn run(name: &str, launches: u64, millis: Option<u64>) -> KernelRun {
        let time = millis.map(|millis| (Instant::now(), Duration::from_millis(millis)));
        KernelRun { name: name.into(), cost: KernelCost { bytes: 10, flops: 3 }, launches, time }
    }

    #[test]
    fn launches_of_a_name_are_summed_and_the_longest_comes_first() {
        let mut totals = Totals::default();
        for run in [run("add", 1, Some(2)), run("mul", 4, Some(5)), run("add", 2, Some(2)), run("add", 7, None)] {
            totals.add(&run);
        }
        let sum = |name: &str, launches, millis, timed| KernelStatistics {
            name: name.to_string(),
            launches,
            total: Duration::from_millis(millis),
            timed,
            bytes: launches * 10,
            flops: launches * 3,
        };
        assert_eq!(totals.statistics(), [sum("mul", 4, 5, 4), sum("add", 10, 4, 3)]);
        totals.clear();
        assert_eq!(totals.statistics(), []);
    }
}
