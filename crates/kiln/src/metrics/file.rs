//! Metrics in a file, every second.

use super::Watch;
use crate::{Error, ErrorKind, Result};
use kiln_resource_cache::new_file::NewFile;
use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time between two states of the file.
const PERIOD: Duration = Duration::from_secs(1);

/// Writes the file until it is dropped, and once more then.
#[derive(Debug)]
pub(super) struct Writer {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<Result<()>>>,
}

#[derive(Debug, Default)]
struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Writer {
    /// Writes the first state, so that a path that cannot be written is told, and starts the thread.
    pub(super) fn start(path: &Path, watch: &Watch) -> Result<Self> {
        // A rename would put a file in the place of a device or a pipe.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            let message = format!("metrics expected a file or nothing at {}, found something else", path.display());
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        write(path, watch)?;
        let stop = Arc::new(Stop::default());
        let (signal, path, watch) = (Arc::clone(&stop), path.to_path_buf(), watch.clone());
        let thread = std::thread::Builder::new().name("kiln-metrics".to_string());
        let thread = thread.spawn(move || write_until(&signal, &path, &watch));
        let thread = thread.map_err(|error| Error::new(ErrorKind::Io, format!("metrics thread: {error}")))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it; tells whether the last state was written.
    pub(super) fn finish(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        *self.stop.is_set.lock() = true;
        self.stop.changed.notify_all();
        let panicked = || Error::new(ErrorKind::Internal, "the thread that writes metrics panicked");
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(|_| Err(panicked())))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Who wants to know whether the last state was written asks `finish`.
        let _ = self.end();
    }
}

/// Returns what became of the last state: one that could not be written is made good by the next.
fn write_until(stop: &Stop, path: &Path, watch: &Watch) -> Result<()> {
    loop {
        let next = Instant::now() + PERIOD;
        let mut is_set = stop.is_set.lock();
        while !*is_set && !stop.changed.wait_until(&mut is_set, next).timed_out() {}
        let is_last = *is_set;
        drop(is_set);
        let written = write(path, watch);
        if is_last {
            return written;
        }
    }
}

fn write(path: &Path, watch: &Watch) -> Result<()> {
    let write = || {
        let mut file = NewFile::create(path)?;
        file.write_all(watch.to_prometheus().as_bytes())?;
        file.commit()
    };
    write().map_err(|error: io::Error| {
        Error::new(ErrorKind::Io, format!("cannot write metrics to {}: {error}", path.display())).with_source(error)
    })
}
