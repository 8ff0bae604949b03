//! Graphs: nodes that use buffers, run in dependency order, in parallel where possible.
//!
//! A [`Graph`] is built, then [compiled](Graph::compile) to a [`GraphPlan`], which runs any number of times, with the
//! same or other buffers. `node` defines nodes, `edges` finds the dependencies, `units` groups nodes into submissions,
//! `plan` binds buffers, `run` executes, `report` contains the timeline of a run, `events` emits it, `diagram` renders
//! the graph as text.

mod diagram;
mod edges;
mod events;
mod node;
mod plan;
mod report;
mod run;
mod units;

pub use node::NodeKind;
pub use plan::GraphPlan;
pub use report::{NodeRun, RunReport};

use crate::buffer::Buffer;
use crate::command::{BufferUse, Command, CommandList};
use crate::kernel::Launch;
use edges::{Cause, Edges};
use kiln_ir::{Error, ErrorKind, Result, bail};
use node::{DeclaredBuffer, GraphNode, Use, Work};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// Command lists, copies and host callbacks with names and dependencies.
///
/// Dependencies follow from buffer accesses in insertion order, or are [declared](Self::after). Buffers are declared as
/// well: a node may use any part of a declared buffer, and two nodes depend on each other only if they access the same
/// bytes and one of them writes.
///
/// ```
/// # fn main() -> Result<(), kiln_ir::Error> {
/// use kiln_device::{BufferUse, Graph, NullDevice};
///
/// let device = NullDevice::new().into_device()?;
/// let (x, y) = (device.buffer_from(&[1u32, 2])?, device.buffer_of::<u32>(2)?);
///
/// let mut graph = Graph::new();
/// graph.buffer("x", x.as_bytes())?;
/// graph.buffer("y", y.as_bytes())?;
/// graph.copy("copy", x.as_bytes(), y.as_bytes())?;
/// graph.host("double", [(y.as_bytes(), BufferUse::ReadWrite)], |[y]| {
///     y.clone().typed::<u32>()?.map_write(|y| y.iter_mut().for_each(|y| *y *= 2))
/// })?;
///
/// let plan = graph.compile()?;
/// plan.run()?;
/// assert_eq!(y.read()?, [2, 4]);
///
/// let other = device.buffer_from(&[10u32, 20])?;
/// let report = plan.run_with(&[("x", other.as_bytes())])?;
/// assert_eq!(y.read()?, [20, 40]);
/// assert_eq!(report.nodes[0].name, "copy");
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Graph {
    nodes: Vec<GraphNode>,
    node_index: HashMap<String, usize>,
    buffers: Vec<DeclaredBuffer>,
    after: BTreeSet<(usize, usize)>,
}

impl Graph {
    /// Creates an empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a buffer under a name, so that nodes can use it and [`GraphPlan::run_with`] can replace it.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the name is taken, or if the buffer overlaps a declared one.
    pub fn buffer(&mut self, name: impl Into<String>, buffer: &Buffer) -> Result<()> {
        let name = name.into();
        if self.buffers.iter().any(|declared| declared.name == name) {
            return Err(invalid(format!("graph expected one buffer of each name, found a second `{name}`")));
        }
        // Dependencies are inferred for each declared buffer separately, so an overlap would hide some.
        if let Some(other) = self.buffers.iter().find(|declared| declared.buffer.overlaps(buffer)) {
            let other = &other.name;
            bail!(InvalidArgument, "buffer `{name}` expected bytes of no other buffer, found some of buffer `{other}`");
        }
        self.buffers.push(DeclaredBuffer { name, buffer: buffer.clone() });
        Ok(())
    }

    /// Adds a node that runs a command list on the device of its buffers.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the name is taken, if a buffer is not declared, or if the buffers belong to several
    /// devices.
    pub fn commands(&mut self, name: impl Into<String>, commands: CommandList) -> Result<()> {
        let name = name.into();
        // The staging buffer of a recorded write belongs to the list and is not declared. It is the first buffer of its
        // copy.
        let is_staged = |command: &Command| matches!(command, Command::Copy { staged: true, .. });
        let declared = |command| Command::accesses(command).skip(usize::from(is_staged(command)));
        let uses: Vec<_> = commands.commands().iter().flat_map(declared).collect();
        if let Some((first, _)) = uses.first()
            && let Some((other, _)) = uses.iter().find(|(buffer, _)| !buffer.is_on_device_of(first))
        {
            let (one, other) = (&first.device_info().id, &other.device_info().id);
            bail!(InvalidArgument, "node `{name}` expected buffers of one device, found `{one}` and another `{other}`");
        }
        let uses = self.find_uses(&name, &uses)?;
        self.add(name, NodeKind::Commands, uses, Work::Submit(commands.into_commands()))
    }

    /// Adds a node that launches a kernel.
    ///
    /// # Errors
    /// Returns the same errors as [`commands`](Self::commands); `InvalidArgument` if the launch lacks an argument or
    /// its grid.
    pub fn launch(&mut self, name: impl Into<String>, launch: Launch<'_>) -> Result<()> {
        let name = name.into();
        let mut commands = CommandList::new();
        launch.record(&mut commands).map_err(|error| error.context(format!("node `{name}`")))?;
        self.commands(name, commands)
    }

    /// Adds a node that copies a buffer to another of the same length, on the device if possible, otherwise through the
    /// host.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the name is taken, if a buffer is not declared, or if the lengths differ.
    pub fn copy(&mut self, name: impl Into<String>, from: &Buffer, to: &Buffer) -> Result<()> {
        let name = name.into();
        if from.bytes() != to.bytes() {
            let (from, to) = (from.bytes(), to.bytes());
            return Err(invalid(format!("node `{name}` expected equal lengths, found {from} and {to} bytes")));
        }
        let uses = self.find_uses(&name, &[(from, BufferUse::Read), (to, BufferUse::Write)])?;
        let mut commands = CommandList::new();
        let work = match commands.copy(from, to) {
            Ok(()) => Work::Submit(commands.into_commands()),
            // For example between devices, or with unaligned offsets.
            Err(_) => Work::Transfer { from: from.clone(), to: to.clone() },
        };
        self.add(name, NodeKind::Copy, uses, work)
    }

    /// Adds a callback that the host runs once all dependencies are done.
    ///
    /// The callback receives the buffers of `uses` in that order, or their replacements in [`GraphPlan::run_with`]. The
    /// graph does not track anything else that it accesses. Callbacks run concurrently; callbacks that wait for each
    /// other need a [worker](GraphPlan::with_workers) each.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the name is taken, or if a buffer is not declared.
    pub fn host<const N: usize>(
        &mut self,
        name: impl Into<String>,
        uses: [(&Buffer, BufferUse); N],
        callback: impl Fn([&Buffer; N]) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        let name = name.into();
        let buffers = uses.iter().map(|(buffer, _)| (*buffer).clone()).collect();
        let uses = self.find_uses(&name, &uses)?;
        let callback = Arc::new(move |buffers: &[Buffer]| callback(std::array::from_fn(|index| &buffers[index])));
        self.add(name, NodeKind::Host, uses, Work::Host { buffers, callback })
    }

    /// Makes `node` depend on `other`, whatever buffers they use. Both must already be in the graph, in any order.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if there is no node of a name.
    pub fn after(&mut self, node: &str, other: &str) -> Result<()> {
        let find = |name: &str| {
            let known = self.node_index.get(name).copied();
            known.ok_or_else(|| {
                invalid(format!("`{node}` after `{other}` expected nodes of the graph, found no `{name}`"))
            })
        };
        let (from, to) = (find(other)?, find(node)?);
        self.after.insert((from, to));
        Ok(())
    }

    /// Returns the names of the nodes, in insertion order.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Checks the graph and computes the execution order.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the dependencies form a cycle; the message lists its nodes in order.
    pub fn compile(&self) -> Result<GraphPlan> {
        let edges = self.edges();
        let order = edges::order(&self.nodes, &self.buffers, &edges)?;
        Ok(GraphPlan::new(&self.nodes, &self.buffers, &edges, &order))
    }

    fn edges(&self) -> Edges {
        let mut edges: Edges = self.after.iter().map(|&edge| (edge, BTreeSet::from([Cause::Declared]))).collect();
        edges::infer(&self.nodes, &self.buffers, &mut edges);
        edges
    }

    fn add(&mut self, name: String, kind: NodeKind, uses: Vec<Use>, work: Work) -> Result<()> {
        if self.node_index.contains_key(&name) {
            return Err(invalid(format!("graph expected one node of each name, found a second `{name}`")));
        }
        self.node_index.insert(name.clone(), self.nodes.len());
        self.nodes.push(GraphNode { name, kind, work, uses });
        Ok(())
    }

    /// Returns the position of the node's buffers in the declared buffers.
    fn find_uses(&self, node: &str, uses: &[(&Buffer, BufferUse)]) -> Result<Vec<Use>> {
        let find = |&(buffer, how): &(&Buffer, BufferUse)| {
            let mut places = self.buffers.iter().enumerate();
            let place = places.find_map(|(index, declared)| Some((index, declared.buffer.position_of(buffer)?)));
            let (declared, range) = place.ok_or_else(|| self.not_declared(node, buffer))?;
            Ok(Use { declared, range, how })
        };
        uses.iter().map(find).collect()
    }

    fn not_declared(&self, node: &str, buffer: &Buffer) -> Error {
        let (bytes, offset, id) = (buffer.bytes(), buffer.offset(), &buffer.device_info().id);
        let near = self.buffers.iter().find(|declared| declared.buffer.overlaps(buffer));
        let near = near.map_or(String::new(), |near| format!(", partly in buffer `{}`", near.name));
        invalid(format!(
            "node `{node}` expected buffers that the graph declares, found one of {bytes} bytes at offset {offset} on device \
             `{id}`{near}"
        ))
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<&str> = self.node_names().collect();
        let buffers: Vec<&str> = self.buffers.iter().map(|declared| declared.name.as_str()).collect();
        f.debug_struct("Graph").field("nodes", &nodes).field("buffers", &buffers).finish()
    }
}
