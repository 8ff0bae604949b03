//! The numbers of devices for whoever charts them: Prometheus text at an address or in a file, and the `metrics` facade.
//!
//! A [`Watch`] knows devices and tells their [`Metric`]s; an [`Exporter`] gives them away until it is dropped. Names, kinds and
//! meanings are declared in `kiln_device::metrics`; `kiln top` shows them live.
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! use kiln::metrics::{Exporter, Target};
//! use kiln::{DType, Device, Tensor};
//!
//! let device = Device::cpu()?;
//! let exporter = Exporter::start(&"127.0.0.1:0".parse::<Target>()?)?;
//! exporter.watch().add(&device);
//! Tensor::ones(8, DType::F32, &device)?.add_scalar(1.0)?.eval()?;
//! println!("{:?}", exporter.address()); // what `kiln top` and Prometheus ask
//! let text = exporter.watch().to_prometheus();
//! assert!(text.contains("kiln_kernel_launches_total"));
//! # Ok(())
//! # }
//! ```

mod file;
mod http;
mod publish;
mod target;
mod watch;

pub use kiln_device::metrics::{Metric, MetricKind, Sample};
pub use target::Target;
pub(crate) use watch::LastWords;
pub use watch::Watch;

use crate::Result;
use std::net::SocketAddr;

/// Gives the metrics of a [`Watch`] away, from a thread that ends when this is dropped.
#[derive(Debug)]
pub struct Exporter {
    watch: Watch,
    output: Output,
}

#[derive(Debug)]
enum Output {
    Http(http::Server),
    File(file::Writer),
}

impl Exporter {
    /// The name of the setting that says where metrics go.
    pub const SETTING: &'static str = "KILN_METRICS";

    /// Starts to give away the metrics of devices that are still to be [added](Watch::add).
    ///
    /// # Errors
    /// `InvalidArgument` where an address is not of this machine alone, or a path is not that of a file; `Io` where the system
    /// refuses the address, the file or the thread.
    pub fn start(target: &Target) -> Result<Self> {
        let watch = Watch::new();
        let output = match target {
            Target::Http(address) => Output::Http(http::Server::start(*address, &watch)?),
            Target::File(path) => Output::File(file::Writer::start(path, &watch)?),
        };
        Ok(Self { watch, output })
    }

    /// What the setting `KILN_METRICS` says, `127.0.0.1:9464` or `file:PATH`; `None` where it says nothing. The library reads no
    /// environment: `setting` is asked for it.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// let exporter = kiln::metrics::Exporter::from_settings(|name| std::env::var(name).ok())?;
    /// # let _ = exporter;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`start`](Self::start), and `InvalidArgument` where it is neither an address nor a file.
    pub fn from_settings(setting: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let Some(value) = setting(Self::SETTING).filter(|value| !value.is_empty()) else { return Ok(None) };
        let started = value.parse().and_then(|target| Self::start(&target));
        started.map(Some).map_err(|error| error.context(Self::SETTING))
    }

    /// The devices whose metrics are given away.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// The address that is served, with the port that the system chose for port 0; `None` where metrics go to a file.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.output {
            Output::Http(server) => Some(server.address()),
            Output::File(_) => None,
        }
    }

    /// Ends it as dropping does, and tells whether the last state was written.
    ///
    /// # Errors
    /// `Io` where it could not be written to its file.
    pub fn finish(self) -> Result<()> {
        match self.output {
            Output::Http(_) => Ok(()),
            Output::File(writer) => writer.finish(),
        }
    }
}
