//! [`GpuDevice`]: implements [`DeviceApi`] for a wgpu device.

use crate::adapter::{self, AdapterConfig};
use crate::block::Block;
use crate::encode;
use crate::fault::{Fault, one_line};
use crate::info::max_block_bytes;
use crate::kernel::Kernels;
use crate::map;
use crate::options::GpuOptions;
use crate::poller::Poller;
use crate::scope::ready;
use crate::timeline::Timeline;
use crate::translate::Target;
use crate::values::Pages;
use kiln_device::memory::{MemoryProperties, RawBlock, Region, RegionMut};
use kiln_device::{
    Artifact, Buffer, Command, Device, DeviceApi, DeviceInfo, Feature, KernelModule, Loaded, RawMemory, Recorder, Usage,
};
use kiln_ir::{Error, ErrorKind, Result, bail, error};
use kiln_resource_cache::CacheRegistry;
use std::any::Any;
use std::sync::Arc;
use std::task::Waker;

/// Opens GPU number `index` of [`list`](crate::list).
///
/// See the [crate documentation](crate) for an example.
///
/// # Errors
/// Returns `Unsupported` if there is no such GPU, if its driver refuses to open it, or if it lacks a feature that the
/// options require; `InvalidArgument` if the pool options contradict each other.
pub fn open(index: usize, options: GpuOptions) -> Result<Device> {
    let device = GpuDevice::open(index, &options)?;
    Device::with_kernels(Arc::new(device), options.pool, options.kernels)
}

/// A GPU, opened through wgpu.
///
/// [`open`] wraps it into a [`Device`] with a pool; [`GpuDevice::of`] returns it, for code that uses wgpu directly.
///
/// See the [crate documentation](crate) for an example that opens a GPU.
#[derive(Debug)]
pub struct GpuDevice {
    info: DeviceInfo,
    properties: MemoryProperties,
    // Declared before the timeline, because fields drop in order and the poller's thread uses the timeline.
    poller: Poller,
    timeline: Arc<Timeline>,
    target: Target,
    kernels: Kernels,
    /// Uniform buffers for the values of dispatches.
    pages: Pages,
    value_alignment: u32,
}

impl GpuDevice {
    fn open(index: usize, options: &GpuOptions) -> Result<Self> {
        let adapters = adapter::find()?;
        let Some(adapter) = adapters.get(index) else {
            bail!(Unsupported, "expected the index of a GPU below {}, found {index}", adapters.len());
        };
        let config = AdapterConfig::new(index, adapter, options);
        let info = config.info(adapter);
        let in_context = |error: Error| error.context(format!("device `{}` ({})", info.id, info.name));
        let properties = MemoryProperties {
            default_usage: config.default_usage.clone().map_err(in_context)?,
            default_budget_bytes: info.memory.default_budget_bytes,
            max_block_bytes: max_block_bytes(&config.limits),
            copy_alignment: wgpu::COPY_BUFFER_ALIGNMENT,
            divisible: false,
        };
        let (target, value_alignment) = (config.target, config.limits.min_uniform_buffer_offset_alignment);
        let (device, queue) = request(adapter, config.features, config.limits).map_err(in_context)?;
        let timeline = Arc::new(Timeline::new(device, queue, Arc::new(Fault::new(&info.name))));
        // Before anything is submitted, so that no loss goes unnoticed.
        install_callbacks(&timeline);
        let kernels = Kernels::new(Arc::clone(&timeline), &info.features);
        let (poller, pages) = (Poller::new(Arc::clone(&timeline)), Pages::default());
        Ok(Self { info, properties, poller, timeline, target, kernels, pages, value_alignment })
    }

    /// Returns the queue of the device and its submissions.
    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the kernel loader and its bind groups.
    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Returns the uniform buffers that hold the values of dispatches.
    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Returns the alignment of value offsets in a uniform buffer, in bytes.
    pub(crate) fn value_alignment(&self) -> u32 {
        self.value_alignment
    }

    /// Returns the GPU of a device, or `None` if the device is not a GPU.
    pub fn of(device: &Device) -> Option<&Self> {
        let api: &dyn Any = &**device.api();
        api.downcast_ref()
    }

    /// Returns the wgpu device.
    ///
    /// A wgpu error that no error scope captures puts the Kiln device into the lost state.
    pub fn wgpu_device(&self) -> &wgpu::Device {
        &self.timeline.device
    }

    /// Returns the wgpu queue.
    ///
    /// Submissions made here are ordered with those of Kiln but have no submission number: keep every buffer that they
    /// use alive until they are done.
    /// A wgpu callback must not use the Kiln device: it may run during a submission, and would deadlock.
    pub fn wgpu_queue(&self) -> &wgpu::Queue {
        &self.timeline.queue
    }

    /// Returns the wgpu buffer that contains a buffer, and the offset of its first byte.
    ///
    /// The wgpu buffer is longer than the buffer, is reused for other buffers once the buffer is dropped, and must not
    /// be left mapped.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the buffer does not belong to a GPU.
    pub fn wgpu_buffer(buffer: &Buffer) -> Result<(wgpu::Buffer, u64)> {
        let (block, offset) = encode::find(buffer)?;
        Ok((block.buffer.clone(), offset))
    }
}

impl RawMemory for GpuDevice {
    fn properties(&self) -> MemoryProperties {
        self.properties
    }

    fn allocate(&self, bytes: u64, usage: Usage) -> Result<RawBlock> {
        let max = self.properties.max_block_bytes;
        if bytes > max {
            bail!(TooLarge, "expected at most {max} bytes in one buffer of `{}`, found {bytes}", self.info.name);
        }
        if usage == Usage::Shared && !self.info.features.contains(&Feature::MappableStorage) {
            let message =
                format!("memory for {usage} expected the feature `{}`, found it missing", Feature::MappableStorage);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Block::create(&self.timeline, bytes, usage).map(RawBlock::new)
    }

    fn completed(&self) -> u64 {
        self.timeline.completed()
    }

    fn wait(&self, submission: u64) -> Result<()> {
        self.timeline.wait(submission)
    }

    fn map(&self, region: Region<'_>, read: &mut dyn FnMut(&[u8])) -> Result<()> {
        let range = region.offset()..region.offset() + region.bytes();
        map::read(&self.timeline, Block::of(region.raw())?, range, read)
    }

    fn map_mut(&self, region: RegionMut<'_>, write: &mut dyn FnMut(&mut [u8])) -> Result<()> {
        let range = region.offset()..region.offset() + region.bytes();
        map::write(&self.timeline, Block::of(region.raw())?, range, write)
    }

    fn driver_bytes(&self) -> Option<u64> {
        self.timeline.device.generate_allocator_report().map(|report| report.total_reserved_bytes)
    }

    fn recorder(&self) -> Option<&Recorder> {
        Some(self.timeline.timestamps.recorder())
    }
}

impl DeviceApi for GpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn submit(&self, commands: &[Command]) -> Result<u64> {
        encode::encode_and_enqueue(self, commands)
    }

    fn translate(&self, program: &KernelModule) -> Result<Artifact> {
        self.target.translate(program)
    }

    fn load(&self, artifact: &Artifact) -> Result<Loaded> {
        self.kernels.load(artifact)
    }

    fn register_caches(&self, caches: &CacheRegistry<Device>) -> Result<()> {
        self.kernels.register_caches(caches)
    }

    fn notify(&self, submission: u64, waker: Waker) {
        self.poller.notify(submission, waker);
    }

    fn fault(&self) -> Option<Error> {
        self.timeline.fault.get()
    }
}

fn request(
    adapter: &wgpu::Adapter,
    features: wgpu::Features,
    limits: wgpu::Limits,
) -> Result<(wgpu::Device, wgpu::Queue)> {
    let descriptor = wgpu::DeviceDescriptor {
        label: None,
        required_features: features,
        required_limits: limits,
        experimental_features: wgpu::ExperimentalFeatures::disabled(),
        // wgpu's own allocator uses small blocks: Kiln's pool already caches memory, and idle memory should be
        // returned.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        trace: wgpu::Trace::Off,
    };
    match ready(adapter.request_device(&descriptor)) {
        Some(Ok(device)) => Ok(device),
        Some(Err(error)) => {
            let message =
                format!("expected the driver to open the adapter, found it refused: {}", one_line(&error.to_string()));
            Err(Error::new(ErrorKind::Unsupported, message).with_source(error))
        }
        None => Err(error!(Internal, "expected wgpu to open the adapter without waiting, found it pending")),
    }
}

/// Installs the callbacks that turn a lost wgpu device or an uncaptured error into the fault of the Kiln device.
fn install_callbacks(timeline: &Timeline) {
    // The callbacks hold the fault and not the timeline, which owns the wgpu device: that would be a reference cycle.
    let fault = Arc::clone(&timeline.fault);
    timeline.device.set_device_lost_callback(move |reason, message| {
        let separator = if message.is_empty() { "" } else { ": " };
        fault.set_lost(&format!("the driver reported {reason:?}{separator}{}", one_line(&message)));
    });
    let fault = Arc::clone(&timeline.fault);
    timeline.device.on_uncaptured_error(Arc::new(move |error| {
        fault.set_lost(&format!("uncaptured error: {}", one_line(&error.to_string())));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refused request returns an error with its reason. Requesting a missing feature makes the adapter refuse.
    #[test]
    fn a_refused_request_returns_the_reason() {
        let adapters = match adapter::find() {
            Ok(adapters) => adapters,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "no adapter although `CI` is set: {error}");
                println!("skipped: {error}");
                return;
            }
        };
        let lacking = wgpu::Features::all_webgpu_mask() - adapters[0].features();
        let limits = wgpu::Limits { max_bind_groups: 1000, ..adapters[0].limits() };
        for (features, limits) in [(lacking, adapters[0].limits()), (wgpu::Features::empty(), limits)] {
            let error = request(&adapters[0], features, limits).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains("refused: "), "{error}");
            assert!(std::error::Error::source(&error).is_some());
        }
    }
}
