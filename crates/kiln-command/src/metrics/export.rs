//! Reads `KILN_METRICS`, an address or a file, and exports metrics there until the program ends.

use super::server;
use crate::{settings, terminal};
use kiln::metrics::Watch;
use kiln::{Device, Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const SETTING: &str = "KILN_METRICS";

/// Time between two writes of the file.
const PERIOD: Duration = Duration::from_secs(1);

/// The export of the program, from its first device until [`finish`]. All devices share one: a second could not serve the same
/// address.
static EXPORT: Mutex<Export> = Mutex::new(Export::NotStarted);

enum Export {
    NotStarted,
    Off,
    /// Served until the process ends.
    Http(Watch),
    File {
        watch: Watch,
        /// Dropped to end the thread.
        stop: Sender<()>,
        thread: JoinHandle<Result<()>>,
    },
}

/// Starts to export the metrics of a device, if the environment enables it.
///
/// # Errors
/// Returns `InvalidArgument` if the variable has an invalid value.
pub(crate) fn watch(device: &Device) -> Result<()> {
    // Held while the export starts: two devices that open at the same time must share one.
    let mut export = EXPORT.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*export, Export::NotStarted) {
        *export = from_setting()?;
    }
    if let Export::Http(watch) | Export::File { watch, .. } = &*export {
        watch.add(device);
    }
    Ok(())
}

/// Ends the export after a last write of the file. Devices opened later are not exported.
pub(crate) fn finish() {
    let mut export = EXPORT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Export::File { stop, thread, .. } = std::mem::replace(&mut *export, Export::Off) {
        // Disconnects the channel, which ends the wait of the thread at once. The thread never takes the lock of
        // `EXPORT`, so joining it here cannot deadlock.
        drop(stop);
        let panicked = || Error::new(ErrorKind::Internal, "the thread that writes metrics panicked");
        if let Err(error) = thread.join().unwrap_or_else(|_| Err(panicked())) {
            terminal::warn(&error.to_string());
        }
    }
}

fn from_setting() -> Result<Export> {
    let Some(value) = settings::variable(SETTING).filter(|value| !value.is_empty()) else { return Ok(Export::Off) };
    match start(&value).map_err(|error| error.context(SETTING)) {
        // Another process may use the address; the command continues without metrics.
        Err(error) if error.kind() == ErrorKind::Io => {
            terminal::warn(&format!("continuing without metrics: {error}"));
            Ok(Export::Off)
        }
        started => started,
    }
}

fn start(target: &str) -> Result<Export> {
    let watch = Watch::new();
    if let Some(path) = target.strip_prefix("file:").filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        // An unwritable path is reported before any work is done.
        watch.write_file(&path)?;
        let (stop, stopped) = mpsc::channel();
        let of_thread = watch.clone();
        let thread = thread::Builder::new()
            .name("kiln-metrics".to_string())
            .spawn(move || write_until(&stopped, &path, &of_thread))
            .map_err(|error| Error::new(ErrorKind::Io, format!("metrics thread: {error}")))?;
        return Ok(Export::File { watch, stop, thread });
    }
    let address = target.parse::<SocketAddr>().map_err(|_| {
        let message = format!("expected `127.0.0.1:PORT` or `file:PATH`, found `{target}`");
        Error::new(ErrorKind::InvalidArgument, message)
    })?;
    let address = server::start(address, watch.clone())?;
    terminal::print_message("note", &format!("metrics at http://{address}/metrics"));
    Ok(Export::Http(watch))
}

/// Writes the file periodically and returns the outcome of the last write: a later write makes up for a failed one.
fn write_until(stopped: &Receiver<()>, path: &Path, watch: &Watch) -> Result<()> {
    loop {
        let is_last = stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout);
        let written = watch.write_file(path);
        if is_last {
            return written;
        }
    }
}
