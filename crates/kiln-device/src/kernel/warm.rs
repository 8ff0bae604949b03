//! Compiles or loads kernels before they are needed: those of a list, or the most used ones on disk.

use super::key::KernelKey;
use super::source::KernelSource;
use super::{Origin, PreparedKernel};
use crate::device::Device;
use kiln_ir::{Error, Result, error};
use serde::Serialize;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The result of a warm-up.
///
/// ```
/// use kiln_device::{KernelSource, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let good = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
/// let report = device.warm_kernels(&[good, KernelSource::wgsl("not a kernel").named("bad")], None);
/// assert_eq!((report.compiled, report.failed.len()), (1, 1));
/// assert_eq!(report.failed[0].kernel, "bad");
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct KernelWarmReport {
    /// Kernels that were compiled.
    pub compiled: usize,
    /// Kernels that were loaded from disk.
    pub loaded: usize,
    /// Kernels that were already in memory.
    pub present: usize,
    /// Repeated entries of the list.
    pub repeated: usize,
    /// Kernels that could not be compiled or loaded.
    pub failed: Vec<KernelWarmFailure>,
    /// Kernels that were skipped because the warm-up was cancelled.
    pub cancelled: usize,
    /// The duration.
    pub time: Duration,
}

/// A kernel that could not be compiled or loaded.
///
/// See [`KernelWarmReport`] for an example.
#[derive(Clone, Debug, Serialize)]
pub struct KernelWarmFailure {
    /// The name of the kernel.
    pub kernel: String,
    /// The reason.
    #[serde(serialize_with = "as_text")]
    pub error: Error,
}

fn as_text<S: serde::Serializer>(error: &Error, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
}

/// A kernel to prepare: its name, and its key or the reason why it has none.
type Request = (String, Result<KernelKey>);

/// Prepares all kernels of a list on up to `threads` threads.
pub(crate) fn warm(device: &Device, sources: &[KernelSource], threads: NonZeroUsize) -> KernelWarmReport {
    let request = |source: &KernelSource| (source.name().to_string(), KernelKey::new(source, device.info()));
    warm_keys(device, sources.iter().map(request).collect(), threads, &AtomicBool::new(false))
}

/// Prepares kernels on up to `threads` threads, until `cancel` is set.
fn warm_keys(device: &Device, requests: Vec<Request>, threads: NonZeroUsize, cancel: &AtomicBool) -> KernelWarmReport {
    let began = Instant::now();
    let mut report = KernelWarmReport::default();
    let (mut prepared, mut seen) = (Vec::new(), HashSet::new());
    for (kernel, key) in requests {
        match key.map(|key| device.prepare_key(key)) {
            // Repeated entries are prepared once.
            Ok(request) if !seen.insert(request.hash()) => report.repeated += 1,
            Ok(request) => prepared.push(request),
            Err(error) => report.failed.push(KernelWarmFailure { kernel, error }),
        }
    }
    // Threads take the next kernel from a shared counter, because compile times differ widely.
    let next = AtomicUsize::new(0);
    let work = || {
        let mut report = KernelWarmReport::default();
        while let Some(request) = prepared.get(next.fetch_add(1, Ordering::Relaxed)) {
            if cancel.load(Ordering::Relaxed) {
                report.cancelled += 1;
            } else {
                report.add(device, request);
            }
        }
        report
    };
    thread::scope(|scope| {
        let helpers = 1..threads.get().min(prepared.len());
        // If a thread cannot be started, the others do its share.
        let helpers: Vec<_> = helpers.flat_map(|_| thread::Builder::new().spawn_scoped(scope, work)).collect();
        report.join(work());
        for helper in helpers {
            match helper.join() {
                Ok(part) => report.join(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    report.failed.sort_by(|a, b| a.kernel.cmp(&b.kernel));
    report.time = began.elapsed();
    report
}

impl KernelWarmReport {
    fn add(&mut self, device: &Device, request: &PreparedKernel) {
        // Another thread may add or evict the kernel in between. That only affects the report.
        let present = device.kernels().is_in_memory(request.hash());
        match request.kernel().map(|kernel| kernel.origin()) {
            Ok(_) if present => self.present += 1,
            Ok(Origin::Compiled) => self.compiled += 1,
            Ok(Origin::Disk) => self.loaded += 1,
            Err(error) => self.failed.push(KernelWarmFailure { kernel: request.key().name().to_string(), error }),
        }
    }

    fn join(&mut self, other: Self) {
        self.compiled += other.compiled;
        self.loaded += other.loaded;
        self.present += other.present;
        self.repeated += other.repeated;
        self.failed.extend(other.failed);
        self.cancelled += other.cancelled;
    }
}

/// A background load of kernels. Dropping it cancels kernels that have not started and waits for the rest.
///
/// ```
/// use kiln_device::NullDevice;
///
/// let device = NullDevice::new().into_device()?;
/// let report = device.preload_kernels(5)?.wait()?;
/// assert_eq!(report.loaded, 0, "nothing is on disk");
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Debug)]
pub struct Preload {
    cancel: Arc<AtomicBool>,
    thread: Option<JoinHandle<KernelWarmReport>>,
}

impl Preload {
    /// Starts to load the `count` most used kernels on disk for this device.
    pub(crate) fn start(device: &Device, count: usize) -> Result<Self> {
        let cancel = Arc::new(AtomicBool::new(false));
        let (device, stop) = (device.clone(), Arc::clone(&cancel));
        let work = move || warm_keys(&device, most_used(&device, count, &stop), NonZeroUsize::MIN, &stop);
        let thread = thread::Builder::new()
            .name("kiln-preload".to_string())
            .spawn(work)
            .map_err(|error| error!(Io, "preload expected to start a thread, found an error").with_source(error))?;
        Ok(Self { cancel, thread: Some(thread) })
    }

    /// Returns whether all kernels are loaded.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until all kernels are loaded.
    ///
    /// # Errors
    /// Returns `Internal` if loading panicked.
    pub fn wait(mut self) -> Result<KernelWarmReport> {
        self.join().unwrap_or_else(|| Ok(KernelWarmReport::default()))
    }

    fn join(&mut self) -> Option<Result<KernelWarmReport>> {
        let joined = self.thread.take()?.join();
        Some(joined.map_err(|_| error!(Internal, "preload expected to load kernels, found a panic")))
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        self.cancel.store(true, Ordering::Relaxed);
        if let Some(Err(error)) = self.join() {
            tracing::error!(%error, "preload");
        }
    }
}

fn most_used(device: &Device, count: usize, cancel: &AtomicBool) -> Vec<Request> {
    let entries = device.kernels().store().and_then(|store| store.entries().ok()).unwrap_or_default();
    let mut entries: Vec<_> = (entries.iter())
        .take_while(|_| !cancel.load(Ordering::Relaxed))
        .filter_map(|entry| Some((entry, KernelKey::decode(&entry.key).ok()?)))
        .filter(|(_, key)| key.is_for(device.info()))
        .collect();
    entries.sort_by_key(|(entry, _)| std::cmp::Reverse((entry.uses, entry.last_used)));
    entries.truncate(count);
    entries.into_iter().map(|(_, key)| (key.name().to_string(), Ok(key))).collect()
}
