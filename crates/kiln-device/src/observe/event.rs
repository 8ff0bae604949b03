//! The events of a device.

use crate::graph::NodeKind;
use crate::info::DeviceKind;
use crate::kernel::Origin;
use crate::memory::Usage;
use kiln_resource_cache::events::CacheEvent;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::Range;

/// An event of a device: one line of its stream.
///
/// ```
/// use kiln_device::observe::{Event, EventKind};
///
/// let line = r#"{"device":"cpu","at_ns":1700000000000000000,"type":"PoolShrank","data":{"bytes":4096,"reserved_bytes":0}}"#;
/// let event = Event::from_json_line(line)?;
/// assert_eq!(event.kind, EventKind::PoolShrank { bytes: 4096, reserved_bytes: 0 });
/// assert_eq!(event.to_json_line()?, line);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The id of the device.
    pub device: String,
    /// When it was emitted, in nanoseconds of Unix time. All other times whose names end in `_ns` and that are not
    /// durations use the same clock.
    pub at_ns: u64,
    /// The kind of event, with its data.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// Formats the event as one line of JSON, without the line break.
    ///
    /// # Errors
    /// Returns no error for any known event.
    pub fn to_json_line(&self) -> io::Result<String> {
        serde_json::to_string(self).map_err(io::Error::other)
    }

    /// Parses a line.
    ///
    /// # Errors
    /// Returns `InvalidData` if the line is not an event.
    pub fn from_json_line(line: &str) -> io::Result<Self> {
        serde_json::from_str(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// The kind of an event, with its data.
///
/// Files with the names of earlier versions, such as `PoolTook` for `PoolGrew`, can still be parsed.
///
/// See [`Event`] for an example.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
#[non_exhaustive]
pub enum EventKind {
    /// A watcher was added: the first line of a stream.
    WatchBegan {
        /// The name of the device.
        name: String,
        /// The kind of device.
        kind: DeviceKind,
        /// The number of threads, if it is the CPU device.
        threads: Option<u32>,
        /// Whether kernels are timed: always on the CPU, on other devices if they have timestamps.
        is_timed: bool,
        /// Bytes that the pool holds from the driver.
        reserved_bytes: u64,
    },
    /// A watcher was removed: the last line of a stream that was not cut off.
    WatchEnded {
        /// Events delivered, excluding this one.
        #[serde(alias = "told")]
        delivered: u64,
        /// Events dropped because the queue was full.
        dropped: u64,
        /// Events that the watcher failed to record or write.
        #[serde(default)]
        lost: u64,
    },
    /// Events were dropped because the queue was full.
    EventsDropped {
        /// The number of events dropped since the last line.
        count: u64,
    },
    /// A kernel was compiled, or loaded from disk.
    KernelReady {
        /// The name of the kernel.
        kernel: String,
        /// Compiled or loaded.
        origin: Origin,
        /// When it began.
        start_ns: u64,
        /// The duration.
        duration_ns: u64,
    },
    /// Consecutive launches of one kernel that were timed together, often a single one.
    KernelRun {
        /// The name of the kernel.
        kernel: String,
        /// The number of the submission.
        submission: u64,
        /// The number of launches.
        launches: u64,
        /// Bytes read and written by all launches.
        bytes: u64,
        /// Arithmetic operations of all launches.
        flops: u64,
        /// When the first launch began, by the device's timestamps or, on the CPU, the host's clock; `null` if it was
        /// not timed.
        start_ns: Option<u64>,
        /// The duration of all launches; `null` if they were not timed.
        duration_ns: Option<u64>,
    },
    /// The pool allocated memory from the driver.
    #[serde(alias = "PoolTook")]
    PoolGrew {
        /// The size in bytes.
        bytes: u64,
        /// The usage.
        usage: Usage,
        /// Bytes that the pool holds afterwards.
        reserved_bytes: u64,
    },
    /// The pool released memory to the driver.
    #[serde(alias = "PoolGaveBack")]
    PoolShrank {
        /// The size in bytes.
        bytes: u64,
        /// Bytes that the pool holds afterwards.
        reserved_bytes: u64,
    },
    /// The pool released free blocks.
    PoolCleanup {
        /// The reason.
        reason: CleanupReason,
        /// The number of blocks.
        blocks: u64,
        /// Bytes released to the driver.
        bytes: u64,
        /// When it began.
        start_ns: u64,
        /// The duration.
        duration_ns: u64,
    },
    /// The pool came under memory pressure, or the pressure ended.
    PoolPressure {
        /// True if pressure begins, false if it ends.
        begins: bool,
        /// Bytes that the pool holds.
        reserved_bytes: u64,
        /// The budget of the pool in bytes.
        budget_bytes: u64,
    },
    /// A request failed for lack of memory.
    PoolOutOfMemory {
        /// The requested bytes.
        bytes: u64,
        /// The requested usage.
        usage: Usage,
        /// The label of the request.
        label: String,
        /// Bytes that the pool holds.
        reserved_bytes: u64,
        /// The budget of the pool in bytes.
        budget_bytes: u64,
    },
    /// A graph ran. Its nodes follow, each in the stream of the device that ran it. The run and its host nodes are in
    /// the stream of the first watched device of the graph.
    GraphRun {
        /// The number of the run, unique on that device.
        run: u64,
        /// The number of nodes.
        nodes: u64,
        /// The number of threads.
        workers: u64,
        /// When it began.
        start_ns: u64,
        /// The duration.
        duration_ns: u64,
    },
    /// A node of a graph ran, or was submitted; see [`NodeRun`](crate::graph::NodeRun).
    GraphNode {
        /// The number of the run, on the first watched device of the graph.
        run: u64,
        /// The name of the node.
        node: String,
        /// The kind of the node.
        kind: NodeKind,
        /// The thread that ran or submitted it.
        worker: u64,
        /// When the thread started the node.
        start_ns: u64,
        /// How long the thread worked on it.
        duration_ns: u64,
        /// The number of the submission, if a device runs the node.
        submission: Option<u64>,
        /// When another node observed the end of the submission.
        done_ns: Option<u64>,
    },
    /// An event of a cache of the device, such as `kernels` (the memory tier of the kernel cache) or `plans`.
    #[serde(untagged)]
    Cache(CacheEvent),
}

impl EventKind {
    /// Returns the time range in nanoseconds of Unix time, or `None` if the event has no duration or an unknown one.
    pub(super) fn span(&self) -> Option<Range<u64>> {
        match self {
            Self::KernelRun { start_ns: Some(start), duration_ns: Some(took), .. }
            | Self::KernelReady { start_ns: start, duration_ns: took, .. }
            | Self::PoolCleanup { start_ns: start, duration_ns: took, .. }
            | Self::GraphRun { start_ns: start, duration_ns: took, .. }
            | Self::GraphNode { start_ns: start, duration_ns: took, .. } => Some(*start..start.saturating_add(*took)),
            _ => None,
        }
    }
}

/// Why a pool releases free blocks.
///
/// ```
/// use kiln_device::observe::{CleanupReason, Event, EventKind};
///
/// let line = r#"{"device":"cpu","at_ns":8100,"type":"PoolCleanup","data":{"reason":"idle","blocks":1,"bytes":4096,"start_ns":8000,"duration_ns":100}}"#;
/// let event = Event::from_json_line(line)?;
/// assert!(matches!(event.kind, EventKind::PoolCleanup { reason: CleanupReason::Idle, .. }));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CleanupReason {
    /// Requested by the program.
    #[serde(alias = "asked")]
    Requested,
    /// The budget is nearly used up.
    Pressure,
    /// A request found no room.
    Exhausted,
    /// The blocks were not needed for a while.
    Idle,
}
