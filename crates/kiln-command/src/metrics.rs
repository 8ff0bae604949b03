//! What `KILN_METRICS` says: the numbers of every device that the program opens, at an address or in a file.

#[cfg(feature = "events")]
pub(crate) use on::{finish, watch};

#[cfg(not(feature = "events"))]
pub(crate) use off::{finish, watch};

#[cfg(feature = "events")]
mod on {
    use crate::{settings, terminal};
    use kiln::metrics::Exporter;
    use kiln::{Device, ErrorKind, Result};
    use std::sync::{Mutex, PoisonError};

    /// What gives them away, from the first device on until [`finish`]. The program has one, whichever of its commands opens devices
    /// and how many: a second could not serve the same address.
    static EXPORTER: Mutex<Exporting> = Mutex::new(Exporting::NotAsked);

    enum Exporting {
        NotAsked,
        Off,
        On(Exporter),
    }

    /// Tells the metrics of a device from here on, where the environment asks for it.
    ///
    /// # Errors
    /// `InvalidArgument` where the variable has a value that it cannot have.
    pub(crate) fn watch(device: &Device) -> Result<()> {
        let mut exporting = EXPORTER.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*exporting, Exporting::NotAsked) {
            *exporting = start()?;
        }
        if let Exporting::On(exporter) = &*exporting {
            exporter.watch().add(device);
        }
        Ok(())
    }

    /// An address that is taken is no reason not to do what was asked for: another run may have it.
    fn start() -> Result<Exporting> {
        match Exporter::from_settings(settings::variable) {
            Ok(Some(exporter)) => {
                if let Some(address) = exporter.address() {
                    terminal::note(&format!("metrics at http://{address}/metrics"));
                }
                Ok(Exporting::On(exporter))
            }
            Ok(None) => Ok(Exporting::Off),
            Err(error) if error.kind() == ErrorKind::Io => {
                terminal::warn(&format!("going on without metrics: {error}"));
                Ok(Exporting::Off)
            }
            Err(error) => Err(error),
        }
    }

    /// Ends it, with the last state in the file. Later devices are not told of.
    pub(crate) fn finish() {
        let mut exporting = EXPORTER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Exporting::On(exporter) = std::mem::replace(&mut *exporting, Exporting::Off)
            && let Err(error) = exporter.finish()
        {
            terminal::warn(&error.to_string());
        }
    }
}

#[cfg(not(feature = "events"))]
mod off {
    use crate::settings;
    use kiln::{Device, Error, ErrorKind, Result};

    /// Says that this program has no metrics, where the environment asks for them.
    ///
    /// # Errors
    /// `Unsupported` where it does.
    pub(crate) fn watch(_device: &Device) -> Result<()> {
        match settings::variable("KILN_METRICS").filter(|value| !value.is_empty()) {
            Some(_) => {
                let message = "KILN_METRICS expected a program with the feature `events`, found one without";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
            None => Ok(()),
        }
    }

    /// There is nothing to end.
    pub(crate) fn finish() {}
}
