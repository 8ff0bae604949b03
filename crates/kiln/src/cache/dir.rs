//! Default directories of the on-disk caches.

use kiln_device::DiskTier;
use std::path::PathBuf;

/// Returns the default directory of the kernel cache: `kernels` in [`cache_dir`]. `None` if the system has no cache
/// directory.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// if let Some(directory) = kiln::cache::kernel_cache_dir() {
///     println!("{}", directory.display());
/// }
/// # Ok(())
/// # }
/// ```
pub fn kernel_cache_dir() -> Option<PathBuf> {
    Some(cache_dir()?.join("kernels"))
}

/// Returns the cache directory of the user: `$XDG_CACHE_HOME/kiln` or `~/.cache/kiln`, `~/Library/Caches/kiln`,
/// `%LOCALAPPDATA%\\kiln`. `None` if the system has no cache directory.
///
/// This is the only place where the libraries read the environment, and they read only the home directory.
///
/// See [`kernel_cache_dir`] for an example.
pub fn cache_dir() -> Option<PathBuf> {
    use etcetera::BaseStrategy;
    Some(etcetera::base_strategy::choose_native_strategy().ok()?.cache_dir().join("kiln"))
}

pub(crate) fn default_disk() -> Option<DiskTier> {
    kernel_cache_dir().map(DiskTier::new)
}
