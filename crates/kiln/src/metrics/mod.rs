//! Metrics of devices: as data, as Prometheus text, as JSON for `kiln top`, and through the `metrics` facade.
//!
//! A [`Watch`] holds devices and collects their [`Metric`]s on request. It starts no thread and opens no port: a
//! program that serves metrics answers requests with [`Watch::to_prometheus`] and [`Watch::to_json`]. Names, kinds
//! and meanings are declared in `kiln_device::metrics`.
//!
//! `kiln top` shows a running process. It polls `/metrics.json` at an address, or a file that the process rewrites
//! periodically:
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! use kiln::metrics::Watch;
//! use kiln::{DType, Device, Tensor};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("metrics.json");
//! let device = Device::cpu()?;
//! let watch = Watch::new();
//! watch.add(&device);
//! Tensor::ones(8, DType::F32, &device)?.add_scalar(1.0)?.eval()?;
//! watch.write_file(&path)?; // for `kiln top file:metrics.json`
//! assert!(watch.to_prometheus().contains("kiln_kernel_launches_total"));
//! # Ok(())
//! # }
//! ```

mod publish;
mod watch;

pub use kiln_device::metrics::{Metric, MetricKind, Sample};
pub(crate) use watch::FinalMetrics;
pub use watch::Watch;
