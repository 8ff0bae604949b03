//! The resident memory of this process.

/// Returns the resident bytes, or `None` if the system does not report them.
pub(crate) fn bytes() -> Option<u64> {
    // Exact, unlike the counters in `status`, which lag behind by some pages per thread.
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
