//! A sink that sends events through a channel.

use super::{CacheEvent, EventSink};
use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};

/// Sends events to a receiver in the same process.
///
/// The channel is bounded and never blocks a lookup: if it is full, or the receiver is gone, the event is dropped and
/// counted as a failure of the sink.
///
/// ```
/// use kiln_resource_cache::{Cache, events::ChannelSink};
///
/// let (sink, events) = ChannelSink::new(1024);
/// let cache: Cache<u32, u32> = Cache::builder("squares").sink(sink).build()?;
/// cache.get_or_insert_with(&3, || 9)?;
/// assert_eq!(events.try_iter().count(), 1);
/// # Ok::<(), kiln_resource_cache::CacheError>(())
/// ```
#[derive(Debug)]
pub struct ChannelSink(SyncSender<CacheEvent>);

impl ChannelSink {
    /// Creates a sink and its receiver, with room for `capacity` unread events. With a capacity of 0, an event is only
    /// sent while the receiver is waiting for one.
    pub fn new(capacity: usize) -> (Self, Receiver<CacheEvent>) {
        let (sender, receiver) = mpsc::sync_channel(capacity);
        (Self(sender), receiver)
    }
}

impl EventSink for ChannelSink {
    fn record(&self, event: &CacheEvent) -> io::Result<()> {
        self.0.try_send(event.clone()).map_err(|error| match error {
            TrySendError::Full(_) => io::Error::new(io::ErrorKind::WouldBlock, "the event channel is full"),
            TrySendError::Disconnected(_) => io::Error::new(io::ErrorKind::BrokenPipe, "the event receiver is gone"),
        })
    }
}
