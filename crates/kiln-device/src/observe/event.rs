//! What the stream of a device says.

use crate::graph::NodeKind;
use crate::info::DeviceKind;
use crate::kernel::Origin;
use crate::memory::Usage;
use kiln_resource_cache::events::CacheEvent;
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::Range;

/// Something that happened on a device: one line of its stream.
///
/// ```
/// use kiln_device::observe::{Event, Happening};
///
/// let line = r#"{"device":"cpu","at_ns":1700000000000000000,"type":"PoolGaveBack","data":{"bytes":4096,"reserved_bytes":0}}"#;
/// let event = Event::from_json_line(line)?;
/// assert_eq!(event.what, Happening::PoolGaveBack { bytes: 4096, reserved_bytes: 0 });
/// assert_eq!(event.to_json_line()?, line);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The id of the device.
    pub device: String,
    /// When it was told, in nanoseconds of Unix time, as all times of events whose names end in `_ns` and are no durations.
    pub at_ns: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: Happening,
}

impl Event {
    /// The event as one line of JSON, without the line break.
    ///
    /// # Errors
    /// None that an event is known to have.
    pub fn to_json_line(&self) -> io::Result<String> {
        serde_json::to_string(self).map_err(io::Error::other)
    }

    /// The event of a line.
    ///
    /// # Errors
    /// `InvalidData` where the line is none of an event.
    pub fn from_json_line(line: &str) -> io::Result<Self> {
        serde_json::from_str(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "data")]
#[non_exhaustive]
pub enum Happening {
    /// Somebody began to watch: the first line of a stream.
    WatchBegan {
        /// The name of the device.
        name: String,
        /// What sort of device it is.
        kind: DeviceKind,
        /// How many threads it has, where it is the CPU.
        threads: Option<u32>,
        /// Whether kernels are timed: always on the CPU, elsewhere where the device has timestamps.
        is_timed: bool,
        /// Bytes that the pool has of the driver.
        reserved_bytes: u64,
    },
    /// Nobody watches any more: the last line of a stream that was not cut off.
    WatchEnded {
        /// Events that were told, this one excluded.
        told: u64,
        /// Events that found no room and were dropped.
        dropped: u64,
        /// Events that the watcher failed to take or to write.
        #[serde(default)]
        lost: u64,
    },
    /// Events were dropped, because they came faster than they could be written.
    EventsDropped {
        /// How many since the last line.
        count: u64,
    },
    /// A kernel was compiled, or loaded from disk.
    KernelReady {
        /// The name of the kernel.
        kernel: String,
        /// Where it is from.
        origin: Origin,
        /// When that began.
        start_ns: u64,
        /// How long it took.
        duration_ns: u64,
    },
    /// Launches of one kernel in a row that were timed together, often one.
    KernelRun {
        /// The name of the kernel.
        kernel: String,
        /// The number of the submission that ran it.
        submission: u64,
        /// How often it ran.
        launches: u64,
        /// Bytes that all launches read and wrote.
        bytes: u64,
        /// Arithmetic operations of all launches.
        flops: u64,
        /// When the first launch began, by the device's timestamps or, on the CPU, the host's clock; `null` if it was not timed.
        start_ns: Option<u64>,
        /// How long all launches took; `null` where the run was not timed.
        duration_ns: Option<u64>,
    },
    /// The pool took memory from the driver.
    PoolTook {
        /// How much.
        bytes: u64,
        /// What for.
        usage: Usage,
        /// Bytes that it has afterwards.
        reserved_bytes: u64,
    },
    /// The pool gave memory back to the driver.
    PoolGaveBack {
        /// How much.
        bytes: u64,
        /// Bytes that it has afterwards.
        reserved_bytes: u64,
    },
    /// The pool let go of free blocks.
    PoolCleanup {
        /// Why.
        reason: CleanupReason,
        /// How many blocks.
        blocks: u64,
        /// Bytes that went back to the driver.
        bytes: u64,
        /// When that began.
        start_ns: u64,
        /// How long it took.
        duration_ns: u64,
    },
    /// The pool came under pressure, or is no longer.
    PoolPressure {
        /// Whether it begins.
        begins: bool,
        /// Bytes that it has.
        reserved_bytes: u64,
        /// Bytes that it may have.
        budget_bytes: u64,
    },
    /// A request found no memory.
    PoolOutOfMemory {
        /// How much was asked for.
        bytes: u64,
        /// What for.
        usage: Usage,
        /// The label of the request.
        label: String,
        /// Bytes that the pool has.
        reserved_bytes: u64,
        /// Bytes that it may have.
        budget_bytes: u64,
    },
    /// A graph ran. Its nodes are told right after it, each by the device that ran it; those that the host runs by the first device of
    /// the graph that is watched, as the run itself.
    GraphRun {
        /// A number for the run, its own on that device.
        run: u64,
        /// How many nodes ran.
        nodes: u64,
        /// How many threads took part.
        workers: u64,
        /// When it began.
        start_ns: u64,
        /// How long it took.
        duration_ns: u64,
    },
    /// A node of a graph ran, or was submitted; see [`NodeRun`](crate::graph::NodeRun).
    GraphNode {
        /// The number of the run, as the first device of the graph tells it.
        run: u64,
        /// The name of the node.
        node: String,
        /// What sort of node it is.
        kind: NodeKind,
        /// The thread that ran or submitted it.
        worker: u64,
        /// When the thread began with it.
        start_ns: u64,
        /// How long the thread was with it.
        duration_ns: u64,
        /// The number of the submission, where a device runs the node.
        submission: Option<u64>,
        /// When another node saw that the submission was done.
        done_ns: Option<u64>,
    },
    /// What a cache of the device tells: `kernels`, the memory tier of the kernel cache, or `plans`.
    #[serde(untagged)]
    Cache(CacheEvent),
}

impl Happening {
    /// From its beginning to its end, in nanoseconds of Unix time; `None` where it takes no time, or an unknown one.
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

/// Why a pool lets go of free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CleanupReason {
    /// The program asked for it.
    Asked,
    /// Much of the budget is taken.
    Pressure,
    /// A request found no room.
    Exhausted,
    /// Nobody needed them for a while.
    Idle,
}
