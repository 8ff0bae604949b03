//! What would run for a tensor, and why so.

use super::CachedPlan;
use crate::{Result, Tensor};
use kiln_ir::plan::Plan;
use std::fmt;
use std::sync::Arc;

/// What runs for a tensor: the kernels, what fused into each, what did not and why, bytes moved. Its text is for people.
#[derive(Clone)]
pub struct TensorExplanation {
    cached: Option<Arc<CachedPlan>>,
    was_planned: bool,
    variant: usize,
    device: String,
}

impl TensorExplanation {
    /// How many kernels run; none where the elements are there already.
    pub fn kernels(&self) -> usize {
        self.plan().map_or(0, |plan| plan.steps.len())
    }

    /// The name of each kernel, made of the ops in it.
    pub fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.plan().into_iter().flat_map(|plan| plan.steps.iter().map(|step| step.kernel.name.as_str()))
    }

    /// Returns what did not fuse, and why: a sentence for each result that is stored. The text of the explanation has equal sentences once, with
    /// their count.
    pub fn notes(&self) -> &[String] {
        self.plan().map_or(&[], |plan| &plan.notes)
    }

    /// Bytes that kernels read and write.
    pub fn bytes_moved(&self) -> u64 {
        self.plan().map_or(0, Plan::moved_bytes)
    }

    /// The most bytes that intermediates and results take together.
    pub fn peak_bytes(&self) -> u64 {
        self.plan().map_or(0, Plan::peak_bytes)
    }

    /// Whether the same computation with the same shapes was planned before.
    pub fn was_planned(&self) -> bool {
        self.was_planned
    }

    /// The plan itself.
    pub fn plan(&self) -> Option<&Plan> {
        self.cached.as_ref().map(|cached| &**cached.plan())
    }

    /// The name and the WGSL of each kernel that is compiled from WGSL. On the CPU device these are the ops without CPU code, unless it runs
    /// [all plans as WGSL](crate::device::CpuOptions::plans_as_wgsl).
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
            write!(f, ", set of shapes number {} of this computation", self.variant)?;
        }
        writeln!(f)?;
        write!(f, "{}", plan.explain())
    }
}

impl Tensor {
    /// What [`eval`](Self::eval) runs: the kernels, what fused, what did not and why, bytes moved. Nothing runs, but the plan is made and kept,
    /// and a GPU's kernels are compiled. Reading may add a kernel: to put a view's elements in order, or to widen them.
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
    /// As [`eval`](Self::eval), but for what only happens when it runs.
    pub fn explain(&self) -> Result<TensorExplanation> {
        let device = self.device();
        let id = device.info().id.clone();
        if self.0.storage().is_some() {
            return Ok(TensorExplanation { cached: None, was_planned: false, variant: 0, device: id });
        }
        let collected = device.tensors().collector.collect(&[self], usize::MAX);
        let was_planned = device.tensors().plans.contains(&collected.key);
        let cached = device.tensors().plans.get(device, &collected)?;
        Ok(TensorExplanation { variant: cached.variant, cached: Some(cached), was_planned, device: id })
    }
}
