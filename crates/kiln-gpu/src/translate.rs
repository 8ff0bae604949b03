//! Translates kernel programs into the code that the driver takes: SPIR-V if it accepts that directly, otherwise WGSL.

use crate::{arguments, contraction};
use kiln_device::{Artifact, Code, Feature, KernelFlag, KernelModule, RuntimeChecks};
use kiln_ir::{Error, ErrorKind, Result, error};
use naga::back::{spv, wgsl};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};

/// The version of naga, part of the kernel key because it changes the generated code. A test compares it with the lock
/// file.
const NAGA_VERSION: &str = "30.0.1";
/// The version of wgpu, which performs the rest of the translation if the code is WGSL.
const WGPU_VERSION: &str = "30.0.1";
/// Incremented when a change of this file changes the generated code.
const REVISION: u32 = 1;
/// Supported by every Vulkan 1.1 driver.
const SPIRV_VERSION: (u8, u8) = (1, 3);

/// The language that an adapter takes kernels in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Target {
    /// SPIR-V, passed to the driver unchanged.
    Spirv {
        /// Whether the driver clears workgroup memory, which compiles much faster than explicit stores.
        clears_workgroup: bool,
    },
    /// WGSL with overrides resolved; wgpu translates it further.
    Wgsl,
}

impl Target {
    /// Returns the target of an adapter that is opened with these features.
    pub(crate) fn of(adapter: &wgpu::Adapter, features: wgpu::Features) -> Self {
        let is_vulkan = adapter.get_info().backend == wgpu::Backend::Vulkan;
        if is_vulkan && features.contains(wgpu::Features::PASSTHROUGH_SHADERS) {
            Self::Spirv { clears_workgroup: clears_workgroup(adapter) }
        } else {
            Self::Wgsl
        }
    }

    /// Describes the compiler, as a part of kernel keys.
    pub(crate) fn compiler(self) -> String {
        match self {
            Self::Spirv { clears_workgroup } => {
                let (major, minor) = SPIRV_VERSION;
                let clears = if clears_workgroup { ", driver clears workgroup memory" } else { "" };
                format!("naga {NAGA_VERSION} to SPIR-V {major}.{minor}, revision {REVISION}{clears}")
            }
            Self::Wgsl => format!("naga {NAGA_VERSION} to WGSL, wgpu {WGPU_VERSION}, revision {REVISION}"),
        }
    }

    pub(crate) fn translate(self, program: &KernelModule) -> Result<Artifact> {
        // Before naga's writer, which would panic.
        arguments::check(program)?;
        let options = program.key.options();
        let checks = RuntimeChecks {
            bounds: options.bounds_checks,
            loops: !options.flags.contains(&KernelFlag::UnboundedLoops),
            zero_workgroup: !options.flags.contains(&KernelFlag::UninitialisedWorkgroup),
        };
        let code = match self {
            Self::Spirv { clears_workgroup } => Code::Spirv(to_spirv(program, checks, clears_workgroup)?),
            Self::Wgsl => Code::Wgsl(to_wgsl(program)?),
        };
        Ok(Artifact { reflection: program.reflection.clone(), code, driver_blob: None, checks })
    }
}

/// Returns whether the driver clears workgroup memory: Vulkan 1.3 requires that it can, and wgpu enables it.
#[cfg(not(target_vendor = "apple"))]
fn clears_workgroup(adapter: &wgpu::Adapter) -> bool {
    const VULKAN_1_3: u32 = (1 << 22) | (3 << 12);
    // SAFETY: the handle is used for a query only.
    let adapter = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() };
    adapter.is_some_and(|adapter| adapter.physical_device_capabilities().properties().api_version >= VULKAN_1_3)
}

#[cfg(target_vendor = "apple")]
fn clears_workgroup(_: &wgpu::Adapter) -> bool {
    false
}

fn to_spirv(program: &KernelModule, checks: RuntimeChecks, clears_workgroup: bool) -> Result<Vec<u32>> {
    use spv::ZeroInitializeWorkgroupMemoryMode as Zero;
    let key_options = program.key.options();
    let source = program.key.to_source();
    let policy = if checks.bounds { BoundsCheckPolicy::Restrict } else { BoundsCheckPolicy::Unchecked };
    let debug_info = key_options.debug_info.then(|| spv::DebugInfo {
        source_code: source.text(),
        file_name: source.name(),
        language: spv::SourceLanguage::WGSL,
    });
    let options = spv::Options {
        lang_version: SPIRV_VERSION,
        flags: if key_options.debug_info { spv::WriterFlags::DEBUG } else { spv::WriterFlags::empty() },
        // The other policies are for images and binding arrays, which kernels cannot have.
        bounds_check_policies: BoundsCheckPolicies { index: policy, buffer: policy, ..BoundsCheckPolicies::default() },
        zero_initialize_workgroup_memory: match (checks.zero_workgroup, clears_workgroup) {
            (true, true) => Zero::Native,
            (true, false) => Zero::Polyfill,
            (false, _) => Zero::None,
        },
        force_loop_bounding: checks.loops,
        debug_info,
        ..spv::Options::default()
    };
    let pipeline = spv::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: program.reflection.entry.clone(),
    };
    let words = spv::write_vec(&program.module, &program.info, &options, Some(&pipeline)).map_err(|error| {
        let message = format!("{}: expected a kernel that translates to SPIR-V, found: {error}", source.name());
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })?;
    // Contraction is only forbidden on request: it prevents fused multiply-add, which is faster.
    if key_options.fast_math { Ok(words) } else { contraction::forbid_contraction(&words) }
}

fn to_wgsl(program: &KernelModule) -> Result<String> {
    let name = program.key.name();
    if !program.key.options().fast_math {
        let message = format!(
            "{name}: expected `fast_math`, which only a Vulkan device with the feature `{}` can disable, found it off",
            Feature::PassthroughShaders
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let flags = wgsl::WriterFlags::empty();
    wgsl::write_string(&program.module, &program.info, flags).map_err(|error| {
        error!(Unsupported, "{name}: expected a kernel that can be written as WGSL, found: {error}").with_source(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The versions in the key are those of the dependencies.
    #[test]
    fn versions_match_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        for (name, version) in [("naga", NAGA_VERSION), ("wgpu", WGPU_VERSION)] {
            assert!(lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")), "{name} {version}");
        }
    }

    #[test]
    fn each_target_has_its_own_compiler_name() {
        let targets =
            [Target::Spirv { clears_workgroup: true }, Target::Spirv { clears_workgroup: false }, Target::Wgsl];
        let names = targets.map(Target::compiler);
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
    }
}
