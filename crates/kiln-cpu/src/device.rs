//! The CPU device: buffers are memory maps, and commands run on the caller's thread with the help of the device's
//! threads.

use crate::heap::Heap;
use crate::kernel::Kernels;
use crate::map::{Map, bytes_of, bytes_of_mut};
use crate::native::{KernelTimer, NativePlan};
use crate::threads::panic_text;
use crate::{CpuOptions, SimdLevel, Threads, identity};
use kiln_device::memory::{MemoryProperties, RawBlock, Region, RegionMut};
use kiln_device::{
    Artifact, Command, CompiledPlan, Device, DeviceApi, DeviceInfo, Dispatch, KernelModule, Loaded, RawMemory,
    Recorder, Usage, WgslPlan,
};
use kiln_ir::plan::{Plan, Target};
use kiln_ir::{Error, ErrorKind, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Minimum size of a copy or fill that uses all threads. A copy of this size gains little or nothing, a larger one
/// more (`cargo bench -p kiln-cpu`); a smaller one ends before a parked thread wakes up.
const MIN_PARALLEL_BYTES: usize = 1 << 20;
/// Bytes that one thread takes at a time: small enough that a late thread still finds work.
const CHUNK_BYTES: usize = 512 << 10;

/// The CPU as a device. [`open`](crate::open) adds a pool.
///
/// [`submit`](DeviceApi::submit) is synchronous: a submission has completed when it returns, so nothing ever waits.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_cpu::{CpuDevice, CpuOptions, NATIVE_DRIVER};
/// use kiln_device::DeviceApi;
///
/// let device = CpuDevice::new(&CpuOptions::new())?;
/// assert_eq!(device.info().driver, NATIVE_DRIVER);
/// assert_eq!(device.info().id, kiln_cpu::info().id);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    default_usage: Usage,
    threads: Threads,
    simd: SimdLevel,
    /// Number of completed submissions. Only completed submissions have a number.
    submissions: AtomicU64,
    heap: Heap,
    fault: OnceLock<Error>,
    recorder: Recorder,
    kernels: Kernels,
    kernel_time: Option<Duration>,
    plans_as_wgsl: bool,
}

impl CpuDevice {
    /// Creates a device without a pool. Threads are started when first needed.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the options request zero threads; `Unsupported` if they request a SIMD level that
    /// the processor lacks.
    pub fn new(options: &CpuOptions) -> Result<Self> {
        let (threads, default_usage) = (Threads::new(options.thread_count()?)?, options.default_usage());
        let simd = options.simd_level()?;
        let kernels = Kernels::new(simd, options.is_sanitized);
        Ok(Self {
            info: identity::describe(threads.count(), simd, default_usage, &kernels),
            default_usage,
            threads,
            simd,
            submissions: AtomicU64::new(0),
            heap: Heap::default(),
            fault: OnceLock::new(),
            recorder: Recorder::new(),
            kernels,
            kernel_time: options.time_limit.0,
            plans_as_wgsl: options.plans_as_wgsl,
        })
    }

    /// Returns the SIMD level of its kernels.
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// Returns the threads that run its kernels.
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Takes the sanitizer's findings since the last call; empty if it is off.
    #[cfg(feature = "wgsl")]
    pub fn take_findings(&self) -> Vec<crate::Finding> {
        self.kernels.take_findings()
    }

    fn check_fault(&self) -> Result<()> {
        self.fault().map_or(Ok(()), Err)
    }

    /// Completes a submission, successful or not, and passes its kernel runs to the recorder if it is on.
    fn end(&self, result: Result<()>, timer: Option<KernelTimer>) -> Result<u64> {
        // Assigned last, so that every number belongs to a completed submission, on whatever thread it ran.
        // AcqRel: a thread that observes the number also observes the writes of the submission.
        let number = self.submissions.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(timer) = timer {
            self.recorder.record(number, timer.runs);
        }
        result.map(|()| number)
    }

    /// Returns a timer for kernels; `None` if the recorder is off.
    #[inline]
    fn timer(&self) -> Option<KernelTimer> {
        self.recorder.is_on().then(KernelTimer::default)
    }

    fn execute(&self, command: &Command, timer: Option<&mut KernelTimer>) -> Result<()> {
        match command {
            Command::Copy { from, to, .. } => {
                let (from, mut to) = kiln_device::access_pair(from, to);
                self.copy(bytes_of(&from.region())?, bytes_of_mut(&mut to.region_mut())?)
            }
            Command::Zero { buffer } => {
                let mut buffer = buffer.access_mut();
                self.in_chunks(bytes_of_mut(&mut buffer.region_mut())?, &|_, bytes| bytes.fill(0))
            }
            Command::Dispatch(dispatch) => self.run_kernel(dispatch, timer),
            other => {
                let message = format!("CPU device expected a supported command, found {other:?}");
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }

    /// Runs steps of a plan as a submission. A panic on any thread loses the device, because the output is
    /// incomplete.
    pub(crate) fn run_native(
        &self,
        name: &str,
        run: impl FnOnce(Option<&mut KernelTimer>) -> Result<()>,
    ) -> Result<u64> {
        let mut timer = self.timer();
        // Unwind-safe: the panic becomes an `Internal` error, and after one the device refuses all further work.
        let result = catch_unwind(AssertUnwindSafe(|| run(timer.as_mut()))).unwrap_or_else(|payload| {
            Err(Error::new(ErrorKind::Internal, format!("panicked: {}", panic_text(&*payload))))
        });
        let result = result.map_err(|error| {
            let error = error.context(format!("plan `{name}`"));
            // An operand with invalid elements, such as an index out of range: the device remains usable.
            if error.kind() != ErrorKind::Internal {
                return error;
            }
            self.fault.get_or_init(|| error.context("CPU device")).clone()
        });
        self.end(result, timer)
    }

    /// Runs a kernel. Exceeding the time limit loses the device, because the output is incomplete.
    fn run_kernel(&self, dispatch: &Dispatch, timer: Option<&mut KernelTimer>) -> Result<()> {
        let began = timer.is_some().then(Instant::now);
        let name = dispatch.kernel().name();
        let is_done = self.kernels.run(dispatch, &self.threads, self.kernel_time);
        let is_done = is_done.map_err(|error| error.context(format!("kernel `{name}`")))?;
        if !is_done {
            let limit = self.kernel_time.unwrap_or_default();
            let message =
                format!("CPU device: kernel `{name}` expected to end within {limit:?}, found it still running");
            return Err(self.fault.get_or_init(|| Error::new(ErrorKind::DeviceLost, message)).clone());
        }
        if let (Some(timer), Some(began)) = (timer, began) {
            timer.add(name, dispatch.cost(), began);
        }
        Ok(())
    }

    fn copy(&self, from: &[u8], to: &mut [u8]) -> Result<()> {
        if from.len() != to.len() {
            let message = format!("copy expected equal lengths, found {} and {} bytes", from.len(), to.len());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        self.in_chunks(to, &|offset, to| to.copy_from_slice(&from[offset..offset + to.len()]))
    }

    /// Calls `task` with chunks of `bytes` and their offsets, on all threads if that is faster. A panic loses the
    /// device, because the output is incomplete.
    fn in_chunks(&self, bytes: &mut [u8], task: &(dyn Fn(usize, &mut [u8]) + Sync)) -> Result<()> {
        if bytes.len() < MIN_PARALLEL_BYTES {
            task(0, bytes);
            return Ok(());
        }
        let run = self.threads.run_chunks(bytes, CHUNK_BYTES, &|chunk, bytes| task(chunk * CHUNK_BYTES, bytes));
        run.map_err(|error| self.fault.get_or_init(|| error.context("CPU device")).clone())
    }
}

impl DeviceApi for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, commands: &[Command]) -> Result<u64> {
        self.check_fault()?;
        let mut timer = self.timer();
        let result = commands.iter().try_for_each(|command| self.execute(command, timer.as_mut()));
        self.end(result, timer)
    }

    fn target(&self) -> Target {
        match self.plans_as_wgsl {
            true => WgslPlan::target(&self.info),
            false => Target { max_tensor_bytes: self.info.limits.max_buffer_bytes, ..Target::CPU },
        }
    }

    fn compile(self: Arc<Self>, device: &Device, plan: &Arc<Plan>) -> Result<Arc<dyn CompiledPlan>> {
        if self.plans_as_wgsl {
            return Ok(Arc::new(WgslPlan::new(device, plan)?));
        }
        Ok(Arc::new(NativePlan::new(self, device, plan)?))
    }

    fn translate(&self, program: &KernelModule) -> Result<Artifact> {
        self.kernels.translate(program)
    }

    fn load(&self, artifact: &Artifact) -> Result<Loaded> {
        self.check_fault()?;
        Kernels::load(artifact)
    }

    fn notify(&self, _: u64, waker: Waker) {
        // Every numbered submission is complete, so there is nothing to wait for.
        waker.wake();
    }

    fn fault(&self) -> Option<Error> {
        self.fault.get().cloned()
    }
}

impl RawMemory for CpuDevice {
    fn properties(&self) -> MemoryProperties {
        MemoryProperties {
            default_usage: self.default_usage,
            default_budget_bytes: self.info.memory.default_budget_bytes,
            max_block_bytes: self.info.limits.max_buffer_bytes,
            copy_alignment: 1,
            divisible: true,
        }
    }

    fn allocate(&self, bytes: u64, _: Usage) -> Result<RawBlock> {
        Map::new(bytes, self.info.limits.max_buffer_bytes, self.heap.freed()).map(RawBlock::new)
    }

    fn completed(&self) -> u64 {
        self.submissions.load(Ordering::Acquire)
    }

    fn wait(&self, submission: u64) -> Result<()> {
        let last = self.completed();
        // A submission completes before `submit` returns its number, so a higher number was never returned.
        if submission > last {
            let message = format!("CPU device expected a submission up to {last}, found {submission}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        Ok(())
    }

    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.check_fault()?;
        read(bytes_of(&region)?);
        Ok(())
    }

    fn map_mut(&self, mut region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.check_fault()?;
        write(bytes_of_mut(&mut region)?);
        Ok(())
    }

    fn tidy(&self) {
        self.heap.tidy();
    }

    fn recorder(&self) -> Option<&Recorder> {
        Some(&self.recorder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_device::CommandList;

    /// The incomplete output of a thread that panicked can never be read.
    #[test]
    fn a_panic_in_a_thread_ends_the_device_for_good() {
        let api = Arc::new(CpuDevice::new(&CpuOptions::new().threads(2)).unwrap());
        let device = Device::new(Arc::clone(&api) as Arc<dyn DeviceApi>, CpuOptions::new().into_parts().0).unwrap();
        let buffer = device.buffer_from(&[1u8; 100]).unwrap();
        let mut large = vec![0; 2 * MIN_PARALLEL_BYTES];
        let error = api.in_chunks(&mut large, &|offset, _| assert!(offset != CHUNK_BYTES, "planted")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        let message = error.to_string();
        assert!(message.starts_with("CPU device: part 1 of 4 panicked on thread `"), "{message}");
        assert!(message.ends_with("`: planted"), "{message}");

        // Not inline in the array: temporaries there, such as guards, would live until the end of the statement.
        let bytes = buffer.as_bytes();
        let read = api.map(bytes.access().region(), &mut |_| {});
        let write = api.map_mut(bytes.access_mut().region_mut(), &mut |_| {});
        let later = [
            read.unwrap_err(),
            write.unwrap_err(),
            device.submit(CommandList::new()).unwrap_err(),
            device.synchronize().unwrap_err(),
            device.buffer(16).unwrap_err(),
            buffer.read().unwrap_err(),
            buffer.write(&[2; 100]).unwrap_err(),
            buffer.zero().unwrap_err(),
            api.submit(&[]).unwrap_err(),
            api.in_chunks(&mut large, &|_, _| panic!("planted later")).unwrap_err(),
            api.fault().unwrap(),
        ];
        for error in later {
            assert_eq!(error.to_string(), message);
        }
    }
}
