//! Metrics of kernels, by name.

use super::Metric;
use crate::observe::KernelStatistics;
use std::collections::BTreeSet;

/// The maximum number of kernels with their own label, because each is a few permanent time series in a collector.
const MAX_NAMES: usize = 100;

/// The label of all other kernels.
const OTHER: &str = "other";

/// The kernels that have their own label. Later kernels stay under `other` permanently, so that no counter decreases.
///
/// ```
/// use kiln_device::KernelStatistics;
/// use kiln_device::metrics::KernelLabels;
///
/// let matmul = KernelStatistics { name: "matmul".to_string(), launches: 2, ..KernelStatistics::default() };
/// let metrics = KernelLabels::default().metrics(&[matmul]);
/// assert_eq!(metrics[0].name, "kiln_kernel_launches_total");
/// assert_eq!(metrics[0].samples[0].labels, [("kernel", "matmul".to_string())]);
/// assert_eq!(metrics[0].samples[0].value, 2.0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct KernelLabels {
    names: BTreeSet<String>,
}

impl KernelLabels {
    /// Returns the metrics of kernels, by name. New kernels get a label in order, until 100 are in use.
    pub fn metrics(&mut self, kernels: &[KernelStatistics]) -> Vec<Metric> {
        self.metrics_within(MAX_NAMES, kernels)
    }

    fn metrics_within(&mut self, max_names: usize, kernels: &[KernelStatistics]) -> Vec<Metric> {
        // A kernel that is named `other` is counted there; a second series of that name would be a duplicate.
        for kernel in kernels.iter().filter(|kernel| kernel.name != OTHER) {
            if self.names.len() < max_names && !self.names.contains(&kernel.name) {
                self.names.insert(kernel.name.clone());
            }
        }
        let (named, rest): (Vec<_>, Vec<_>) = kernels.iter().partition(|kernel| self.names.contains(&kernel.name));
        let mut rows: Vec<(&str, KernelStatistics)> =
            named.into_iter().map(|kernel| (kernel.name.as_str(), kernel.clone())).collect();
        rows.sort_by_key(|(name, _)| *name);
        if !rest.is_empty() {
            rows.push((OTHER, sum(&rest)));
        }
        let counter = |name, help, value: fn(&KernelStatistics) -> f64| {
            rows.iter().fold(Metric::counter(name, help), |metric, (kernel, numbers)| {
                metric.sample(&[("kernel", kernel)], value(numbers))
            })
        };
        vec![
            counter("kiln_kernel_launches_total", "Launches of the kernel.", |kernel| kernel.launches as f64),
            counter("kiln_kernel_timed_launches_total", "Timed launches of the kernel.", |kernel| kernel.timed as f64),
            counter("kiln_kernel_seconds_total", "Device time of the timed launches.", |kernel| {
                kernel.total.as_secs_f64()
            }),
            counter("kiln_kernel_bytes_total", "Bytes read and written by the launches.", |kernel| kernel.bytes as f64),
            counter("kiln_kernel_operations_total", "Arithmetic operations of the launches.", |kernel| {
                kernel.flops as f64
            }),
        ]
    }
}

fn sum(kernels: &[&KernelStatistics]) -> KernelStatistics {
    kernels.iter().fold(KernelStatistics::default(), |sum, kernel| KernelStatistics {
        name: String::new(),
        launches: sum.launches + kernel.launches,
        total: sum.total + kernel.total,
        timed: sum.timed + kernel.timed,
        bytes: sum.bytes.saturating_add(kernel.bytes),
        flops: sum.flops.saturating_add(kernel.flops),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(name: &str, launches: u64) -> KernelStatistics {
        KernelStatistics { name: name.to_string(), launches, bytes: launches * 8, ..KernelStatistics::default() }
    }

    fn launches(metrics: &[Metric]) -> Vec<(String, f64)> {
        metrics[0].samples.iter().map(|sample| (sample.labels[0].1.clone(), sample.value)).collect()
    }

    /// A kernel that overtakes the others later does not take a label from them.
    #[test]
    fn names_are_bounded_and_keep_their_kernels() {
        let mut labels = KernelLabels::default();
        let found = labels.metrics_within(2, &[kernel("c", 9), kernel("b", 5), kernel("a", 2), kernel("d", 1)]);
        assert_eq!(launches(&found), [("b".into(), 5.0), ("c".into(), 9.0), ("other".into(), 3.0)]);
        assert_eq!(found[3].samples[2].value, 24.0);
        let found = labels.metrics_within(2, &[kernel("a", 50), kernel("c", 10), kernel("b", 5), kernel("d", 1)]);
        assert_eq!(launches(&found), [("b".into(), 5.0), ("c".into(), 10.0), ("other".into(), 51.0)]);
        assert_eq!(launches(&KernelLabels::default().metrics(&[])), []);
        let found = KernelLabels::default().metrics(&[kernel("other", 4), kernel("a", 2)]);
        assert_eq!(launches(&found), [("a".into(), 2.0), ("other".into(), 4.0)]);
    }
}
