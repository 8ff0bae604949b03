//! Nodes of a graph, and the declared buffers that they use.

use crate::buffer::Buffer;
use crate::command::{BufferUse, Command};
use crate::rebinding::Rebinding;
use kiln_ir::Result;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The kind of a node.
///
/// ```
/// use kiln_device::graph::NodeKind;
///
/// assert_eq!(NodeKind::Host.to_string(), "host");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NodeKind {
    /// A command list: launches, copies and fills that one device runs in order.
    Commands,
    /// A copy between two buffers, of the same or different devices.
    Copy,
    /// A callback that runs on the host.
    Host,
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

pub(super) type Callback = Arc<dyn Fn(&[Buffer]) -> Result<()> + Send + Sync>;

pub(super) struct GraphNode {
    pub(super) name: String,
    pub(super) kind: NodeKind,
    pub(super) work: Work,
    pub(super) uses: Vec<Use>,
}

/// The work of a node.
#[derive(Clone)]
pub(super) enum Work {
    /// Commands of one device; an empty list does nothing.
    Submit(Vec<Command>),
    /// A copy through the host, which no device can do alone.
    Transfer { from: Buffer, to: Buffer },
    /// A callback with its buffers, in the order of declaration.
    Host { buffers: Vec<Buffer>, callback: Callback },
}

/// A range of a declared buffer that a node uses.
#[derive(Clone)]
pub(super) struct Use {
    pub(super) declared: usize,
    /// The bytes, relative to the start of the buffer.
    pub(super) range: Range<u64>,
    pub(super) how: BufferUse,
}

/// A buffer with a name in the graph.
#[derive(Clone)]
pub(super) struct DeclaredBuffer {
    pub(super) name: String,
    pub(super) buffer: Buffer,
}

impl Work {
    /// Returns a buffer of the device that runs the node, or `None` if the host runs it.
    pub(super) fn device_buffer(&self) -> Option<&Buffer> {
        match self {
            Self::Submit(commands) => commands.iter().flat_map(Command::accesses).map(|(buffer, _)| buffer).next(),
            Self::Transfer { .. } | Self::Host { .. } => None,
        }
    }

    /// Returns the work with replaced buffers, or `None` if it uses none of them.
    pub(super) fn rebound(&self, rebinding: &Rebinding) -> Result<Option<Self>> {
        let is_affected = match self {
            Self::Submit(commands) => {
                commands.iter().flat_map(Command::accesses).any(|(buffer, _)| rebinding.affects(buffer))
            }
            Self::Transfer { from, to } => rebinding.affects(from) || rebinding.affects(to),
            Self::Host { buffers, .. } => buffers.iter().any(|buffer| rebinding.affects(buffer)),
        };
        if !is_affected {
            return Ok(None);
        }
        Ok(Some(match self {
            Self::Submit(commands) => Self::Submit(rebinding.commands(commands)?),
            Self::Transfer { from, to } => Self::Transfer { from: rebinding.buffer(from)?, to: rebinding.buffer(to)? },
            Self::Host { buffers, callback } => {
                let buffers = buffers.iter().map(|buffer| rebinding.buffer(buffer)).collect::<Result<_>>()?;
                Self::Host { buffers, callback: Arc::clone(callback) }
            }
        }))
    }
}
