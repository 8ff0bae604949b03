//! Graphs: nodes that touch buffers, run in the order that their dependencies ask for, in parallel where they allow it.
//!
//! A [`Graph`] is built, then [compiled](Graph::compile) to a [`GraphPlan`], which runs as often as wanted, with the same
//! buffers or with others. Where to look: `node` has what a graph is made of, `edges` finds the dependencies, `units`
//! divides the nodes into what is run at once, `plan` binds buffers, `run` runs it, `report` says what ran when, `picture` draws.

mod edges;
mod node;
mod picture;
mod plan;
mod report;
mod run;
mod tell;
mod units;

pub use node::NodeKind;
pub use plan::GraphPlan;
pub use report::{NodeRun, RunReport};

use crate::buffer::Buffer;
use crate::command::{BufferUse, Command, CommandList};
use crate::kernel::Launch;
use edges::{Cause, Edges};
use kiln_ir::{Error, ErrorKind, Result, bail};
use node::{Declared, GraphNode, Use, Work};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// Command lists, copies and host callbacks, each under a name, with dependencies between them: those that follow from
/// buffer access in the order of insertion, and those that are [declared](Self::after).
///
/// Buffers are declared too. A node may touch any part of a declared buffer, and two nodes depend on each other only
/// where they touch the same bytes and one of them writes.
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
    buffers: Vec<Declared>,
    after: BTreeSet<(usize, usize)>,
}

impl Graph {
    /// A graph without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a buffer under a name, for nodes to touch and for [`GraphPlan::run_with`] to replace.
    ///
    /// # Errors
    /// `InvalidArgument` where the name is taken, or where a declared buffer has some of the same bytes.
    pub fn buffer(&mut self, name: impl Into<String>, buffer: &Buffer) -> Result<()> {
        let name = name.into();
        if self.buffers.iter().any(|declared| declared.name == name) {
            return Err(invalid(format!("graph expected one buffer of each name, found a second `{name}`")));
        }
        if let Some(other) = self.buffers.iter().find(|declared| declared.buffer.overlaps(buffer)) {
            let other = &other.name;
            bail!(InvalidArgument, "buffer `{name}` expected bytes of its own, found some of buffer `{other}`");
        }
        self.buffers.push(Declared { name, buffer: buffer.clone() });
        Ok(())
    }

    /// Adds a node that runs a command list on the device of its buffers.
    ///
    /// # Errors
    /// `InvalidArgument` where the name is taken, where a buffer is not declared, or where the buffers are of several
    /// devices.
    pub fn commands(&mut self, name: impl Into<String>, commands: CommandList) -> Result<()> {
        let name = name.into();
        // Staging of recorded writes belongs to the list, and is nobody else's to declare. It is the first of a copy.
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
    /// As [`commands`](Self::commands); `InvalidArgument` where the launch lacks an argument or its grid.
    pub fn launch(&mut self, name: impl Into<String>, launch: Launch<'_>) -> Result<()> {
        let name = name.into();
        let mut commands = CommandList::new();
        launch.record(&mut commands).map_err(|error| error.context(format!("node `{name}`")))?;
        self.commands(name, commands)
    }

    /// Adds a node that copies a buffer to another of the same length: on the device where possible, else through the host.
    ///
    /// # Errors
    /// `InvalidArgument` where the name is taken, where a buffer is not declared, or where the lengths differ.
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
            Err(_) => Work::Transfer { from: from.clone(), to: to.clone() },
        };
        self.add(name, NodeKind::Copy, uses, work)
    }

    /// Adds a node that the host runs once everything that it depends on is done. The callback gets the buffers of
    /// `uses`, in that order; after [`GraphPlan::run_with`] those that were given instead. What else it touches is its
    /// own affair.
    ///
    /// Callbacks run concurrently. One that waits for another needs a [worker](GraphPlan::with_workers) for each.
    ///
    /// # Errors
    /// `InvalidArgument` where the name is taken, or where a buffer is not declared.
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

    /// Lets `node` run after `other`, whatever they touch. Both are in the graph already, in any order.
    ///
    /// # Errors
    /// `InvalidArgument` where there is no node of a name.
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

    /// The names of the nodes, in the order of insertion.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Checks the graph and decides what runs when.
    ///
    /// # Errors
    /// `InvalidArgument` where dependencies form a cycle; the message has its nodes in order.
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

    /// Where in the declared buffers the node's buffers are.
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
