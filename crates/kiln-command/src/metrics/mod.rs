//! Exports the metrics of every device that the program opens, if `KILN_METRICS` is set.

#[cfg(feature = "events")]
mod export;
#[cfg(feature = "events")]
mod server;

#[cfg(feature = "events")]
pub(crate) use export::{finish, watch};
#[cfg(not(feature = "events"))]
pub(crate) use off::{finish, watch};

#[cfg(not(feature = "events"))]
mod off {
    use crate::settings;
    use kiln::{Device, Error, ErrorKind, Result};

    /// Refuses metrics, which this build cannot collect.
    ///
    /// # Errors
    /// Returns `Unsupported` if the environment enables them.
    pub(crate) fn watch(_device: &Device) -> Result<()> {
        if settings::variable("KILN_METRICS").is_some_and(|value| !value.is_empty()) {
            let message = "KILN_METRICS expected a program with the feature `events`, found one without";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }

    pub(crate) fn finish() {}
}
