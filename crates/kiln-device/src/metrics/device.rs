//! Metrics of a device itself.

use super::Metric;
use crate::device::Device;

/// Returns the identity of the device, and the number of kernel dispatches. A device that runs no WGSL kernels has no
/// such count.
///
/// ```
/// use kiln_device::NullDevice;
/// use kiln_device::metrics::{cache_metrics, device_metrics, join, to_prometheus};
///
/// let device = NullDevice::new().into_device()?;
/// let mut metrics = device_metrics(&device);
/// join(&mut metrics, cache_metrics(&device));
/// assert!(to_prometheus(&metrics).contains("kiln_dispatches_total 0"));
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub fn device_metrics(device: &Device) -> Vec<Metric> {
    let info = device.info();
    let labels = [
        ("name", info.name.as_str()),
        ("kind", &info.kind.to_string()),
        ("driver", &info.driver),
        ("driver_version", &info.driver_version),
    ];
    let dispatches = Metric::counter("kiln_dispatches_total", "Launches of WGSL kernels, including replays.");
    vec![
        Metric::gauge("kiln_device_info", "Name, kind and driver of the device; always 1.").sample(&labels, 1.0),
        match info.compiler {
            Some(_) => dispatches.sample(&[], device.launches() as f64),
            None => dispatches,
        },
    ]
}
