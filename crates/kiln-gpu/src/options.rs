//! Options of a GPU device, and the mapping from Kiln features to wgpu features.

use kiln_device::{DeviceKind, DiskTier, Feature, HostAccess, KernelCacheOptions, PoolOptions, Usage};
use kiln_ir::{Error, ErrorKind, Result};
use std::collections::BTreeSet;

/// Options for opening a GPU. By default every supported feature of the adapter is used.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct GpuOptions {
    without: BTreeSet<Feature>,
    host_access: HostAccess,
    pub(crate) pool: PoolOptions,
    pub(crate) kernels: KernelCacheOptions,
}

impl GpuOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Disables `feature`, even if the adapter has it.
    pub fn without(mut self, feature: Feature) -> Self {
        self.without.insert(feature);
        self
    }

    /// Sets how the host accesses buffers. Default: [`HostAccess::Auto`].
    pub fn host_access(mut self, host_access: HostAccess) -> Self {
        self.host_access = host_access;
        self
    }

    /// Sets the options of the device's buffer pool.
    pub fn pool(mut self, pool: PoolOptions) -> Self {
        self.pool = pool;
        self
    }

    /// Sets the options of the device's kernel cache. Default: in memory only.
    pub fn kernels(mut self, kernels: KernelCacheOptions) -> Self {
        self.kernels = kernels;
        self
    }

    /// Sets the disk tier of the kernel cache, unless its options already contain one.
    pub fn or_disk(mut self, disk: impl FnOnce() -> Option<DiskTier>) -> Self {
        self.kernels = self.kernels.or_disk(disk);
        self
    }

    /// Returns the wgpu features to request from an adapter that supports `available`.
    pub(crate) fn wgpu_features(&self, available: wgpu::Features) -> wgpu::Features {
        let wanted = FEATURES
            .iter()
            .filter(|(feature, needed, _)| !self.without.contains(feature) && available.contains(*needed));
        wanted.fold(NONE, |all, (_, needed, extra)| all | *needed | (*extra & available))
    }

    /// Returns the usage of a buffer that requests none, on a device of `kind` opened with `features`.
    pub(crate) fn default_usage(&self, kind: DeviceKind, features: wgpu::Features) -> Result<Usage> {
        let mappable = features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS);
        match self.host_access {
            HostAccess::InPlace if !mappable => {
                let message =
                    format!("access in place expected the feature `{}`, found it missing", Feature::MappableStorage);
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            HostAccess::InPlace => Ok(Usage::Shared),
            // On a discrete GPU, mapped storage would be accessed over the bus.
            HostAccess::Auto if mappable && shares_memory(kind) => Ok(Usage::Shared),
            _ => Ok(Usage::Storage),
        }
    }
}

/// Returns whether a device of this kind works in system memory.
pub(crate) fn shares_memory(kind: DeviceKind) -> bool {
    matches!(kind, DeviceKind::IntegratedGpu | DeviceKind::SoftwareGpu)
}

/// Returns the Kiln features whose wgpu features are in `features`.
pub(crate) fn kiln_features(features: wgpu::Features) -> BTreeSet<Feature> {
    FEATURES.iter().filter(|(_, needed, _)| features.contains(*needed)).map(|(feature, ..)| *feature).collect()
}

const NONE: wgpu::Features = wgpu::Features::empty();
const TIMESTAMP_EXTRAS: wgpu::Features =
    wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS.union(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES);

/// Each Kiln feature, the wgpu features that it requires, and optional ones that are requested with it if available.
const FEATURES: [(Feature, wgpu::Features, wgpu::Features); 7] = [
    (Feature::Immediates, wgpu::Features::IMMEDIATES, NONE),
    (Feature::MappableStorage, wgpu::Features::MAPPABLE_PRIMARY_BUFFERS, NONE),
    (Feature::PassthroughShaders, wgpu::Features::PASSTHROUGH_SHADERS, NONE),
    (Feature::PipelineCache, wgpu::Features::PIPELINE_CACHE, NONE),
    (Feature::ShaderF16, wgpu::Features::SHADER_F16, NONE),
    (Feature::Subgroups, wgpu::Features::SUBGROUP, wgpu::Features::SUBGROUP_BARRIER),
    (Feature::Timestamps, wgpu::Features::TIMESTAMP_QUERY, TIMESTAMP_EXTRAS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabling_a_feature_disables_only_its_wgpu_features() {
        let all = wgpu::Features::all();
        let everything = GpuOptions::new().wgpu_features(all);
        assert_eq!(kiln_features(everything).len(), FEATURES.len());
        for (feature, needed, extra) in FEATURES {
            let rest = GpuOptions::new().without(feature).wgpu_features(all);
            assert_eq!(rest, everything - needed - extra, "{feature}");
            let poor = GpuOptions::new().wgpu_features(all - needed);
            assert_eq!(poor, everything - needed - extra, "adapter without {feature}");
        }
        assert_eq!(GpuOptions::new().wgpu_features(NONE), NONE);
    }

    #[test]
    fn host_access_decides_the_default_usage() {
        use {DeviceKind::*, HostAccess::*, Usage::*};
        let mappable = wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
        let table = [
            (Auto, IntegratedGpu, mappable, Some(Shared)),
            (Auto, SoftwareGpu, mappable, Some(Shared)),
            (Auto, DiscreteGpu, mappable, Some(Storage)),
            (Auto, VirtualGpu, mappable, Some(Storage)),
            (Auto, OtherGpu, mappable, Some(Storage)),
            (Auto, IntegratedGpu, NONE, Some(Storage)),
            (Staged, IntegratedGpu, mappable, Some(Storage)),
            (InPlace, DiscreteGpu, mappable, Some(Shared)),
            (InPlace, IntegratedGpu, NONE, None),
        ];
        for (access, kind, features, expected) in table {
            let found = GpuOptions::new().host_access(access).default_usage(kind, features);
            assert_eq!(found.as_ref().ok().copied(), expected, "{access:?} on {kind:?}");
            if let Err(error) = found {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.message().contains("mappable-storage"), "{error}");
            }
        }
    }
}
