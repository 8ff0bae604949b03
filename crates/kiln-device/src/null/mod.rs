//! A device without hardware for tests: memory of byte vectors, a record of all operations, and injected faults.

mod faults;
mod record;

pub use record::Record;

use crate::command::{BoundValue, Command};
use crate::device::{Device, DeviceApi, Loaded};
use crate::info::{DeviceInfo, DeviceKind, DeviceLimits, DeviceMemory, fingerprint};
use crate::kernel::{Artifact, Code, KernelCacheOptions, KernelModule, RawKernel, RuntimeChecks};
use crate::memory::{MemoryProperties, RawBlock, RawMemory, Region, RegionMut, Usage};
use crate::observe::{KernelRun, Recorder};
use crate::pool::PoolOptions;
use faults::Faults;
use kiln_ir::{Error, ErrorKind, Result, bail, error};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

/// A device whose memory is byte vectors. Clones refer to the same device, so a test can keep one to inspect.
///
/// Submissions run when they complete, not when they are submitted: with [manual completion](Self::manual_completion),
/// a buffer that is reused too early produces wrong results.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::{NullDevice, Record};
///
/// let null = NullDevice::new();
/// let device = null.clone().into_device()?;
/// null.fail_allocation(1);
/// assert!(device.buffer(1 << 20).is_ok(), "the pool tries again");
/// assert!(matches!(null.records()[..], [Record::AllocationFailed { .. }, Record::Allocate { .. }]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct NullDevice {
    shared: Arc<Shared>,
    properties: MemoryProperties,
    capacity_bytes: u64,
    manual: bool,
    kernels: BTreeMap<String, HostKernel>,
    recorder: Recorder,
}

/// The host implementation of a kernel.
type HostKernel = Arc<dyn Fn(&mut NullArguments) + Send + Sync>;

/// The arguments of a dispatch on the null device.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::{KernelSource, NullArguments, NullDevice};
///
/// let fill = |arguments: &mut NullArguments| arguments.buffers.values_mut().for_each(|bytes| bytes.fill(7));
/// let device = NullDevice::new().with_kernel("fill", fill).into_device()?;
/// let source = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
///     @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = 0x07070707u; }";
/// let mut out = device.buffer_from(&[0u32; 16])?;
/// device.kernel(KernelSource::wgsl(source).named("fill"))?.launch().bind("out", &mut out).over(16)?;
/// assert_eq!(out.read()?, [0x07070707; 16]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NullArguments {
    /// The content of the buffers, by index of their bindings.
    pub buffers: BTreeMap<u32, Vec<u8>>,
    /// The values, by index of their bindings.
    pub values: BTreeMap<u32, Vec<u8>>,
    /// Workgroups along each axis.
    pub workgroups: [u32; 3],
}

struct Shared {
    info: DeviceInfo,
    state: Mutex<State>,
    /// Locked while submissions run, so that they run in order and have taken effect when they count as completed.
    running: Mutex<()>,
}

#[derive(Default)]
struct State {
    records: Vec<Record>,
    faults: Faults,
    live_bytes: u64,
    submitted: u64,
    completed: u64,
    queue: VecDeque<(u64, Vec<QueuedCommand>)>,
    wakers: Vec<(u64, Waker)>,
    fault: Option<Error>,
}

/// A command with the raw blocks that it uses. Like a driver, it does not keep the buffers alive.
enum QueuedCommand {
    Copy { from: Span, to: Span },
    Zero { span: Span },
    Dispatch { kernel: Option<HostKernel>, spans: Vec<(u32, Span)>, values: Vec<BoundValue>, workgroups: [u32; 3] },
}

struct Span {
    raw: Arc<RawBlock>,
    range: Range<usize>,
}

struct NullBlock {
    /// Words of 16 bytes, so that every element type is aligned.
    words: RwLock<Vec<u128>>,
    bytes: u64,
    shared: Arc<Shared>,
}

impl Drop for NullBlock {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.live_bytes -= self.bytes;
        state.records.push(Record::Release { bytes: self.bytes });
    }
}

impl NullDevice {
    /// Creates a device with 1 GiB of memory shared with the host, whose submissions complete immediately.
    pub fn new() -> Self {
        let budget = 1 << 30;
        let properties = MemoryProperties {
            default_usage: Usage::Shared,
            default_budget_bytes: budget,
            max_block_bytes: budget,
            copy_alignment: 4,
            divisible: false,
        };
        let info = DeviceInfo {
            id: "null".into(),
            name: "null device".into(),
            kind: DeviceKind::Null,
            driver: "null".into(),
            driver_version: env!("CARGO_PKG_VERSION").into(),
            compiler: Some("null".into()),
            fingerprint: fingerprint(&["null", env!("CARGO_PKG_VERSION")]),
            limits: DeviceLimits {
                max_buffer_bytes: budget,
                max_binding_bytes: budget,
                binding_alignment_bytes: 16,
                max_workgroups_per_axis: 65535,
                max_value_bytes: 64 << 10,
                max_workgroup_size: [256, 256, 64],
                max_workgroup_invocations: 256,
                max_workgroup_bytes: 16 << 10,
                subgroup_size: None,
                threads: None,
            },
            features: BTreeSet::new(),
            memory: DeviceMemory { total_bytes: None, default_budget_bytes: budget, shared_with_host: true },
        };
        let shared = Arc::new(Shared { info, state: Mutex::default(), running: Mutex::default() });
        Self {
            shared,
            properties,
            capacity_bytes: u64::MAX,
            manual: false,
            kernels: BTreeMap::new(),
            recorder: Recorder::new(),
        }
    }

    /// Changes the properties of the memory.
    pub fn with_properties(mut self, change: impl FnOnce(&mut MemoryProperties)) -> Self {
        change(&mut self.properties);
        self
    }

    /// Sets the amount of memory. The driver refuses allocations beyond it, whatever the pool's budget is.
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// Makes submissions complete when they are awaited or by [`complete`](Self::complete), instead of immediately.
    pub fn manual_completion(mut self) -> Self {
        self.manual = true;
        self
    }

    /// Sets the host implementation of a kernel. A kernel without one is checked and recorded, and has no effect.
    pub fn with_kernel(
        mut self,
        name: impl Into<String>,
        run: impl Fn(&mut NullArguments) + Send + Sync + 'static,
    ) -> Self {
        self.kernels.insert(name.into(), Arc::new(run));
        self
    }

    /// Changes the description of the device.
    ///
    /// # Panics
    /// Panics if the device has clones.
    pub fn with_info(mut self, change: impl FnOnce(&mut DeviceInfo)) -> Self {
        let shared = Arc::get_mut(&mut self.shared).expect("the device has no clones yet");
        change(&mut shared.info);
        self
    }

    /// Creates a device with a pool of default options.
    ///
    /// # Errors
    /// Returns no error currently, because the default options are valid.
    pub fn into_device(self) -> Result<Device> {
        self.into_device_with(PoolOptions::new())
    }

    /// Creates a device with these pool options.
    ///
    /// # Errors
    /// Returns the same errors as [`Device::new`].
    pub fn into_device_with(self, pool: PoolOptions) -> Result<Device> {
        Device::new(Arc::new(self), pool)
    }

    /// Creates a device with these kernel cache options.
    ///
    /// # Errors
    /// Returns the same errors as [`Device::with_kernels`].
    pub fn into_device_with_kernels(self, kernels: KernelCacheOptions) -> Result<Device> {
        Device::with_kernels(Arc::new(self), PoolOptions::new(), kernels)
    }

    /// Returns all recorded operations.
    pub fn records(&self) -> Vec<Record> {
        self.shared.state.lock().records.clone()
    }

    /// Removes all records.
    pub fn clear_records(&self) {
        self.shared.state.lock().records.clear();
    }

    /// Returns the bytes that are allocated and not released.
    pub fn live_bytes(&self) -> u64 {
        self.shared.state.lock().live_bytes
    }

    /// Makes the `n`-th allocation from now fail with `OutOfMemory`; 1 is the next.
    pub fn fail_allocation(&self, n: u64) {
        self.shared.state.lock().faults.allocation.arm(n);
    }

    /// Makes the `n`-th map from now fail; 1 is the next.
    pub fn fail_map(&self, n: u64) {
        self.shared.state.lock().faults.map.arm(n);
    }

    /// Makes the `n`-th translation of a kernel from now fail with `CompileFailed`; 1 is the next.
    pub fn fail_translation(&self, n: u64) {
        self.shared.state.lock().faults.translation.arm(n);
    }

    /// Makes the `n`-th load of a translated kernel from now fail with `CompileFailed`; 1 is the next.
    pub fn fail_load(&self, n: u64) {
        self.shared.state.lock().faults.load.arm(n);
    }

    /// Makes the `n`-th submission from now have no effect; 1 is the next. The device is lost when that submission
    /// completes.
    pub fn skip_submission(&self, n: u64) {
        self.shared.state.lock().faults.skip.arm(n);
    }

    /// Makes the device be lost during the `n`-th submission from now; 1 is the next.
    pub fn lose_submission(&self, n: u64) {
        self.shared.state.lock().faults.submission.arm(n);
    }

    /// Completes submissions up to `submission`: runs their commands and wakes the waiting tasks.
    pub fn complete(&self, submission: u64) {
        // Lock order: `running` before `state`.
        let running = self.shared.running.lock();
        let mut state = self.shared.state.lock();
        while state.fault.is_none() && state.queue.front().is_some_and(|(number, _)| *number <= submission) {
            let Some((number, commands)) = state.queue.pop_front() else { break };
            let (lost, skipped) = (state.faults.lost.contains(&number), state.faults.skipped.contains(&number));
            if lost || skipped {
                let how = if lost { "was lost while it ran" } else { "did nothing in" };
                let message = format!("device `null` {how} submission {number}");
                state.fault = Some(Error::new(ErrorKind::DeviceLost, message));
                // The rest of the queue never runs. Dropped unlocked, because it may hold the last reference to a
                // block, whose drop takes the lock.
                let never = std::mem::take(&mut state.queue);
                parking_lot::MutexGuard::unlocked(&mut state, || drop((commands, never)));
                break;
            }
            // Unlocked, because kernels are user code. `running` keeps other threads from running the next submission.
            parking_lot::MutexGuard::unlocked(&mut state, || commands.into_iter().for_each(run));
            state.completed = state.completed.max(number);
            state.records.push(Record::Complete { submission: number });
        }
        let (done, lost) = (state.completed, state.fault.is_some());
        let ready: Vec<Waker> =
            state.wakers.extract_if(.., |(number, _)| lost || *number <= done).map(|(_, waker)| waker).collect();
        drop(state);
        drop(running);
        // Woken without locks, because a waker may use the device.
        ready.into_iter().for_each(Waker::wake);
    }
}

impl Default for NullDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl RawMemory for NullDevice {
    fn properties(&self) -> MemoryProperties {
        self.properties
    }

    fn allocate(&self, bytes: u64, usage: Usage) -> Result<RawBlock> {
        let mut state = self.shared.state.lock();
        let injected = state.faults.allocation.fires();
        let live = state.live_bytes.saturating_add(bytes);
        if injected || live > self.capacity_bytes {
            state.records.push(Record::AllocationFailed { bytes, usage });
            let why =
                if injected { "an injected fault".into() } else { format!("{live} of {} bytes", self.capacity_bytes) };
            bail!(OutOfMemory, "null device found {why}");
        }
        state.live_bytes = live;
        state.records.push(Record::Allocate { bytes, usage });
        let words = RwLock::new(vec![0; bytes.div_ceil(16) as usize]);
        Ok(RawBlock::new(NullBlock { words, bytes, shared: Arc::clone(&self.shared) }))
    }

    fn completed(&self) -> u64 {
        let state = self.shared.state.lock();
        // A lost device completes nothing more. Its blocks must not stay pending forever.
        if state.fault.is_some() { u64::MAX } else { state.completed }
    }

    fn wait(&self, submission: u64) -> Result<()> {
        self.complete(submission);
        self.fault().map_or(Ok(()), Err)
    }

    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.begin_map(region, false)?;
        let words = copy_out(region)?;
        read(&bytemuck::cast_slice(&words)[..region.bytes() as usize]);
        Ok(())
    }

    fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        self.begin_map(region.as_region(), true)?;
        // Copied out and in, so that the closure may use other regions of the same raw block.
        let mut words = copy_out(region.as_region())?;
        let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(&mut words)[..region.bytes() as usize];
        write(bytes);
        let block = null_block(region.raw())?;
        bytemuck::cast_slice_mut(&mut block.words.write())[range(region.as_region())].copy_from_slice(bytes);
        Ok(())
    }

    fn recorder(&self) -> Option<&Recorder> {
        Some(&self.recorder)
    }

    fn driver_bytes(&self) -> Option<u64> {
        Some(self.live_bytes())
    }
}

impl DeviceApi for NullDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn submit(&self, commands: &[Command]) -> Result<u64> {
        // Before the state is locked: this locks the location of each buffer, and `map` locks the state with a location
        // locked.
        let queued = commands.iter().map(|command| QueuedCommand::new(command, &self.kernels)).collect();
        let submission = {
            let mut state = self.shared.state.lock();
            if let Some(fault) = &state.fault {
                return Err(fault.clone());
            }
            state.submitted += 1;
            let submission = state.submitted;
            if state.faults.submission.fires() {
                state.faults.lost.insert(submission);
            }
            if state.faults.skip.fires() {
                state.faults.skipped.insert(submission);
            }
            for dispatch in commands.iter().filter_map(Command::as_dispatch) {
                let kernel = dispatch.kernel().name().to_string();
                state.records.push(Record::Dispatch { kernel, workgroups: dispatch.workgroups() });
            }
            state.records.push(Record::Submit { submission, commands: commands.len() });
            state.queue.push_back((submission, queued));
            submission
        };
        if self.recorder.is_on() {
            let dispatches = commands.iter().filter_map(Command::as_dispatch);
            self.recorder.record(submission, dispatches.map(KernelRun::untimed).collect());
        }
        if !self.manual {
            self.complete(submission);
        }
        Ok(submission)
    }

    fn translate(&self, program: &KernelModule) -> Result<Artifact> {
        let mut state = self.shared.state.lock();
        state.records.push(Record::Translate { kernel: program.key.name().to_string() });
        if state.faults.translation.fires() {
            bail!(CompileFailed, "null device found an injected fault of a translation");
        }
        Ok(Artifact {
            reflection: program.reflection.clone(),
            code: Code::Wgsl(program.key.to_source().text().to_string()),
            driver_blob: None,
            checks: RuntimeChecks { bounds: program.key.options().bounds_checks, loops: true, zero_workgroup: true },
        })
    }

    fn load(&self, artifact: &Artifact) -> Result<Loaded> {
        let mut state = self.shared.state.lock();
        state.records.push(Record::Load { bytes: artifact.bytes(), checks: artifact.checks });
        if state.faults.load.fires() {
            bail!(CompileFailed, "null device found an injected fault of a load");
        }
        Ok(Loaded { kernel: RawKernel::new(()), driver_blob: None })
    }

    fn notify(&self, submission: u64, waker: Waker) {
        let mut state = self.shared.state.lock();
        if state.fault.is_some() || state.completed >= submission {
            drop(state);
            waker.wake();
        } else {
            state.wakers.push((submission, waker));
        }
    }

    fn fault(&self) -> Option<Error> {
        self.shared.state.lock().fault.clone()
    }
}

impl NullDevice {
    fn begin_map(&self, region: Region<'_>, write: bool) -> Result<()> {
        let mut state = self.shared.state.lock();
        let failed = state.faults.map.fires();
        state.records.push(Record::Map { bytes: region.bytes(), write, failed });
        if failed {
            bail!(Internal, "null device found an injected fault of a map");
        }
        Ok(())
    }
}

impl QueuedCommand {
    fn new(command: &Command, kernels: &BTreeMap<String, HostKernel>) -> Self {
        match command {
            Command::Copy { from, to, .. } => Self::Copy { from: Span::new(from), to: Span::new(to) },
            Command::Zero { buffer } => Self::Zero { span: Span::new(buffer) },
            Command::Dispatch(dispatch) => Self::Dispatch {
                kernel: kernels.get(dispatch.kernel().name()).cloned(),
                spans: dispatch.buffers().iter().map(|bound| (bound.slot, Span::new(&bound.buffer))).collect(),
                values: dispatch.values().to_vec(),
                workgroups: dispatch.workgroups(),
            },
        }
    }
}

impl Span {
    fn new(buffer: &crate::buffer::Buffer) -> Self {
        let (raw, offset) = buffer.access().raw();
        let start = offset as usize;
        Self { raw, range: start..start + buffer.bytes() as usize }
    }

    fn with(&self, change: impl FnOnce(&mut [u8])) {
        if let Ok(block) = null_block(&self.raw) {
            change(&mut bytemuck::cast_slice_mut(&mut block.words.write())[self.range.clone()]);
        }
    }
}

fn run(command: QueuedCommand) {
    match command {
        QueuedCommand::Copy { from, to } => {
            let mut bytes = Vec::new();
            // Through a copy: both spans may be slots of one raw block, whose lock cannot be taken twice.
            from.with(|from| bytes.extend_from_slice(from));
            to.with(|to| to.copy_from_slice(&bytes));
        }
        QueuedCommand::Zero { span } => span.with(|bytes| bytes.fill(0)),
        QueuedCommand::Dispatch { kernel: None, .. } => {}
        QueuedCommand::Dispatch { kernel: Some(kernel), spans, values, workgroups } => {
            let values = values.into_iter().map(|value| (value.slot, value.bytes)).collect();
            let mut arguments = NullArguments { buffers: BTreeMap::new(), values, workgroups };
            for (slot, span) in &spans {
                span.with(|bytes| drop(arguments.buffers.insert(*slot, bytes.to_vec())));
            }
            kernel(&mut arguments);
            for (slot, span) in &spans {
                if let Some(changed) = arguments.buffers.get(slot) {
                    span.with(|bytes| bytes.copy_from_slice(changed));
                }
            }
        }
    }
}

fn null_block(raw: &RawBlock) -> Result<&NullBlock> {
    raw.downcast_ref().ok_or_else(|| error!(Internal, "null device expected a block of its own, found another"))
}

fn range(region: Region<'_>) -> Range<usize> {
    region.offset() as usize..(region.offset() + region.bytes()) as usize
}

/// Copies the bytes of a region into words that are aligned for every element type.
fn copy_out(region: Region<'_>) -> Result<Vec<u128>> {
    let block = null_block(region.raw())?;
    let mut words = vec![0; region.bytes().div_ceil(16) as usize];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    bytes[..region.bytes() as usize].copy_from_slice(&bytemuck::cast_slice(&block.words.read())[range(region)]);
    Ok(words)
}
