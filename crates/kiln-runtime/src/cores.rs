//! How many cores there are for this process.

use std::sync::OnceLock;

/// How many cores this process may use. The system is asked once: on Linux the answer takes several files.
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    // Where the system does not tell, one is always right.
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}
