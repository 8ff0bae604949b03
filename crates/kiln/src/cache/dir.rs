//! Where compiled kernels are kept between runs.

use kiln_device::DiskTier;
use std::path::PathBuf;

/// The directory in which kernels are kept where nothing else is said: `kernels` in [`cache_dir`]. `None` where the system
/// names no such place.
pub fn kernel_cache_dir() -> Option<PathBuf> {
    Some(cache_dir()?.join("kernels"))
}

/// The user's own place for what Kiln keeps between runs: `$XDG_CACHE_HOME/kiln` or `~/.cache/kiln`, `~/Library/Caches/kiln`,
/// `%LOCALAPPDATA%\\kiln`. `None` where the system names no such place.
///
/// The home directory is asked for here, and nothing else of the environment is read by the libraries.
pub fn cache_dir() -> Option<PathBuf> {
    use etcetera::BaseStrategy;
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.cache_dir().join("kiln"))
}

pub(crate) fn default_disk() -> Option<DiskTier> {
    kernel_cache_dir().map(DiskTier::new)
}
