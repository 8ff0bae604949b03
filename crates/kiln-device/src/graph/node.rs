//! What a graph is made of: nodes, and the buffers that they declare to touch.

use crate::buffer::Buffer;
use crate::command::{BufferUse, Command};
use crate::rebinding::Rebinding;
use kiln_ir::Result;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The sort of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NodeKind {
    /// A command list: launches, copies and fills that one device runs in order.
    Commands,
    /// A copy between two buffers, of one device or of two.
    Copy,
    /// A callback that the host runs.
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

/// What a node does.
#[derive(Clone)]
pub(super) enum Work {
    /// Commands of one device; none at all do nothing.
    Submit(Vec<Command>),
    /// A copy that no device can do alone, through the host.
    Transfer { from: Buffer, to: Buffer },
    /// A callback with the buffers that it declared, in that order.
    Host { buffers: Vec<Buffer>, callback: Callback },
}

/// A range of a declared buffer that a node touches.
#[derive(Clone)]
pub(super) struct Use {
    pub(super) declared: usize,
    /// The bytes, counted from its beginning.
    pub(super) range: Range<u64>,
    pub(super) how: BufferUse,
}

/// A buffer that the graph knows by name.
#[derive(Clone)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) buffer: Buffer,
}

impl Work {
    /// A buffer of the device that runs the node; `None` where the host does.
    pub(super) fn device_buffer(&self) -> Option<&Buffer> {
        match self {
            Self::Submit(commands) => commands.iter().flat_map(Command::accesses).map(|(buffer, _)| buffer).next(),
            Self::Transfer { .. } | Self::Host { .. } => None,
        }
    }

    /// The work with replaced buffers; `None` where it has none of them.
    pub(super) fn rebound(&self, rebinding: &Rebinding) -> Result<Option<Self>> {
        let is_concerned = match self {
            Self::Submit(commands) => {
                commands.iter().flat_map(Command::accesses).any(|(buffer, _)| rebinding.concerns(buffer))
            }
            Self::Transfer { from, to } => rebinding.concerns(from) || rebinding.concerns(to),
            Self::Host { buffers, .. } => buffers.iter().any(|buffer| rebinding.concerns(buffer)),
        };
        if !is_concerned {
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
