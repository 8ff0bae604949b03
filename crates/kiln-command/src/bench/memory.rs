//! Resident memory of this process on Linux. Other systems need a library for it.

use std::fs;

/// Returns the peak since the process began, or since [`reset_peak`]; `None` if the system does not report it.
pub(super) fn peak_resident_bytes() -> Option<u64> {
    peak_of(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Resets the peak. If that is not possible, the peak is that of the whole process.
pub(super) fn reset_peak() {
    // 5 resets the peak (`VmHWM`) to the current size. Without permission the peak is that of the whole process, an
    // upper bound.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_is_read_in_bytes() {
        assert_eq!(peak_of("Name:\tkiln\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(peak_of("Name:\tkiln\n"), None);
        assert_eq!(peak_of("VmHWM: many kB"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn peak_follows_what_is_touched_and_can_begin_anew() {
        // In a separate process, because other tests allocate memory too.
        const CHILD: &str = "KILN_MEMORY_CHILD";
        if std::env::var_os(CHILD).is_none() {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let name = "bench::memory::tests::peak_follows_what_is_touched_and_can_begin_anew";
            assert!(child.args([name, "--exact"]).env(CHILD, "1").output().unwrap().status.success());
            return;
        }
        let touched = vec![1u8; 64 << 20];
        let high = peak_resident_bytes().unwrap();
        assert!(high >= touched.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        drop(touched);
        reset_peak();
        assert!(peak_resident_bytes().unwrap() < high);
    }
}
