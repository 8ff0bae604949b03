//! The backward pass.

use super::build;
use super::mode;
use super::pending::Pending;
use super::record::Source;
use crate::Result;
use crate::tensor::Tensor;
use crate::tensor::check::{Name, invalid, mismatch, names};
use crate::tensor::node::TensorNode;
use kiln_ir::graph::{Op, View};
use std::collections::HashMap;
use std::sync::Arc;

/// Options of [`Tensor::backward_with`].
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::Tensor;
/// use kiln::autograd::BackwardOptions;
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0], 2, &device)?.requires_grad()?;
/// let y = x.square()?;
/// let weights = Tensor::from_slice(&[1.0f32, 10.0], 2, &device)?;
/// y.backward_with(BackwardOptions::new().gradient(&weights))?;
/// assert_eq!(x.grad().expect("it was computed").to_vec::<f32>()?, [2.0, 40.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct BackwardOptions {
    gradient: Option<Tensor>,
    retains_graph: bool,
    creates_graph: bool,
}

impl BackwardOptions {
    /// Creates the defaults: the gradient of the result is 1, and the graph is freed.
    ///
    /// See [`BackwardOptions`] for an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the gradient of the result, with its shape and dtype. Required if the result has more than one element.
    ///
    /// See [`BackwardOptions`] for an example.
    pub fn gradient(mut self, gradient: &Tensor) -> Self {
        self.gradient = Some(gradient.clone());
        self
    }

    /// Keeps the graph, so that `backward` can be called again.
    ///
    /// See [`BackwardOptions`] for an example.
    pub fn retain_graph(mut self) -> Self {
        self.retains_graph = true;
        self
    }

    /// Tracks the gradients, so that they can be differentiated too. Keeps the graph and all intermediates alive
    /// until [`set_grad`](Tensor::set_grad) clears the gradients, because these refer to the tensors that hold them.
    /// [`grad`](crate::grad) has no such cycle.
    ///
    /// See [`Tensor::backward_with`] for an example.
    pub fn create_graph(mut self) -> Self {
        (self.retains_graph, self.creates_graph) = (true, true);
        self
    }
}

impl Tensor {
    /// Computes the gradients of this one-element tensor with respect to each tensor of
    /// [`requires_grad`](Self::requires_grad) that it was computed from, and adds them to [`grad`](Self::grad). The
    /// graph is freed.
    ///
    /// Gradients are lazy like all tensors: they run when they are read, and share common subexpressions.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::from_slice(&[0.0f32, 1.0], 2, &device)?.requires_grad()?;
    /// x.exp()?.sum_all()?.backward()?;
    /// assert_eq!(x.grad().expect("it was computed").to_vec::<f32>()?[0], 1.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the tensor is not tracked, has several elements, or its graph was freed by an
    /// earlier call, `Unsupported` if an op has no gradient, and device errors if many ops are pending and a batch
    /// runs.
    pub fn backward(&self) -> Result<()> {
        self.backward_with(BackwardOptions::new())
    }

    /// Computes gradients as [`backward`](Self::backward) does, with options.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    /// use kiln::autograd::BackwardOptions;
    ///
    /// let x = Tensor::from_slice(&[2.0f32], 1, &device)?.requires_grad()?;
    /// x.square()?.mul(&x)?.backward_with(BackwardOptions::new().create_graph())?;
    /// let gradient = x.grad().expect("it was computed"); // 3 x²
    /// x.set_grad(None)?;
    /// gradient.backward()?;
    /// assert_eq!(x.grad().expect("it was computed").to_vec::<f32>()?, [12.0]); // 6 x
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`backward`](Self::backward), and `ShapeMismatch` or `InvalidArgument` if the gradient does not match
    /// this tensor.
    pub fn backward_with(&self, options: BackwardOptions) -> Result<()> {
        if !self.is_tracked() {
            let found = Name(self);
            let message = format!(
                "backward expected a tensor computed from one with requires_grad, found {found}, which is not tracked"
            );
            return Err(invalid(message));
        }
        let BackwardOptions { gradient, retains_graph, creates_graph } = options;
        let tape = Tape::of(self, Vec::new())?;
        let seed = seed(self, gradient)?;
        // All gradients are built before any leaf changes, so an error in a rule leaves the leaves as they were.
        let found = mode::tracking(creates_graph, || tape.gradients(seed))?;
        mode::tracking(creates_graph, || {
            let add = |(leaf, gradient): (Self, Self)| match &leaf.0.record {
                Some(record) => record.add_gradient(gradient),
                None => Ok(()),
            };
            found.into_iter().try_for_each(add)
        })?;
        if !retains_graph {
            tape.release();
        }
        Ok(())
    }
}

/// Returns the gradient of the result: the given one, or 1.
pub(super) fn seed(root: &Tensor, given: Option<Tensor>) -> Result<Tensor> {
    match given {
        Some(given) if given.shape() != root.shape() => {
            let (found, wanted) = (Name(&given), Name(root));
            Err(mismatch(format!("backward expected a gradient like {wanted}, found {found}")))
        }
        Some(given) if !given.0.kind.is_like(&root.0.kind) => {
            let (found, wanted) = (Name(&given), Name(root));
            Err(invalid(format!("backward expected a gradient like {wanted}, found {found}")))
        }
        Some(given) => Ok(given),
        None if root.elem_count() != 1 => {
            let found = Name(root);
            let message = format!(
                "backward expected a tensor of one element, or a gradient with BackwardOptions::gradient, found {found}"
            );
            Err(invalid(message))
        }
        None => root.like(1.0),
    }
}

/// All tracked tensors that a tensor was computed from.
pub(super) struct Tape {
    /// In topological order, inputs first; the last is the tensor itself.
    nodes: Vec<Tracked>,
    numbers: HashMap<*const TensorNode, usize>,
    /// Tensors other than leaves where gradients stop.
    ends: Vec<Tensor>,
}

struct Tracked {
    tensor: Tensor,
    source: Source,
    /// Whether gradients stop here: a leaf, or a requested tensor.
    is_end: bool,
}

impl Tape {
    /// Collects the records from `root` back to the leaves and to `ends`.
    pub(super) fn of(root: &Tensor, ends: Vec<Tensor>) -> Result<Self> {
        let mut tape = Self { nodes: Vec::new(), numbers: HashMap::new(), ends };
        // An explicit stack: recursion over a long chain of records would overflow the thread's stack.
        let mut stack = vec![(root.clone(), false)];
        while let Some((tensor, has_inputs)) = stack.pop() {
            let key = Arc::as_ptr(&tensor.0);
            let Some(record) = tensor.0.record.as_ref().filter(|_| !tape.numbers.contains_key(&key)) else { continue };
            let source = record.source();
            let is_end = matches!(source, Source::Leaf) || tape.ends.iter().any(|end| end.is_same(&tensor));
            if has_inputs || is_end {
                tape.numbers.insert(key, tape.nodes.len());
                tape.nodes.push(Tracked { tensor, source, is_end });
                continue;
            }
            if matches!(source, Source::Released) {
                let (found, root) = (Name(&tensor), Name(root));
                return Err(invalid(format!(
                    "backward of {root} expected the graph of {found}, found that an earlier backward freed it; \
                     call the earlier one with BackwardOptions::retain_graph"
                )));
            }
            // Post-order: the node is added when it is popped again, after its inputs. A node that several ops use
            // may be on the stack more than once; the map of numbers skips it after the first.
            stack.push((tensor.clone(), true));
            stack.extend(source.inputs().iter().map(|input| (input.clone(), false)));
        }
        Ok(tape)
    }

    /// Returns whether gradients also reach leaves that were not requested.
    pub(super) fn has_other_ends(&self) -> bool {
        let is_other = |tensor: &Tensor| !self.ends.iter().any(|end| end.is_same(tensor));
        self.nodes.iter().any(|node| node.is_end && is_other(&node.tensor))
    }

    /// Computes the gradients of all reachable ends; `seed` is the gradient of the last tensor.
    pub(super) fn gradients(&self, seed: Tensor) -> Result<Vec<(Tensor, Tensor)>> {
        let mut gradients: Vec<Pending> = self.nodes.iter().map(|_| Pending::default()).collect();
        // The tape is empty if the tensor is not tracked.
        if let Some(last) = gradients.last_mut() {
            last.add(seed)?;
        }
        // Checkpointed functions may reach leaves that are not on this tape.
        let mut found: Vec<(Tensor, Tensor)> = Vec::new();
        // Reverse topological order: all users of a node come after it on the tape, so its gradient is complete here.
        for (number, node) in self.nodes.iter().enumerate().rev() {
            let Some(gradient) = std::mem::take(&mut gradients[number]).finish(&node.tensor)? else { continue };
            if node.is_end {
                add_to(&mut found, node.tensor.clone(), gradient)?;
                continue;
            }
            // An input that is not on the tape is not tracked, and its gradient is dropped.
            let mut reach = |input: &Tensor, gradient: Tensor| -> Result<()> {
                self.numbers.get(&Arc::as_ptr(&input.0)).map_or(Ok(()), |&number| gradients[number].add(gradient))
            };
            match &node.source {
                Source::Leaf | Source::Released => {}
                Source::Device(from) => reach(from, gradient.to_device(from.device())?)?,
                // Deferred until the gradients of the other slices of the same tensor are known.
                Source::Op(planned) if let Op::View(View::Slice { axis, start, step: 1 }) = planned.op => {
                    if let Some(&number) = self.numbers.get(&Arc::as_ptr(&planned.inputs[0].0)) {
                        gradients[number].add_slice(axis, start, gradient);
                    }
                }
                Source::Op(planned) | Source::Rule(planned, ..) => {
                    let all = match &node.source {
                        Source::Rule(_, name, rule) => {
                            let all = rule(&planned.inputs, &node.tensor, &gradient)
                                .and_then(|all| check_all(&planned.inputs, all));
                            let all = all.map_err(|error| error.context(format!("the gradient of `{name}`")))?;
                            // A rule may return an input itself, which would keep the graph alive.
                            let own = |gradient: Tensor| if mode::is_tracking() { gradient } else { gradient.detach() };
                            all.into_iter().map(|gradient| gradient.map(own)).collect()
                        }
                        _ => build::gradients(&planned.op, &planned.inputs, &node.tensor, &gradient)?,
                    };
                    for (input, gradient) in planned.inputs.iter().zip(all) {
                        if let Some(gradient) = gradient {
                            reach(input, gradient)?;
                        }
                    }
                }
                Source::Function(function) => {
                    let (inputs, others) = function.gradients(gradient, &self.ends)?;
                    for (input, gradient) in inputs {
                        reach(&input, gradient)?;
                    }
                    for (leaf, gradient) in others {
                        add_to(&mut found, leaf, gradient)?;
                    }
                }
            }
        }
        Ok(found)
    }

    /// Frees the graph.
    pub(super) fn release(self) {
        for node in &self.nodes {
            // Ends keep their records: leaves accumulate gradients in them.
            if let Some(record) = node.tensor.0.record.as_ref().filter(|_| !node.is_end) {
                record.release();
            }
        }
    }
}

/// Checks that a rule returned one gradient per input, with matching types.
fn check_all(inputs: &[Tensor], found: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
    let fits = |(input, gradient): (&Tensor, &Option<Tensor>)| {
        gradient.as_ref().is_none_or(|gradient| gradient.0.kind.is_like(&input.0.kind))
    };
    if found.len() == inputs.len() && inputs.iter().zip(&found).all(fits) {
        return Ok(found);
    }
    let wanted = names(&inputs.iter().collect::<Vec<_>>());
    let name =
        |found: &Option<Tensor>| found.as_ref().map_or_else(|| "none".to_string(), |tensor| Name(tensor).to_string());
    let found: Vec<String> = found.iter().map(name).collect();
    let message = format!(
        "expected a gradient for each input with its shape and dtype ({wanted}), found {} ({})",
        found.len(),
        found.join(", ")
    );
    Err(invalid(message))
}

/// Accumulates the gradient of a tensor.
fn add_to(all: &mut Vec<(Tensor, Tensor)>, tensor: Tensor, gradient: Tensor) -> Result<()> {
    match all.iter_mut().find(|(found, _)| found.is_same(&tensor)) {
        Some((_, sum)) => *sum = sum.add(&gradient)?,
        None => all.push((tensor, gradient)),
    }
    Ok(())
}

impl Source {
    /// Returns the tensors that gradients flow to from here.
    fn inputs(&self) -> &[Tensor] {
        match self {
            Self::Leaf | Self::Released => &[],
            Self::Op(planned) | Self::Rule(planned, ..) => &planned.inputs,
            Self::Device(from) => std::slice::from_ref(from),
            Self::Function(function) => function.inputs(),
        }
    }
}
