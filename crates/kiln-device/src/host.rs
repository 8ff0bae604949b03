//! Resources of the host that are available to this process: cores and memory.

use std::sync::OnceLock;

/// Returns the number of cores that this process may use. Queried once, because on Linux it reads several files.
///
/// ```
/// let bytes_per_core = kiln_device::memory_bytes().map(|bytes| bytes / kiln_device::cores() as u64);
/// assert_ne!(bytes_per_core, Some(0));
/// ```
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    // One core is a safe assumption if the system does not report the number.
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Returns the memory available to this process: that of the system, or the limit of its container; `None` if unknown.
///
/// See [`cores`] for an example.
pub fn memory_bytes() -> Option<u64> {
    system::total_bytes()
}

/// Reads files of the Linux kernel, as few as possible, because this adds to the start time of a program.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::fs::read_to_string;
    use std::path::Path;

    pub(super) fn total_bytes() -> Option<u64> {
        let memory = read_to_string("/proc/meminfo").ok()?;
        let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let total = total.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)?;
        let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
        Some(limit_bytes(&groups, Path::new("/sys/fs/cgroup")).map_or(total, |limit| limit.min(total)))
    }

    /// Returns the lowest limit of the control groups of a process and their parents.
    ///
    /// `groups` has a line `ID:CONTROLLERS:/PATH` for each group; cgroup v2 names no controllers. In a container, the
    /// path may only exist outside of it; then the root is the group of the container.
    pub(super) fn limit_bytes(groups: &str, root: &Path) -> Option<u64> {
        let limits = groups.lines().filter_map(|line| {
            let (_, line) = line.split_once(':')?;
            let (controllers, path) = line.split_once(':')?;
            let (root, file) = match controllers {
                "" => (root.to_path_buf(), "memory.max"),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    (root.join("memory"), "memory.limit_in_bytes")
                }
                _ => return None,
            };
            let group = root.join(path.trim_start_matches('/'));
            // The limits of all parents apply as well.
            let around = group.ancestors().take_while(|group| group.starts_with(&root));
            around.filter_map(|group| read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok()).min()
        });
        limits.filter(|&bytes| bytes > 0).min()
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use sysinfo::{MemoryRefreshKind, RefreshKind, System};

    pub(super) fn total_bytes() -> Option<u64> {
        let memory = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
        let total = System::new_with_specifics(memory).ok()?.total_memory();
        (total > 0).then_some(total)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::system::limit_bytes;
    use std::fs::{create_dir_all, write};

    #[test]
    fn the_tightest_limit_counts() {
        let root = std::env::temp_dir().join(format!("kiln-device-groups-{}", std::process::id()));
        let set = |group: &str, file: &str, limit: &str| {
            let group = root.join(group);
            create_dir_all(&group).unwrap();
            write(group.join(file), format!("{limit}\n")).unwrap();
        };
        set("service/inner", "memory.max", "max");
        set("service", "memory.max", "3000");
        set("memory", "memory.limit_in_bytes", "9223372036854771712");
        set("memory/old", "memory.limit_in_bytes", "2000");
        let limit = |groups: &str| limit_bytes(groups, &root);
        assert_eq!(limit("0::/service/inner\n"), Some(3000), "that of the group around it");
        assert_eq!(limit("9:name=systemd:/\n7:cpu,memory:/old\n0::/service\n"), Some(2000), "both versions");
        assert_eq!(
            limit("3:memory:/docker/0123\n"),
            Some(9_223_372_036_854_771_712),
            "a path outside of the container"
        );
        assert_eq!(limit("0::/elsewhere\n2:cpu:/old\n"), None);
        assert_eq!(limit("0::/../..\nnonsense\n"), None);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
