//! Explains which kernels run for a tensor.

use super::CachedPlan;
use crate::{Result, Tensor};
use kiln_ir::plan::Plan;
use std::fmt;
use std::sync::Arc;

/// The kernels that run for a tensor, the ops fused into each, what did not fuse and why, and bytes moved. Its
/// `Display` is for humans.
///
/// See [`Tensor::explain`] for an example.
#[derive(Clone)]
pub struct TensorExplanation {
    cached: Option<Arc<CachedPlan>>,
    was_planned: bool,
    variant: usize,
    device: String,
}

impl TensorExplanation {
    /// Returns the number of kernels; 0 if the tensor is already computed.
    ///
    /// See [`Tensor::explain`] for an example.
    pub fn kernels(&self) -> usize {
        self.plan().map_or(0, |plan| plan.steps.len())
    }

    /// Returns the name of each kernel, built from its ops.
    ///
    /// See [`Tensor::explain`] for an example.
    pub fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.plan().into_iter().flat_map(|plan| plan.steps.iter().map(|step| step.kernel.name.as_str()))
    }

    /// Returns what did not fuse, and why: one sentence per stored result. The text of the explanation merges equal
    /// sentences, with a count.
    ///
    /// See [`Tensor::explain`] for an example.
    pub fn notes(&self) -> &[String] {
        self.plan().map_or(&[], |plan| &plan.notes)
    }

    /// Returns the bytes that kernels read and write.
    ///
    /// See [`Tensor::explain`] for an example.
    pub fn bytes_moved(&self) -> u64 {
        self.plan().map_or(0, Plan::moved_bytes)
    }

    /// Returns the peak memory of intermediates and results, in bytes.
    ///
    /// See [`Tensor::explain`] for an example.
    pub fn peak_bytes(&self) -> u64 {
        self.plan().map_or(0, Plan::peak_bytes)
    }

    /// Returns whether the same computation with the same shapes was planned before.
    ///
    /// See [`Tensor::explain`] for an example.
    pub fn was_planned(&self) -> bool {
        self.was_planned
    }

    /// Returns the plan.
    ///
    /// See [`Tensor::explain`] for an example.
    pub fn plan(&self) -> Option<&Plan> {
        self.cached.as_ref().map(|cached| &**cached.plan())
    }

    /// Returns the name and source of each kernel compiled from WGSL. On the CPU device these are the ops without CPU
    /// code, unless it runs [all plans as WGSL](crate::device::CpuOptions::plans_as_wgsl).
    ///
    /// See [`Tensor::explain`] for an example.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.cached.iter().flat_map(|cached| cached.compiled().sources())
    }
}

impl fmt::Debug for TensorExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorExplanation")
            .field("device", &self.device)
            .field("plan", &self.plan())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for TensorExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(plan) = self.plan() else { return write!(f, "nothing to compute: the elements are in memory") };
        let origin = if self.was_planned { "found in the plan cache" } else { "planned now" };
        write!(f, "on {}, {origin}", self.device)?;
        if self.variant > 1 {
            write!(f, ", shape variant {} of this computation", self.variant)?;
        }
        writeln!(f)?;
        write!(f, "{}", plan.explain())
    }
}

impl Tensor {
    /// Explains what [`eval`](Self::eval) runs: the kernels, what fused, what did not and why, bytes moved. Nothing
    /// runs, but the plan is made and cached, and GPU kernels are compiled. Reading may add a kernel: to make a view
    /// contiguous, or to widen elements.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// let x = kiln::Tensor::ones((64, 64), kiln::DType::F32, &device)?;
    /// let y = x.mul_scalar(2.0)?.add(&x)?.relu()?.sum(1)?;
    /// let explanation = y.explain()?;
    /// assert_eq!(explanation.kernels(), 1);
    /// println!("{explanation}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`eval`](Self::eval), except errors that occur only during execution.
    pub fn explain(&self) -> Result<TensorExplanation> {
        let device = self.device();
        let id = device.info().id.clone();
        if self.0.storage().is_some() {
            return Ok(TensorExplanation { cached: None, was_planned: false, variant: 0, device: id });
        }
        let collected = device.tensors().collector.collect(&[self], usize::MAX);
        // Before `get`, which adds the plan to the cache.
        let was_planned = device.tensors().plans.contains(&collected.key);
        let cached = device.tensors().plans.get(device, &collected)?;
        Ok(TensorExplanation { variant: cached.variant, cached: Some(cached), was_planned, device: id })
    }
}
