//! Selection of the default device: one function over the listed devices, shared by [`Device::best`] and
//! `kiln doctor`.

use crate::Device;
use kiln_device::{DeviceInfo, DeviceKind};
use kiln_ir::{Error, ErrorKind, Result};

/// The default device of this machine, why it was chosen, and why the others were rejected.
///
/// See [`Device::choose`] for an example.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The default device, opened.
    pub device: Device,
    /// Why this device is the default.
    pub reason: String,
    /// Every other device, in the order of [`Device::list`].
    pub rejected: Vec<Rejection>,
}

/// A device of this machine that is not the default.
///
/// See [`Device::choose`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The [`DeviceInfo::id`] of the device.
    pub id: String,
    /// Why this device is not the default.
    pub reason: String,
}

/// The result of [`choose_from`]; generic so that tests need no device.
#[derive(Debug)]
pub(crate) struct Selection<D> {
    pub(crate) device: D,
    pub(crate) reason: String,
    pub(crate) rejected: Vec<Rejection>,
}

/// Opens the first hardware GPU that can be opened, otherwise the CPU device.
///
/// Discrete GPUs are tried first, then integrated, then virtual, then GPUs of unknown kind; within a kind, list order
/// is kept. A software GPU is never tried: it runs on the same processor with more layers in between. `no_gpu` is the
/// reason why the list has no GPU.
///
/// # Errors
/// Returns the error of the CPU device if it is reached and cannot be opened.
pub(crate) fn choose_from<D>(
    listed: &[DeviceInfo],
    no_gpu: &str,
    mut open: impl FnMut(&DeviceInfo) -> Result<D>,
) -> Result<Selection<D>> {
    let mut gpus: Vec<&DeviceInfo> = listed.iter().filter(|info| info.kind.is_real_gpu()).collect();
    // The sort is stable: GPUs of one kind stay in the order of the list.
    gpus.sort_by_key(|info| rank(info.kind));
    let mut failed = Vec::new();
    for gpu in gpus {
        match open(gpu) {
            Ok(device) => {
                let reason = format!("{} come before the CPU device", plural(gpu.kind));
                return Ok(Selection { device, reason, rejected: rejected(listed, gpu, &failed) });
            }
            Err(error) => failed.push((gpu.id.as_str(), error)),
        }
    }
    let Some(cpu) = listed.iter().find(|info| info.kind == DeviceKind::Cpu) else {
        return Err(Error::new(ErrorKind::Internal, "expected the CPU device in the list of devices, found none"));
    };
    let device = open(cpu)?;
    let reason = match (failed.is_empty(), listed.len()) {
        (false, _) => "no real GPU can be opened",
        (true, 1) => no_gpu,
        (true, _) => "no real GPU was found",
    };
    Ok(Selection { device, reason: reason.to_string(), rejected: rejected(listed, cpu, &failed) })
}

fn rejected(listed: &[DeviceInfo], chosen: &DeviceInfo, failed: &[(&str, Error)]) -> Vec<Rejection> {
    let others = listed.iter().filter(|info| info.id != chosen.id);
    others.map(|info| Rejection { id: info.id.clone(), reason: why_not(info, chosen, failed) }).collect()
}

fn why_not(info: &DeviceInfo, chosen: &DeviceInfo, failed: &[(&str, Error)]) -> String {
    if let Some((_, error)) = failed.iter().find(|(id, _)| *id == info.id) {
        return format!("cannot be opened: {error}");
    }
    match info.kind {
        DeviceKind::SoftwareGpu => "software GPUs are slower than the CPU device; open it by name".to_string(),
        kind if kind == chosen.kind => format!("`{}` comes first", chosen.id),
        kind => format!("{} come before {}", plural(chosen.kind), plural(kind)),
    }
}

/// Returns the rank of a kind of GPU; lower ranks are tried first.
fn rank(kind: DeviceKind) -> usize {
    let order = [DeviceKind::DiscreteGpu, DeviceKind::IntegratedGpu, DeviceKind::VirtualGpu];
    order.iter().position(|other| *other == kind).unwrap_or(order.len())
}

fn plural(kind: DeviceKind) -> String {
    match kind {
        DeviceKind::Cpu => "the CPU device".to_string(),
        DeviceKind::OtherGpu => "GPUs of unknown kind".to_string(),
        kind => format!("{kind}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeviceKind::{Cpu, DiscreteGpu, IntegratedGpu, OtherGpu, SoftwareGpu, VirtualGpu};
    use kiln_device::{DeviceLimits, DeviceMemory};

    const NO_GPU: &str = "no GPU was found";

    /// Returns the CPU device and GPUs of these kinds, with the ids that `Device::list` gives them.
    fn machine(gpus: &[DeviceKind]) -> Vec<DeviceInfo> {
        let gpus = gpus.iter().enumerate().map(|(index, kind)| info(&format!("gpu:{index}"), *kind));
        std::iter::once(info("cpu", Cpu)).chain(gpus).collect()
    }

    fn info(id: &str, kind: DeviceKind) -> DeviceInfo {
        DeviceInfo {
            id: id.to_string(),
            name: format!("invented {kind}"),
            kind,
            driver: "invented".to_string(),
            driver_version: "1".to_string(),
            compiler: None,
            fingerprint: "00".to_string(),
            limits: DeviceLimits {
                max_buffer_bytes: 1 << 30,
                max_binding_bytes: 1 << 27,
                binding_alignment_bytes: 256,
                max_workgroups_per_axis: 65535,
                max_value_bytes: 64 << 10,
                max_workgroup_size: [1024, 1024, 64],
                max_workgroup_invocations: 256,
                max_workgroup_bytes: 1 << 14,
                subgroup_size: None,
                threads: None,
            },
            features: [].into(),
            memory: DeviceMemory { total_bytes: None, default_budget_bytes: 1 << 30, shared_with_host: false },
        }
    }

    /// Runs the choice with every device working except the ids in `broken`, and returns the order in which devices
    /// were tried.
    fn choose(gpus: &[DeviceKind], broken: &[&str]) -> (Result<Selection<String>>, Vec<String>) {
        let mut tried = Vec::new();
        let selection = choose_from(&machine(gpus), NO_GPU, |info| {
            tried.push(info.id.clone());
            if broken.contains(&info.id.as_str()) {
                return Err(Error::new(ErrorKind::DeviceLost, format!("{} fell off the bus", info.id)));
            }
            Ok(info.id.clone())
        });
        (selection, tried)
    }

    /// The default is a hardware GPU if one can be opened, otherwise the CPU device, never a software GPU.
    #[test]
    fn default_of_invented_machines() {
        // Columns: GPUs, ids that cannot be opened, the default, the reason, the order in which devices are tried.
        type Row<'a> = (&'a [DeviceKind], &'a [&'a str], &'a str, &'a str, &'a [&'a str]);
        let table: &[Row<'_>] = &[
            (&[], &[], "cpu", NO_GPU, &["cpu"]),
            (&[SoftwareGpu], &[], "cpu", "no real GPU was found", &["cpu"]),
            (&[SoftwareGpu, SoftwareGpu], &[], "cpu", "no real GPU was found", &["cpu"]),
            (&[IntegratedGpu], &[], "gpu:0", "integrated GPUs come before the CPU device", &["gpu:0"]),
            (&[VirtualGpu], &[], "gpu:0", "virtual GPUs come before the CPU device", &["gpu:0"]),
            (&[OtherGpu], &[], "gpu:0", "GPUs of unknown kind come before the CPU device", &["gpu:0"]),
            (
                &[SoftwareGpu, IntegratedGpu, DiscreteGpu],
                &[],
                "gpu:2",
                "discrete GPUs come before the CPU device",
                &["gpu:2"],
            ),
            (&[DiscreteGpu, DiscreteGpu], &[], "gpu:0", "discrete GPUs come before the CPU device", &["gpu:0"]),
            (
                &[DiscreteGpu, DiscreteGpu],
                &["gpu:0"],
                "gpu:1",
                "discrete GPUs come before the CPU device",
                &["gpu:0", "gpu:1"],
            ),
            (
                &[OtherGpu, VirtualGpu, IntegratedGpu, DiscreteGpu],
                &["gpu:3", "gpu:2", "gpu:1"],
                "gpu:0",
                "GPUs of unknown kind come before the CPU device",
                &["gpu:3", "gpu:2", "gpu:1", "gpu:0"],
            ),
            (&[DiscreteGpu, SoftwareGpu], &["gpu:0"], "cpu", "no real GPU can be opened", &["gpu:0", "cpu"]),
        ];
        for (gpus, broken, device, reason, order) in table {
            let (selection, tried) = choose(gpus, broken);
            let selection = selection.unwrap();
            assert_eq!(
                (selection.device.as_str(), selection.reason.as_str()),
                (*device, *reason),
                "{gpus:?} {broken:?}"
            );
            assert_eq!(tried, *order, "{gpus:?} {broken:?}");
            assert_eq!(selection.rejected.len(), gpus.len(), "every other device has a reason: {gpus:?} {broken:?}");
        }
    }

    #[test]
    fn every_other_device_has_a_reason() {
        let reasons = |gpus, broken| {
            let selection = choose(gpus, broken).0.unwrap();
            selection.rejected.into_iter().map(|r| format!("{}: {}", r.id, r.reason)).collect::<Vec<_>>()
        };
        assert_eq!(
            reasons(&[DiscreteGpu, SoftwareGpu, DiscreteGpu, DiscreteGpu, IntegratedGpu], &["gpu:0"]),
            [
                "cpu: discrete GPUs come before the CPU device",
                "gpu:0: cannot be opened: gpu:0 fell off the bus",
                "gpu:1: software GPUs are slower than the CPU device; open it by name",
                "gpu:3: `gpu:2` comes first",
                "gpu:4: discrete GPUs come before integrated GPUs",
            ]
        );
        assert_eq!(reasons(&[IntegratedGpu], &["gpu:0"]), ["gpu:0: cannot be opened: gpu:0 fell off the bus"]);
    }

    #[test]
    fn cpu_device_that_cannot_be_opened_is_the_error() {
        let error = choose(&[SoftwareGpu], &["cpu"]).0.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::DeviceLost, "cpu fell off the bus"));
        assert_eq!(choose_from(&[], NO_GPU, |_| Ok(())).unwrap_err().kind(), ErrorKind::Internal);
    }
}
