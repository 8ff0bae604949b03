//! How a device is opened, and what the features of Kiln are called in wgpu.

use kiln_device::{DeviceKind, DiskTier, Feature, HostAccess, KernelCacheOptions, PoolOptions, Usage};
use kiln_ir::{Error, ErrorKind, Result};
use std::collections::BTreeSet;

/// How a GPU is opened. The default uses everything the adapter has.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct GpuOptions {
    without: BTreeSet<Feature>,
    host_access: HostAccess,
    pub(crate) pool: PoolOptions,
    pub(crate) kernels: KernelCacheOptions,
}

impl GpuOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Leaves `feature` unused even where the adapter has it.
    pub fn without(mut self, feature: Feature) -> Self {
        self.without.insert(feature);
        self
    }

    /// How the host reaches buffers. Default: [`HostAccess::Auto`].
    pub fn host_access(mut self, host_access: HostAccess) -> Self {
        self.host_access = host_access;
        self
    }

    /// How the pool of the device is made.
    pub fn pool(mut self, pool: PoolOptions) -> Self {
        self.pool = pool;
        self
    }

    /// How the kernel cache of the device is made. Default: in memory only.
    pub fn kernels(mut self, kernels: KernelCacheOptions) -> Self {
        self.kernels = kernels;
        self
    }

    /// Keeps translated kernels in this directory, unless the options of the kernel cache say otherwise.
    pub fn or_disk(mut self, disk: impl FnOnce() -> Option<DiskTier>) -> Self {
        self.kernels = self.kernels.or_disk(disk);
        self
    }

    /// The wgpu features to ask an adapter for that has `available`.
    pub(crate) fn wgpu_features(&self, available: wgpu::Features) -> wgpu::Features {
        let wanted = FEATURES
            .iter()
            .filter(|(feature, needed, _)| !self.without.contains(feature) && available.contains(*needed));
        wanted.fold(NONE, |all, (_, needed, extra)| all | *needed | (*extra & available))
    }

    /// The usage of a buffer that asks for none, on a device of `kind` that is opened with `features`.
    pub(crate) fn default_usage(&self, kind: DeviceKind, features: wgpu::Features) -> Result<Usage> {
        let mappable = features.contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS);
        match self.host_access {
            HostAccess::InPlace if !mappable => {
                let message =
                    format!("access in place expected the feature `{}`, found it missing", Feature::MappableStorage);
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            HostAccess::InPlace => Ok(Usage::Shared),
            HostAccess::Auto if mappable && shares_memory(kind) => Ok(Usage::Shared),
            _ => Ok(Usage::Storage),
        }
    }
}

/// Whether a device of this kind works in the system's memory.
pub(crate) fn shares_memory(kind: DeviceKind) -> bool {
    matches!(kind, DeviceKind::IntegratedGpu | DeviceKind::SoftwareGpu)
}

/// The features of Kiln that are among these features of wgpu.
pub(crate) fn kiln_features(features: wgpu::Features) -> BTreeSet<Feature> {
    FEATURES.iter().filter(|(_, needed, _)| features.contains(*needed)).map(|(feature, ..)| *feature).collect()
}

const NONE: wgpu::Features = wgpu::Features::empty();
const STAMPS_ANYWHERE: wgpu::Features =
    wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS.union(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES);

/// Each feature with what it needs of wgpu, and what makes it more useful and is taken along where the adapter has it.
const FEATURES: [(Feature, wgpu::Features, wgpu::Features); 7] = [
    (Feature::Immediates, wgpu::Features::IMMEDIATES, NONE),
    (Feature::MappableStorage, wgpu::Features::MAPPABLE_PRIMARY_BUFFERS, NONE),
    (Feature::PassthroughShaders, wgpu::Features::PASSTHROUGH_SHADERS, NONE),
    (Feature::PipelineCache, wgpu::Features::PIPELINE_CACHE, NONE),
    (Feature::ShaderF16, wgpu::Features::SHADER_F16, NONE),
    (Feature::Subgroups, wgpu::Features::SUBGROUP, wgpu::Features::SUBGROUP_BARRIER),
    (Feature::Timestamps, wgpu::Features::TIMESTAMP_QUERY, STAMPS_ANYWHERE),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_left_out_takes_its_extras_along_and_nothing_else() {
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
