//! A connection with a read deadline.

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection whose reads all end before one deadline, however slowly bytes arrive.
pub(crate) struct TimedStream {
    stream: TcpStream,
    deadline: Instant,
}

impl TimedStream {
    /// Reads from `stream` for at most `timeout` from now on.
    pub(crate) fn new(stream: TcpStream, timeout: Duration) -> Self {
        Self { stream, deadline: Instant::now() + timeout }
    }
}

impl Read for TimedStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // The timeout of a socket starts again with each read, so it is set to the remaining time. A zero timeout is
        // an error.
        let left = self.deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        self.stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
        self.stream.read(bytes)
    }
}
