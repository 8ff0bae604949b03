//! The location of the on-disk kernel cache, and whether it can be used.

use crate::cache_dir::{CacheDir, CacheDirState};
use crate::{Fallible, settings, terminal};
use kiln::cache::store::{DiskStore, StoreOptions, StoreStatistics, Writing};
use kiln::cache::{DiskTier, DiskTierState, KernelCacheOptions};
use kiln::{Device, DeviceKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The directory of compiled kernels, inside the cache directory of the environment.
#[derive(Clone, Debug)]
pub(crate) struct KernelDir(PathBuf);

impl KernelDir {
    /// Returns the directory, or a message with the fault and its fix.
    pub(crate) fn of_environment() -> Result<Self, String> {
        let dir = CacheDir::of_environment();
        match (dir.state, dir.path) {
            // The store detects whether it is writable; existing contents can be read regardless.
            (CacheDirState::Ready | CacheDirState::NotCreated, Some(path)) => Ok(Self(path.join("kernels"))),
            (_, path) => {
                let shown = path.map_or_else(String::new, |path| format!(" {}", path.display()));
                let fault = dir.fault.unwrap_or_else(|| "it cannot be used".to_string());
                let fix = dir.fix.map_or_else(String::new, |fix| format!("; fix: {fix}"));
                Err(format!("the cache directory{shown}: {fault}{fix}"))
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns options for a device that stores its kernels here.
    pub(crate) fn options(&self) -> KernelCacheOptions {
        KernelCacheOptions::new().disk(DiskTier::new(&self.0))
    }

    /// Opens the store, creating it if necessary.
    pub(crate) fn open(&self) -> Fallible<DiskStore> {
        Ok(DiskStore::open(&self.0, StoreOptions::new())?)
    }

    /// Opens the store; `None` if it does not exist, which is equivalent to an empty one.
    pub(crate) fn open_existing(&self) -> Fallible<Option<DiskStore>> {
        // A dangling link exists, and the store refuses it.
        if self.0.symlink_metadata().is_err() { Ok(None) } else { self.open().map(Some) }
    }
}

/// Opens the named or the best device with the settings of the environment, and with compiled kernels stored where
/// `kiln cache` looks for them. Works without such a directory too.
pub(crate) fn open_device(name: Option<&str>) -> Fallible<Device> {
    // The CPU device has no compiled kernels for tensor ops, so there is nothing to store.
    open(name, None, |device| device.info().kind != DeviceKind::Cpu)
}

/// Like [`open_device`], but for kernels: warns on any device if they are not stored. The time limit applies to the CPU device.
pub(crate) fn open_for_kernels(name: Option<&str>, time_limit: Option<Duration>) -> Fallible<Device> {
    open(name, time_limit, |_| true)
}

fn open(name: Option<&str>, time_limit: Option<Duration>, has_kernels: impl Fn(&Device) -> bool) -> Fallible<Device> {
    let (options, fault) = match KernelDir::of_environment() {
        Ok(dir) => (dir.options(), None),
        // A command runs without a usable cache directory too; it only compiles again next time.
        Err(fault) => (KernelCacheOptions::new().without_disk(), Some(fault)),
    };
    let device = open_with(name, options, time_limit)?;
    if let Some(fault) = fault.filter(|_| has_kernels(&device)) {
        warn_not_stored(&fault);
    }
    Ok(settings::watched(device)?)
}

/// Opens the named or the best device with the settings of the environment and this kernel cache. The time limit applies to the CPU
/// device.
pub(crate) fn open_with(name: Option<&str>, kernels: KernelCacheOptions, limit: Option<Duration>) -> Fallible<Device> {
    let id = match name {
        Some(name) => name.to_string(),
        // Opened again by id, with these settings.
        None => Device::best()?.info().id.clone(),
    };
    if id != "cpu" {
        return Ok(Device::by_name_with(&id, kernels)?);
    }
    let options = settings::cpu_options()?.kernels(kernels);
    Ok(Device::cpu_with(if limit.is_some() { options.time_limit(limit) } else { options })?)
}

/// Warns that a compiled kernel is not stored.
pub(crate) fn warn_not_stored(fault: &str) {
    terminal::warn(&format!("the compiled kernel is not stored: {fault}"));
}

/// Returns why some compiled kernels of a device are not stored; `None` if all are.
pub(crate) fn lost(disk: &DiskTierState) -> Option<String> {
    match disk {
        DiskTierState::Off { reason } => Some(reason.clone()),
        DiskTierState::Open { statistics } if statistics.put_failures + statistics.puts_not_tried > 0 => {
            // A working store skips only entries that are too large, unless an earlier write failed.
            let is_too_large = statistics.put_failures == 0;
            let fault = if is_too_large { "larger than the maximum entry size of the store" } else { "a write failed" };
            Some(write_fault(statistics).unwrap_or_else(|| fault.to_string()))
        }
        _ => None,
    }
}

/// Returns why a store does not write; `None` if it does.
pub(crate) fn write_fault(statistics: &StoreStatistics) -> Option<String> {
    match &statistics.writing {
        Writing::On => None,
        Writing::ReadOnly(reason) | Writing::Paused(reason) => Some(reason.clone()),
    }
}
