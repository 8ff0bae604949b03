//! Verification: runs a graph fused and unfused, and on two devices. Differences beyond the error bounds of the ops
//! are errors that name the op.

use super::stepwise::{self, values};
use super::{CachedPlan, Run};
use crate::device::{CpuOptions, SimdLevel};
use crate::tensor::check::Name;
use crate::{DType, Device, Error, ErrorKind, Result, Tensor};
use kiln_device::{Buffer, DeviceKind};
use kiln_ir::graph::{NodeId, Op, OpGraph, OpNode, Reduce, TensorType};
use kiln_ir::plan::Plan;
use smallvec::{SmallVec, smallvec};
use std::fmt;

/// The result of [`Tensor::eval_checked`] if all differences are within their bounds.
///
/// See [`Tensor::eval_checked`] for an example.
#[derive(Clone, Debug)]
pub struct VerifyReport {
    /// Number of ops compared between the device and the CPU device.
    pub ops: usize,
    /// Number of elements compared.
    pub elements: usize,
    /// The largest difference, as a fraction of its bound.
    pub worst: f64,
    /// The op with the largest difference.
    pub worst_op: String,
    /// Number of kernels of the fused run.
    pub kernels: usize,
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ops, elements, worst, worst_op, kernels } = self;
        if *ops == 0 {
            return f.write_str("nothing was compared: the elements are in memory");
        }
        let share = worst * 100.0;
        write!(f, "{ops} ops ({kernels} kernels fused), {elements} elements compared: ")?;
        if worst_op.is_empty() {
            f.write_str("no difference")
        } else {
            write!(f, "`{worst_op}` has the largest difference, {share:.1} % of its bound")
        }
    }
}

impl Tensor {
    /// Evaluates the tensor fused and op by op on this device, and op by op on the CPU device (if this is the CPU
    /// device, on one thread with scalar instructions). The error names the first op and element that differ beyond
    /// the op's bound. A tensor that is already computed is not computed again: the report then has 0 ops.
    ///
    /// Op by op, both devices start from the same inputs, so that only the bound of that op applies. The fused result
    /// is compared with a further run of single ops that rounds 16-bit elements where the fused kernels do: only
    /// reductions and hand-written kernels may then differ, by their order of summation.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::rand((4, 4), kiln::DType::F32, &device)?;
    /// let report = x.exp()?.matmul(&x)?.gelu()?.eval_checked()?;
    /// println!("{report}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `Internal` if results differ, which means a bug in a kernel or a driver. Otherwise same as
    /// [`eval`](Self::eval).
    pub fn eval_checked(&self) -> Result<VerifyReport> {
        let device = self.device();
        let collected = device.tensors().collector.collect(&[self], usize::MAX);
        let other = other_device(device)?;
        let mut report = VerifyReport { ops: 0, elements: 0, worst: 0.0, worst_op: String::new(), kernels: 0 };
        let mut adding_up = 0.0;
        let graph = collected.graph();
        let nodes = &graph.nodes;
        let mut scalars = collected.scalars.iter().copied();
        // Phase 1: each op on this device and on the reference device, both from the inputs that this device
        // computed. Errors of earlier ops therefore do not accumulate.
        stepwise::compute_all(device, &collected, &graph, |id, inputs, result| {
            let node = &nodes[id];
            let scalar = matches!(node.op, Op::Scalar).then(|| scalars.next()).flatten();
            let there = inputs.iter().map(|input| input.to_device(&other)).collect::<Result<Vec<_>>>()?;
            let expected = stepwise::compute(&other, node, &there.iter().collect::<Vec<_>>(), scalar)?;
            let (found, expected) = (values(result)?, values(&expected)?);
            let bound = Bound::of(node, inputs)?;
            if matches!(node.op, Op::Reduce(..) | Op::Kernel(_)) {
                // Fusion changes the order of summation of these ops only. Phase 2 uses the sum of their bounds.
                adding_up += bound.absolute;
            }
            report.compare(node, result, &found, &expected, &bound, "op by op", "on the CPU device")
        })?;
        // Phase 2: the fused plan against single ops.
        let output = graph.outputs[0];
        if let Some(node) = nodes.get(output).filter(|node| !matches!(node.op, Op::Input(_))) {
            let target = *device.target();
            // Holding a node does not change fusion, it only reports whether the plan stores the node: the places
            // where the fused run rounds to 16 bits.
            let every: Vec<NodeId> = (0..nodes.len()).collect();
            let plan = Plan::new(&OpGraph { held: every, ..graph.clone() }, &target)?;
            let is_stored = |id: NodeId| id == output || plan.held.iter().any(|&(node, _)| node == id);
            let wide = Plan::new(&widened(&graph, is_stored), &target.unfused())?;
            report.kernels = plan.steps.len();
            let inputs: Vec<&Buffer> = collected.buffers().collect();
            let run_plan = |plan| {
                let plan = CachedPlan::new(device, plan)?;
                Run::new(device, &plan, &inputs, &collected.scalars)?.output()
            };
            let single = Self::ready(node.ty.clone(), device, run_plan(wide)?);
            let storage = run_plan(plan)?;
            let fused = Self::ready(node.ty.clone(), device, storage.clone());
            // If the sums differ slightly, rounding to the dtype can go either way.
            let bound = Bound { relative: 4.0 * unit_roundoff(node.ty.dtype), absolute: 4.0 * adding_up };
            report.compare(node, &fused, &values(&fused)?, &values(&single)?, &bound, "fused", "op by op")?;
            self.0.set_ready(storage);
        }
        Ok(report)
    }
}

impl VerifyReport {
    /// Compares two results of one op; the first difference beyond the bound is an error.
    #[expect(clippy::too_many_arguments, reason = "the two results, their bound and the names of both sides")]
    fn compare(
        &mut self,
        node: &OpNode,
        result: &Tensor,
        found: &[f64],
        expected: &[f64],
        bound: &Bound,
        one: &str,
        other: &str,
    ) -> Result<()> {
        let op = node.op.name();
        self.ops += usize::from(one != "fused");
        self.elements += found.len();
        for (place, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            // Two infinities of the same sign are equal, but their difference below would be NaN.
            let is_same = found == expected || (found.is_nan() && expected.is_nan());
            if is_same {
                continue;
            }
            let allowed = bound.relative * found.abs().max(expected.abs()) + bound.absolute;
            let share = (found - expected).abs() / allowed;
            // If one side is infinite, the ratio is NaN, which counts as a mismatch.
            if share.is_nan() || share > 1.0 {
                let name = Name(result);
                let message = format!(
                    "`{op}` expected {expected} at element {place} of {name} as computed {other}, found {found} {one}; \
                     the difference is {:e}, the tolerance {allowed:e}",
                    (found - expected).abs()
                );
                return Err(Error::new(ErrorKind::Internal, message));
            }
            if share > self.worst {
                (self.worst, self.worst_op) = (share, op.to_string());
            }
        }
        Ok(())
    }
}

/// The allowed difference between two results of one op.
struct Bound {
    relative: f64,
    absolute: f64,
}

impl Bound {
    /// Returns twice the error bound of the op, because each side may deviate by it.
    fn of(node: &OpNode, inputs: &[&Tensor]) -> Result<Self> {
        let dtype = node.ty.dtype;
        let stored = unit_roundoff(dtype);
        let largest = |tensor: &Tensor| -> Result<f64> {
            Ok(values(tensor)?
                .iter()
                .filter(|value| value.is_finite())
                .fold(0.0, |largest: f64, value| largest.max(value.abs())))
        };
        let (relative, absolute) = match &node.op {
            Op::Input(_) | Op::Scalar | Op::Iota | Op::View(_) => (0.0, 0.0),
            Op::Cast => (0.0, 0.0),
            Op::Element(op) => {
                let tolerance = op.error_bound(dtype);
                // `stored` is half an ULP, hence the factor of 2.
                (2.0 * tolerance.ulps * stored, tolerance.absolute)
            }
            Op::Reduce(reduce @ (Reduce::Sum | Reduce::Mean), axes) if dtype.is_float() => {
                let terms = axes.iter().map(|&axis| inputs[0].shape()[axis]).product();
                (stored, reduce.error_bound(terms, largest(inputs[0])?))
            }
            Op::Reduce(..) => (0.0, 0.0),
            Op::Kernel(op) => {
                let types: Vec<_> = inputs.iter().map(|input| input.0.kind.ty.clone()).collect();
                let largest = inputs.iter().map(|input| largest(input)).collect::<Result<Vec<_>>>()?;
                (stored, op.error_bound(&types, &largest))
            }
        };
        // In the subnormal range the spacing of floats is constant, so the bound is absolute.
        let smallest = match dtype {
            DType::F16 => 2f64.powi(-25),
            DType::BF16 | DType::F32 => 2f64.powi(-126),
            _ => 0.0,
        };
        Ok(Self { relative: 2.0 * relative, absolute: 2.0 * (absolute + smallest) })
    }
}

/// Returns half an ULP of a dtype as a relative error: the rounding error of a store.
fn unit_roundoff(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-11),
        DType::BF16 => 2f64.powi(-8),
        DType::F32 => 2f64.powi(-24),
        _ => 0.0,
    }
}

/// Returns the graph with `F32` in place of 16-bit dtypes, as kernels compute internally, rounding only at casts and
/// stores.
fn widened(graph: &OpGraph, is_stored: impl Fn(NodeId) -> bool) -> OpGraph {
    let (mut wide, mut ids): (OpGraph, Vec<NodeId>) = Default::default();
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    let push = |wide: &mut OpGraph, node: OpNode| {
        wide.nodes.push(node);
        wide.nodes.len() - 1
    };
    let cast = |wide: &mut OpGraph, input: NodeId, dtype: DType| {
        let ty = TensorType { shape: wide.nodes[input].ty.shape.clone(), dtype };
        push(wide, OpNode { op: Op::Cast, inputs: smallvec![input], ty })
    };
    for (id, node) in graph.nodes.iter().enumerate() {
        let dtype = node.ty.dtype;
        // These kernels are specialized for their dtypes.
        let is_fixed = matches!(&node.op, Op::Kernel(op) if op.stores_any_dtype());
        let mut input_of = |input: NodeId| match graph.nodes[input].ty.dtype {
            dtype if is_fixed && is_half(dtype) => cast(&mut wide, ids[input], dtype),
            _ => ids[input],
        };
        let inputs: SmallVec<[NodeId; 3]> = node.inputs.iter().map(|&input| input_of(input)).collect();
        // A conversion from 64 bits returns the same dtype for any input dtype.
        let converts = match &node.op {
            Op::Kernel(op) => {
                let types: Vec<TensorType> = inputs.iter().map(|&input| wide.nodes[input].ty.clone()).collect();
                op.infer(&types).is_ok_and(|ty| is_half(ty.dtype))
            }
            op => matches!(op, Op::Input(_) | Op::Cast),
        };
        let keeps = converts || !is_half(dtype);
        let ty = TensorType { dtype: if keeps { dtype } else { DType::F32 }, shape: node.ty.shape.clone() };
        // `ids` always refers to a wide value: one that the fused run stores is narrowed and widened again, which
        // rounds it.
        let mut own = push(&mut wide, OpNode { op: node.op.clone(), inputs, ty });
        if !keeps && is_stored(id) {
            own = cast(&mut wide, own, dtype);
        }
        if is_half(wide.nodes[own].ty.dtype) {
            own = cast(&mut wide, own, DType::F32);
        }
        ids.push(own);
    }
    for &output in &graph.outputs {
        let output = cast(&mut wide, ids[output], graph.nodes[output].ty.dtype);
        wide.outputs.push(output);
    }
    wide
}

/// Opens the reference device.
fn other_device(device: &Device) -> Result<Device> {
    let options = CpuOptions::new();
    // The same code on the same device would reproduce its own bugs; scalar code on one thread shares neither SIMD
    // code nor the division of work among threads.
    if device.info().kind == DeviceKind::Cpu {
        return Device::cpu_with(options.threads(1).simd(SimdLevel::Scalar));
    }
    Device::cpu_with(options)
}
