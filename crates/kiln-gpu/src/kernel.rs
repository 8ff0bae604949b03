//! Creates wgpu compute pipelines from translated kernels, and the bind groups of their dispatches.

use crate::block::Block;
use crate::encode;
use crate::fault::one_line;
use crate::scope::{catch, check};
use crate::timeline::Timeline;
use kiln_device::{Artifact, Binding, BindingKind, Code, Device, Dispatch, Feature, Loaded, RawKernel, Reflection};
use kiln_ir::{Error, ErrorKind, Result, bail, error};
use kiln_resource_cache::{Cache, CacheRegistry, EvictionPolicy};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The maximum number of cached bind groups.
const MAX_BIND_GROUPS: usize = 512;
/// Estimated bytes of a bind group, and of each buffer in it: heap memory freed per group when 512 groups of 1, 2, 4
/// and 8 buffers were dropped on lavapipe with wgpu 30 (710, 788, 902 and 1193 bytes). A driver may use more.
const BIND_GROUP_BYTES: u64 = 640;
const BINDING_BYTES: u64 = 70;
/// The maximum number of value pages that a kernel keeps bind groups for.
const MAX_PAGES: usize = 8;

/// Loads the kernels of a device and caches their bind groups.
pub(crate) struct Kernels {
    timeline: Arc<Timeline>,
    uses_pipeline_cache: bool,
    /// Length of the driver's pipeline cache data when it is empty.
    empty_blob: OnceLock<usize>,
    next_id: AtomicU64,
    /// A cache of the device's registry, set before the first dispatch.
    bind_groups: OnceLock<Arc<BindGroups>>,
}

/// Cached bind groups.
type BindGroups = Cache<BindKey, wgpu::BindGroup>;

/// The content of a [`RawKernel`] of a GPU.
#[derive(Debug)]
pub(crate) struct GpuKernel {
    id: u64,
    pub(crate) pipeline: wgpu::ComputePipeline,
    buffers: wgpu::BindGroupLayout,
    values: Option<wgpu::BindGroupLayout>,
    /// The size of each value in bytes, in binding order.
    value_bytes: Vec<NonZeroU64>,
    value_groups: Mutex<Vec<(u64, wgpu::BindGroup)>>,
}

/// The bound buffers of a dispatch, stored in it for replays.
pub(crate) struct Bound {
    pub(crate) group: wgpu::BindGroup,
    pub(crate) blocks: Vec<Block>,
}

/// The properties that identify a bind group of buffers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BindKey {
    kernel: u64,
    /// Block id, offset and length of each buffer.
    buffers: Vec<(u64, u64, u64)>,
}

impl Kernels {
    pub(crate) fn new(timeline: Arc<Timeline>, features: &BTreeSet<Feature>) -> Self {
        let uses_pipeline_cache = features.contains(&Feature::PipelineCache);
        let (empty_blob, next_id, bind_groups) = (OnceLock::new(), AtomicU64::new(0), OnceLock::new());
        Self { timeline, uses_pipeline_cache, empty_blob, next_id, bind_groups }
    }

    /// Registers the cache of bind groups in the device's registry.
    pub(crate) fn register_caches(&self, caches: &CacheRegistry<Device>) -> Result<()> {
        let builder = Cache::builder("bind_groups")
            .policy(EvictionPolicy::size_limited_lru(MAX_BIND_GROUPS))
            .weigher(|key: &BindKey, _| BIND_GROUP_BYTES + BINDING_BYTES * key.buffers.len() as u64);
        let bind_groups = caches
            .register(builder)
            .map_err(|error| error!(Internal, "expected a cache of bind groups, found none").with_source(error))?;
        // Two `Device`s over one GPU share the cache of the first.
        let _ = self.bind_groups.set(bind_groups);
        Ok(())
    }

    /// Creates a pipeline from translated code.
    pub(crate) fn load(&self, artifact: &Artifact) -> Result<Loaded> {
        self.timeline.fault.check()?;
        let device = &self.timeline.device;
        let cache = self.pipeline_cache(artifact.driver_blob.as_deref());
        let (kernel, error) = catch(device, || self.create(artifact, cache.as_ref()));
        if let Some(error) = error {
            // The driver's message says more than a device loss that may follow; the next call returns the loss.
            let _ = self.timeline.poll(wgpu::PollType::Poll);
            let description = match &error {
                wgpu::Error::OutOfMemory { .. } => {
                    let message = "expected the driver to load a kernel, found its memory exhausted";
                    return Err(Error::new(ErrorKind::OutOfMemory, message).with_source(error));
                }
                wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => description,
            };
            let message = format!("expected a kernel that the driver accepts, found: {}", one_line(description));
            return Err(Error::new(ErrorKind::CompileFailed, message).with_source(error));
        }
        // A pipeline that the driver rejects can lose the device.
        self.timeline.poll(wgpu::PollType::Poll)?;
        let kernel = kernel?;
        let blob = || cache.and_then(|cache| self.blob_of(&cache));
        // Only reported for a fresh compile: a kernel that was loaded with a blob already has one stored.
        let driver_blob = if artifact.driver_blob.is_none() { blob() } else { None };
        Ok(Loaded { kernel: RawKernel::new(kernel), driver_blob })
    }

    /// Returns the driver's pipeline cache data to store, or `None` if it is only a header, as on drivers with a disk
    /// cache of their own.
    fn blob_of(&self, cache: &wgpu::PipelineCache) -> Option<Vec<u8>> {
        let empty = *self
            .empty_blob
            .get_or_init(|| self.pipeline_cache(None).and_then(|cache| cache.get_data()).map_or(0, |data| data.len()));
        cache.get_data().filter(|data| data.len() > empty)
    }

    /// Creates a pipeline cache with stored data, or an empty one if the driver rejects the data. Returns `None` if the
    /// driver has no pipeline caches.
    fn pipeline_cache(&self, blob: Option<&[u8]>) -> Option<wgpu::PipelineCache> {
        if !self.uses_pipeline_cache {
            return None;
        }
        let device = &self.timeline.device;
        let create = |data| {
            let descriptor = wgpu::PipelineCacheDescriptor { label: None, data, fallback: true };
            // SAFETY: this driver produced the data for this kernel. It is stored together with the kernel's code,
            // under a key that contains the driver version.
            catch(device, || unsafe { device.create_pipeline_cache(&descriptor) })
        };
        match create(blob) {
            (cache, None) => Some(cache),
            (_, Some(error)) => {
                tracing::warn!(%error, "the driver rejected the pipeline cache that it produced");
                let (cache, error) = create(None);
                error.is_none().then_some(cache)
            }
        }
    }

    fn create(&self, artifact: &Artifact, cache: Option<&wgpu::PipelineCache>) -> Result<GpuKernel> {
        let device = &self.timeline.device;
        let module = shader_module(device, artifact)?;
        let reflection = &artifact.reflection;
        let buffers = layout(device, reflection.bindings.iter().filter(|binding| binding.kind.is_buffer()));
        // Rounded up to 16 bytes: some drivers read zeros from a smaller range.
        let bytes = |binding: &Binding| NonZeroU64::new(binding.min_bytes.next_multiple_of(16));
        let value_bytes: Vec<NonZeroU64> = values(reflection).filter_map(bytes).collect();
        let values = (!value_bytes.is_empty()).then(|| layout(device, values(reflection)));
        // Group 1 only exists if the kernel has values.
        let layouts = [Some(&buffers), values.as_ref()];
        let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &layouts[..1 + usize::from(values.is_some())],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&layout),
            module: &module,
            // The module has one entry point, whose name the translation may change.
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: artifact.checks.zero_workgroup,
                ..wgpu::PipelineCompilationOptions::default()
            },
            cache,
        });
        // Never reused, because cached bind groups are identified by it.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Ok(GpuKernel { id, pipeline, buffers, values, value_bytes, value_groups: Mutex::default() })
    }

    /// Binds the buffers of a dispatch, with a cached bind group if the same buffers were bound before.
    pub(crate) fn bind(&self, kernel: &GpuKernel, dispatch: &Dispatch) -> Result<Bound> {
        let found = dispatch.buffers().iter().map(|bound| {
            let (block, offset) = encode::find(&bound.buffer)?;
            Ok((block, offset, bound.buffer.bytes()))
        });
        let found = found.collect::<Result<Vec<(Block, u64, u64)>>>()?;
        let key = BindKey {
            kernel: kernel.id,
            buffers: found.iter().map(|(block, offset, bytes)| (block.id(), *offset, *bytes)).collect(),
        };
        // Kept with the group: a group does not keep its blocks alive, and the last handle of a block destroys the
        // buffer.
        let blocks = || found.iter().map(|(block, ..)| block.clone()).collect();
        let cache = self.bind_groups.get();
        if let Some(group) = cache.and_then(|cache| cache.get(&key)) {
            return Ok(Bound { group: (*group).clone(), blocks: blocks() });
        }
        let entries: Vec<_> = (found.iter().enumerate())
            .map(|(binding, (block, offset, bytes))| {
                // Blocks are whole words long, so rounding up stays within the block.
                let words = bytes.next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT);
                entry(binding, &block.buffer, *offset, NonZeroU64::new(words))
            })
            .collect();
        // Two threads may both get here for one key. Their groups are equal, and the later insert replaces the earlier
        // one.
        let group = self.bind_group(&kernel.buffers, &entries)?;
        if let Some(cache) = cache {
            cache.insert(key, group.clone());
        }
        Ok(Bound { group, blocks: blocks() })
    }

    /// Returns the bind group of a kernel's values in a page, or `None` if the kernel takes no values.
    pub(crate) fn bind_values(
        &self,
        kernel: &GpuKernel,
        page: u64,
        buffer: &wgpu::Buffer,
    ) -> Result<Option<wgpu::BindGroup>> {
        let Some(layout) = &kernel.values else { return Ok(None) };
        // Held while the group is created, so that two threads do not both add one for the same page.
        let mut groups = kernel.value_groups.lock();
        if let Some((_, group)) = groups.iter().find(|(id, _)| *id == page) {
            return Ok(Some(group.clone()));
        }
        let bytes = kernel.value_bytes.iter().enumerate();
        // At offset 0: the dynamic offsets of each dispatch are added when the group is set.
        let entries: Vec<_> = bytes.map(|(binding, bytes)| entry(binding, buffer, 0, Some(*bytes))).collect();
        let group = self.bind_group(layout, &entries)?;
        // As many groups as `Pages` keeps spare pages, so that pages in rotation keep theirs.
        // The oldest group is dropped; it is created again if its page comes back.
        if groups.len() >= MAX_PAGES {
            groups.remove(0);
        }
        groups.push((page, group.clone()));
        Ok(Some(group))
    }

    /// Creates a bind group. Checked for errors, because an invalid group must not be cached for later launches.
    fn bind_group(
        &self,
        layout: &wgpu::BindGroupLayout,
        entries: &[wgpu::BindGroupEntry<'_>],
    ) -> Result<wgpu::BindGroup> {
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries };
        let device = &self.timeline.device;
        check(device, "bind the arguments of a kernel", || device.create_bind_group(&descriptor))
    }
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernels").field("bind_groups", &self.bind_groups).finish_non_exhaustive()
    }
}

impl GpuKernel {
    pub(crate) fn of(dispatch: &Dispatch) -> Result<&Self> {
        let raw = dispatch.kernel().raw();
        raw.downcast_ref()
            .ok_or_else(|| error!(InvalidArgument, "expected a kernel of a GPU, found one of another device"))
    }
}

fn values(reflection: &Reflection) -> impl Iterator<Item = &Binding> {
    reflection.bindings.iter().filter(|binding| !binding.kind.is_buffer())
}

fn layout<'a>(device: &wgpu::Device, bindings: impl Iterator<Item = &'a Binding>) -> wgpu::BindGroupLayout {
    let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..)
        .zip(bindings)
        .map(|(number, binding)| {
            let (ty, has_dynamic_offset) = match binding.kind {
                BindingKind::Read => (wgpu::BufferBindingType::Storage { read_only: true }, false),
                BindingKind::ReadWrite => (wgpu::BufferBindingType::Storage { read_only: false }, false),
                // Dynamic offsets let all dispatches of a submission share one bind group per page.
                BindingKind::Value | BindingKind::Grid => (wgpu::BufferBindingType::Uniform, true),
            };
            let min_binding_size = NonZeroU64::new(binding.min_bytes);
            wgpu::BindGroupLayoutEntry {
                binding: number,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size },
                count: None,
            }
        })
        .collect();
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
}

fn entry(binding: usize, buffer: &wgpu::Buffer, offset: u64, size: Option<NonZeroU64>) -> wgpu::BindGroupEntry<'_> {
    let resource = wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size });
    wgpu::BindGroupEntry { binding: binding as u32, resource }
}

fn shader_module(device: &wgpu::Device, artifact: &Artifact) -> Result<wgpu::ShaderModule> {
    Ok(match &artifact.code {
        Code::Spirv(words) => {
            let [x, y, z] = artifact.reflection.workgroup_size;
            let entry_point = wgpu::PassthroughShaderEntryPoint {
                name: artifact.reflection.entry.as_str().into(),
                workgroup_size: (x, y, z),
            };
            let descriptor = wgpu::ShaderModuleDescriptorPassthrough {
                entry_points: vec![entry_point].into(),
                spirv: Some(words.into()),
                ..wgpu::ShaderModuleDescriptorPassthrough::default()
            };
            // SAFETY: naga wrote the words for a validated program on this device. They are either fresh, or from a
            // store that only this user can write, with a checksum over them and over the key, which names compiler and
            // driver. Whoever imports an archive into the store vouches for its content, as for any code.
            unsafe { device.create_shader_module_passthrough(descriptor) }
        }
        Code::Machine(_) => {
            bail!(Unsupported, "GPU device expected SPIR-V or WGSL, found machine code of another device");
        }
        Code::Wgsl(text) => {
            let source = wgpu::ShaderSource::Wgsl(text.into());
            let mut checks = wgpu::ShaderRuntimeChecks::checked();
            checks.bounds_checks = artifact.checks.bounds;
            checks.force_loop_bounding = artifact.checks.loops;
            // SAFETY: only the checks that the kernel's author disabled in its options are omitted.
            unsafe { device.create_shader_module_trusted(wgpu::ShaderModuleDescriptor { label: None, source }, checks) }
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::GpuOptions;
    use kiln_device::{Artifact, Code, KernelKey, KernelModule, KernelSource};

    /// Machine code of the CPU device is rejected.
    #[test]
    fn machine_code_is_refused() {
        if crate::probe().is_err() {
            // `bind_groups_are_reused` reports the missing adapter.
            return;
        }
        let device = crate::open(0, GpuOptions::new()).unwrap();
        let source = KernelSource::wgsl("@compute @workgroup_size(1) fn main() {}");
        let key = KernelKey::new(&source, device.info()).unwrap();
        let artifact = device.api().translate(&KernelModule::new(&key, device.info()).unwrap()).unwrap();
        let error = device.api().load(&Artifact { code: Code::Machine(vec![0xc3]), ..artifact }).unwrap_err();
        assert_eq!(error.kind(), kiln_ir::ErrorKind::Unsupported);
        assert!(error.to_string().contains("found machine code of another device"), "{error}");
        device.synchronize().unwrap();
    }

    /// Launches with the same buffers share a bind group; other launches do not.
    #[test]
    fn bind_groups_are_reused() {
        const SOURCE: &str = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
            @group(0) @binding(1) var<uniform> n: u32;
            @compute @workgroup_size(1) fn main() { y[0] += n; }";
        if let Err(error) = crate::probe() {
            assert!(std::env::var_os("CI").is_none(), "no adapter although `CI` is set: {error}");
            println!("skipped: {error}");
            return;
        }
        let device = crate::open(0, GpuOptions::new()).unwrap();
        let kernel = device.kernel(KernelSource::wgsl(SOURCE)).unwrap();
        let mut buffers = [device.buffer_from(&[0u32]).unwrap(), device.buffer_from(&[0u32]).unwrap()];
        for round in 0..6 {
            let buffer = &mut buffers[usize::from(round == 5)];
            kernel.launch().bind("y", buffer).value("n", 1u32).over(1).unwrap();
            device.synchronize().unwrap();
        }
        assert_eq!((buffers[0].read().unwrap(), buffers[1].read().unwrap()), (vec![5], vec![1]));
        let caches = device.caches().metrics_by_name();
        let (_, groups) = caches.iter().find(|(name, _)| *name == "bind_groups").unwrap();
        assert_eq!((groups.hits, groups.size), (4, 2));
        assert_eq!(groups.bytes, 2 * (super::BIND_GROUP_BYTES + super::BINDING_BYTES));
    }
}
