//! Enumerates the GPU adapters of the machine, orders them and describes them.

use crate::capacity::Capacity;
use crate::info::{self, describe};
use crate::options::GpuOptions;
use crate::scope::ready;
use crate::translate::Target;
use kiln_device::{DeviceInfo, DeviceKind, Usage};
use kiln_ir::{Error, ErrorKind, Result};

/// The backends that are enumerated. GLES and WebGPU lack features that kernels need.
const BACKENDS: wgpu::Backends = wgpu::Backends::METAL.union(wgpu::Backends::VULKAN).union(wgpu::Backends::DX12);

/// Returns all usable GPUs, or an empty list if there is none. See [`probe`] for the reason.
///
/// See the [crate documentation](crate) for an example.
pub fn list() -> Vec<DeviceInfo> {
    probe().unwrap_or_default()
}

/// Returns all usable GPUs without opening one.
///
/// Their ids are `gpu:0`, `gpu:1` and so on: discrete GPUs first, then integrated ones, virtual ones and those of
/// unknown kind, software drivers last. A GPU that is reachable through several backends is listed once. The order is
/// the same in every process.
///
/// [`list`] returns the same GPUs; see the [crate documentation](crate) for an example.
///
/// # Errors
/// Returns `Unsupported` if there is no GPU; the message names the backends that were searched and what to install.
pub fn probe() -> Result<Vec<DeviceInfo>> {
    let options = GpuOptions::new();
    Ok(find()?
        .iter()
        .enumerate()
        .map(|(index, adapter)| AdapterConfig::new(index, adapter, &options).info(adapter))
        .collect())
}

/// The configuration of a device, decided before it is opened.
pub(crate) struct AdapterConfig {
    index: usize,
    pub(crate) features: wgpu::Features,
    pub(crate) limits: wgpu::Limits,
    /// An error if the options require access in place and the adapter cannot map storage. Opening the device returns
    /// it; listing ignores it.
    pub(crate) default_usage: Result<Usage>,
    pub(crate) target: Target,
}

impl AdapterConfig {
    pub(crate) fn new(index: usize, adapter: &wgpu::Adapter, options: &GpuOptions) -> Self {
        let features = options.wgpu_features(adapter.features());
        let mut limits = adapter.limits();
        // The limit belongs to the feature.
        if !features.contains(wgpu::Features::IMMEDIATES) {
            limits.max_immediate_size = 0;
        }
        let default_usage = options.default_usage(info::kind(adapter.get_info().device_type), features);
        Self { index, features, limits, default_usage, target: Target::of(adapter, features) }
    }

    pub(crate) fn info(&self, adapter: &wgpu::Adapter) -> DeviceInfo {
        let found = adapter.get_info();
        let capacity = Capacity::of(adapter, info::kind(found.device_type));
        let usage = self.default_usage.as_ref().copied().unwrap_or(Usage::Storage);
        let info = describe(self.index, &found, self.features, &self.limits, capacity, usage);
        DeviceInfo { compiler: Some(self.target.compiler()), ..info }
    }
}

/// Returns the adapters that [`probe`] lists, in the same order.
pub(crate) fn find() -> Result<Vec<wgpu::Adapter>> {
    let instance = instance();
    let mut adapters = ready(instance.enumerate_adapters(BACKENDS)).unwrap_or_default();
    // Downlevel adapters may lack compute shaders.
    adapters
        .retain(|adapter| adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS));
    if adapters.is_empty() {
        return Err(none_found(&instance));
    }
    let infos: Vec<wgpu::AdapterInfo> = adapters.iter().map(wgpu::Adapter::get_info).collect();
    Ok(order(&infos).into_iter().map(|index| adapters[index].clone()).collect())
}

/// Creates a wgpu instance. It is not kept, because the crate has no process-wide state.
fn instance() -> wgpu::Instance {
    // Vulkan's validation layers are off: they find bugs in wgpu, and take several times as long as the work itself.
    let flags = wgpu::InstanceFlags::VALIDATION_INDIRECT_CALL | wgpu::InstanceFlags::DISCARD_HAL_LABELS;
    // Without a Vulkan loader the fallback has no backend on Linux; its error names what is missing when an adapter is
    // requested (see `none_found`).
    without_displays(flags).unwrap_or_else(|| {
        let descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        wgpu::Instance::new(wgpu::InstanceDescriptor { backends: BACKENDS, flags, ..descriptor })
    })
}

/// Creates a Vulkan instance without the surface extensions of Wayland and X11.
///
/// With these extensions, Mesa's device selection layer connects to the display server to sort the GPUs. On a machine
/// without a display, the client libraries then write `error: XDG_RUNTIME_DIR is invalid or not set` to standard error
/// for each GPU. Without them nothing connects, and Kiln does not need to change environment variables or file
/// descriptors of the process.
#[cfg(all(unix, not(target_vendor = "apple"), not(target_os = "android")))]
fn without_displays(flags: wgpu::InstanceFlags) -> Option<wgpu::Instance> {
    use wgpu::hal::vulkan;
    const DISPLAYS: [&std::ffi::CStr; 3] = [c"VK_KHR_wayland_surface", c"VK_KHR_xcb_surface", c"VK_KHR_xlib_surface"];
    let descriptor = wgpu::hal::InstanceDescriptor {
        name: "kiln",
        flags,
        memory_budget_thresholds: wgpu::MemoryBudgetThresholds::default(),
        backend_options: wgpu::BackendOptions::default(),
        telemetry: None,
        display: None,
    };
    let edit = |args: vulkan::CreateInstanceCallbackArgs<'_, '_, '_>| {
        args.extensions.retain(|name| !DISPLAYS.contains(name));
    };
    // SAFETY: wgpu requires that the callback keeps all listed extensions, because wgpu may use them. It uses these
    // three only to create surfaces, after looking them up in the instance's list, and Kiln creates no surface.
    // `VK_KHR_surface`, which swapchains depend on, stays.
    let instance = unsafe { vulkan::Instance::init_with_callback(&descriptor, Some(Box::new(edit))) }.ok()?;
    // SAFETY: the instance was just created, and its ownership moves to wgpu here.
    Some(unsafe { wgpu::Instance::from_hal::<wgpu::hal::api::Vulkan>(instance) })
}

#[cfg(not(all(unix, not(target_vendor = "apple"), not(target_os = "android"))))]
fn without_displays(_: wgpu::InstanceFlags) -> Option<wgpu::Instance> {
    None
}

fn none_found(instance: &wgpu::Instance) -> Error {
    let searched =
        (wgpu::Instance::enabled_backend_features() & BACKENDS).iter_names().map(|(name, _)| name.to_lowercase());
    let searched = searched.collect::<Vec<_>>().join(", ");
    let remedy = if cfg!(target_vendor = "apple") {
        "Kiln needs a Mac with Metal"
    } else if cfg!(windows) {
        "install the graphics driver of the GPU's vendor"
    } else {
        "install a Vulkan driver, on Debian and Ubuntu with `apt-get install mesa-vulkan-drivers`"
    };
    let found = if vulkan_loads(instance) { "a Vulkan driver without a GPU" } else { "no driver that can be loaded" };
    let message = format!("expected a GPU, found {found} (searched: {searched}); {remedy}");
    let error = Error::new(ErrorKind::Unsupported, message);
    // The error of a request for one adapter lists, for each backend, what is missing.
    match ready(instance.request_adapter(&wgpu::RequestAdapterOptions::default())) {
        Some(Err(reason)) => error.with_source(reason),
        _ => error,
    }
}

#[cfg(not(target_vendor = "apple"))]
fn vulkan_loads(instance: &wgpu::Instance) -> bool {
    // SAFETY: the handle is not used. Its presence shows that the loader and a driver created an instance.
    unsafe { instance.as_hal::<wgpu::hal::api::Vulkan>() }.is_some()
}

#[cfg(target_vendor = "apple")]
fn vulkan_loads(_: &wgpu::Instance) -> bool {
    false
}

/// Returns the indices of the adapters to list, best first, with one entry for each physical GPU.
fn order(infos: &[wgpu::AdapterInfo]) -> Vec<usize> {
    // Preferred backends first, so that the entry kept for a GPU is the one of its best backend.
    let mut by_backend: Vec<usize> = (0..infos.len()).collect();
    by_backend.sort_by_key(|index| backend_rank(infos[*index].backend));
    // Each adapter of a later backend is matched with at most one of an earlier backend, so that two identical cards
    // stay two entries.
    let mut kept: Vec<usize> = Vec::new();
    let mut is_matched = vec![false; infos.len()];
    for index in by_backend {
        let matching = kept.iter().copied().find(|other| {
            let (a, b) = (&infos[*other], &infos[index]);
            a.backend != b.backend && !is_matched[*other] && is_same_gpu(a, b)
        });
        match matching {
            Some(other) => is_matched[other] = true,
            None => kept.push(index),
        }
    }
    kept.sort_by_key(|index| (kind_rank(info::kind(infos[*index].device_type)), *index));
    kept
}

/// Compares names first, because backends may report different vendor ids. A device id of 0 means unknown.
fn is_same_gpu(a: &wgpu::AdapterInfo, b: &wgpu::AdapterInfo) -> bool {
    a.name == b.name || (a.device != 0 && (a.vendor, a.device) == (b.vendor, b.device))
}

fn backend_rank(backend: wgpu::Backend) -> usize {
    let ranks = [wgpu::Backend::Metal, wgpu::Backend::Vulkan, wgpu::Backend::Dx12];
    ranks.iter().position(|other| *other == backend).unwrap_or(ranks.len())
}

fn kind_rank(kind: DeviceKind) -> usize {
    use DeviceKind::{DiscreteGpu, IntegratedGpu, OtherGpu, VirtualGpu};
    let ranks = [DiscreteGpu, IntegratedGpu, VirtualGpu, OtherGpu];
    ranks.iter().position(|other| *other == kind).unwrap_or(ranks.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wgpu::Backend::{Dx12, Metal, Vulkan};
    use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu, Other, VirtualGpu};

    fn adapter(
        name: &str,
        device_type: wgpu::DeviceType,
        backend: wgpu::Backend,
        ids: (u32, u32),
    ) -> wgpu::AdapterInfo {
        let mut adapter = wgpu::AdapterInfo::new(device_type, backend);
        adapter.name = name.to_string();
        (adapter.vendor, adapter.device) = ids;
        adapter
    }

    /// Hardware GPUs come first, software drivers last, and each GPU is listed once.
    #[test]
    fn adapters_are_ordered_and_deduplicated() {
        let soft = adapter("llvmpipe", Cpu, Vulkan, (0x10005, 0));
        let warp = adapter("Microsoft Basic Render Driver", Cpu, Dx12, (0x1414, 0x8c));
        let discrete = |backend| adapter("card", DiscreteGpu, backend, (0x10de, 7));
        let integrated = |backend| adapter("chip", IntegratedGpu, backend, (0x8086, 9));
        let table: [(Vec<wgpu::AdapterInfo>, &[usize]); 9] = [
            (vec![], &[]),
            (vec![soft.clone()], &[0]),
            (vec![soft.clone(), integrated(Vulkan), discrete(Vulkan)], &[2, 1, 0]),
            (vec![adapter("a", Other, Vulkan, (1, 1)), adapter("b", VirtualGpu, Vulkan, (1, 2))], &[1, 0]),
            // One laptop, two backends.
            (vec![discrete(Dx12), integrated(Dx12), warp.clone(), integrated(Vulkan), discrete(Vulkan)], &[4, 3, 2]),
            // Two identical cards stay two entries, however many backends reach them.
            (vec![discrete(Vulkan), discrete(Vulkan)], &[0, 1]),
            (vec![discrete(Vulkan), discrete(Vulkan), discrete(Dx12), discrete(Dx12)], &[0, 1]),
            // The name decides if the backends report different vendor ids; a third GPU that only DX12 sees stays.
            (
                vec![
                    adapter("q", IntegratedGpu, Vulkan, (1, 2)),
                    adapter("q", IntegratedGpu, Dx12, (3, 4)),
                    discrete(Dx12),
                ],
                &[2, 0],
            ),
            (vec![soft, integrated(Vulkan), integrated(Metal)], &[2, 0]),
        ];
        for (infos, expected) in &table {
            assert_eq!(order(infos), *expected, "{infos:#?}");
        }
    }
}
