//! Exports the metrics of every device that the program opens, where `KILN_METRICS` asks for it.

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
    /// `Unsupported` where the environment asks for them.
    pub(crate) fn watch(_device: &Device) -> Result<()> {
        if settings::variable("KILN_METRICS").is_some_and(|value| !value.is_empty()) {
            let message = "KILN_METRICS expected a program with the feature `events`, found one without";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }

    pub(crate) fn finish() {}
}
