//! Command lists, captured sequences, and graphs of launches, copies and host callbacks.
//!
//! A [`CommandList`] runs in order as one submission; a [`Captured`] sequence is recorded once and replayed; a [`Graph`] derives
//! its order from the buffers that its nodes use, and is compiled to a [`GraphPlan`].
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! use kiln::graph::Graph;
//!
//! let device = kiln::Device::cpu()?;
//! let (x, y) = (device.buffer_from(&[1u32, 2])?, device.buffer_of::<u32>(2)?);
//! let mut graph = Graph::new();
//! graph.buffer("x", x.as_bytes())?;
//! graph.buffer("y", y.as_bytes())?;
//! graph.copy("copy", x.as_bytes(), y.as_bytes())?;
//! graph.compile()?.run()?;
//! assert_eq!(y.read()?, [1, 2]);
//! # Ok(())
//! # }
//! ```

pub use kiln_device::graph::{Graph, GraphPlan, NodeKind, NodeRun, RunReport};
pub use kiln_device::{BufferUse, Captured, Command, CommandList};
