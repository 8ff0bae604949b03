//! Devices and helpers that the tests share.

use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_device::{Buffer, BufferOptions, Device, Usage};
use kiln_gpu::{GpuOptions, HostAccess};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any test takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Opens a device for one test, which ends it or counts the operations of its pool. `None` without an adapter.
pub(crate) fn open(options: GpuOptions) -> Option<Device> {
    if let Err(error) = kiln_gpu::probe() {
        assert!(std::env::var_os("CI").is_none(), "no adapter although `CI` is set: {error}");
        println!("skipped: {error}");
        return None;
    }
    Some(kiln_gpu::open(0, options).unwrap())
}

/// Returns the shared device with host access in place.
pub(crate) fn in_place() -> Option<Device> {
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    DEVICE.get_or_init(|| open(GpuOptions::new().host_access(HostAccess::InPlace))).clone()
}

/// Returns the shared device with host access through staging.
pub(crate) fn staged() -> Option<Device> {
    static DEVICE: OnceLock<Option<Device>> = OnceLock::new();
    DEVICE.get_or_init(|| open(GpuOptions::new().host_access(HostAccess::Staged))).clone()
}

/// Returns both shared devices; none without an adapter.
pub(crate) fn both() -> impl Iterator<Item = Device> {
    [in_place(), staged()].into_iter().flatten()
}

/// Returns CPU devices that run the same kernels: eight invocations together, and one at a time.
pub(crate) fn cpus() -> [Device; 2] {
    let open = |options: CpuOptions| kiln_cpu::open(options.threads(2)).unwrap();
    [open(CpuOptions::new()), open(CpuOptions::new().simd(SimdLevel::Scalar))]
}

/// Allocates a buffer with these bytes.
pub(crate) fn filled(device: &Device, usage: Usage, bytes: &[u8]) -> Buffer {
    let buffer = device.buffer_with(BufferOptions::new(bytes.len() as u64).usage(usage)).unwrap();
    buffer.write(bytes).unwrap();
    buffer
}

/// Returns bytes that differ between seeds and between positions.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Runs `work` on a thread and fails if it does not end.
pub(crate) fn within_timeout<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(TIMEOUT).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Awaits a future on this thread and fails if it is never woken.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Woken(mpsc::Sender<()>);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            // The receiver is gone if the future ended first.
            let _ = self.0.send(());
        }
    }
    let (sender, receiver) = mpsc::channel();
    let waker = Waker::from(Arc::new(Woken(sender)));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => receiver.recv_timeout(TIMEOUT / 2).expect("a future that is pending is woken"),
        }
    }
}

/// A waker that counts.
#[derive(Default)]
pub(crate) struct Count(AtomicU32);

impl Count {
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until it was woken `expected` times.
    pub(crate) fn wait_for(&self, expected: u32, what: &str) {
        let begin = Instant::now();
        while self.get() != expected {
            assert!(begin.elapsed() < TIMEOUT / 2, "{what}: expected {expected}, found {}", self.get());
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
