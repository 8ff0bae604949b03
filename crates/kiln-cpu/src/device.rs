//! The CPU device: memory maps as memory, commands run by the caller with the help of the device's threads.

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

/// Copies and fills from this size on use all threads. A copy of this size gains nothing or a little, a larger one more
/// (`cargo bench -p kiln-cpu`); a smaller one is over before a sleeping thread is awake.
const MIN_PARALLEL_BYTES: usize = 1 << 20;
/// What one thread takes at a time: small enough that a thread which comes late still finds some.
const CHUNK_BYTES: usize = 512 << 10;

/// The CPU as a device. [`open`](crate::open) puts a pool on it.
///
/// A submission has ended when [`submit`](DeviceApi::submit) returns, so nothing ever waits.
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    default_usage: Usage,
    threads: Threads,
    simd: SimdLevel,
    /// Submissions that have ended, which are all that have a number.
    submissions: AtomicU64,
    heap: Heap,
    fault: OnceLock<Error>,
    recorder: Recorder,
    kernels: Kernels,
    kernel_time: Option<Duration>,
    plans_as_wgsl: bool,
}

impl CpuDevice {
    /// A device without a pool. It starts no thread before it needs one.
    ///
    /// # Errors
    /// `InvalidArgument` where the options ask for no thread; `Unsupported` where they ask for vector instructions that
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

    /// The vector instructions that its kernels use.
    pub fn simd(&self) -> SimdLevel {
        self.simd
    }

    /// The threads that its kernels run on.
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Takes what the sanitizer found since the last time; nothing where it is off.
    #[cfg(feature = "wgsl")]
    pub fn take_findings(&self) -> Vec<crate::Finding> {
        self.kernels.take_findings()
    }

    fn check_fault(&self) -> Result<()> {
        self.fault().map_or(Ok(()), Err)
    }

    /// Ends a submission, well or not: the recorder learns which kernels ran, where it is on.
    fn end(&self, result: Result<()>, timer: Option<KernelTimer>) -> Result<u64> {
        // Given last, so that all numbers are of submissions that have ended, whatever thread they ran on.
        let number = self.submissions.fetch_add(1, Ordering::AcqRel) + 1;
        if let Some(timer) = timer {
            self.recorder.record(number, timer.runs);
        }
        result.map(|()| number)
    }

    /// Where kernels are timed; `None` while nobody watches.
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
                let message = format!("CPU device expected a command that it knows, found {other:?}");
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }

    /// Runs steps of a plan as a submission. A panic ends the device, on whatever thread: what it should have written is not there.
    pub(crate) fn run_native(
        &self,
        name: &str,
        run: impl FnOnce(Option<&mut KernelTimer>) -> Result<()>,
    ) -> Result<u64> {
        let mut timer = self.timer();
        let result = catch_unwind(AssertUnwindSafe(|| run(timer.as_mut()))).unwrap_or_else(|payload| {
            Err(Error::new(ErrorKind::Internal, format!("panicked: {}", panic_text(&*payload))))
        });
        let result = result.map_err(|error| {
            let error = error.context(format!("plan `{name}`"));
            if error.kind() != ErrorKind::Internal {
                return error;
            }
            self.fault.get_or_init(|| error.context("CPU device")).clone()
        });
        self.end(result, timer)
    }

    /// Runs a kernel. One that takes too long ends the device: what it should have written is not there.
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

    /// Calls `task` with chunks of `bytes` and their offsets, on all threads where that is faster. A panic ends the
    /// device: what it should have written is not there.
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

    /// Nothing that should have been written by the thread that panicked is ever read as if it had been.
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

        // Before the list: a guard in it would live to its end.
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
