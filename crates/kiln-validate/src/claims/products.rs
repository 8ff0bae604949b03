//! Matmul compared with a library.

use crate::claim::{Context, Evidence};
use crate::report::MatmulPoint;
use crate::subject::{Computation, Inputs, Subject, WorkloadReferee};
use crate::trial::Arm;
use gemm_common::Parallelism;
use kiln_bench::{ElementType, Fault, Op};

/// The library, built into this program. It selects SIMD instructions at run time.
pub(super) const LIBRARY: &str = "gemm 0.19";

pub(super) fn square(context: &mut Context<'_>, n: usize) -> Result<Evidence, Fault> {
    let op = Op::Matmul { m: n, k: n, n };
    let workload = WorkloadReferee { op, dtype: ElementType::F32 };
    let threads = context.device.info().limits.threads.unwrap_or(1) as usize;
    let library = Library { n, threads, sets: Vec::new(), result: vec![0.0; n * n] };
    let mut arms = [Arm::new("kiln", Computation::of_workload(workload, context.device)), Arm::new("gemm", library)];
    let (measured, _) = context.measure_bounded(&mut arms, &workload)?;
    let rate = |arm: usize| op.flops() / measured.arms[arm].median();
    context.plots.matmul.push(MatmulPoint {
        device: context.device.info().id.clone(),
        size: n,
        kiln_flops_per_s: rate(0),
        library: LIBRARY.to_string(),
        library_flops_per_s: rate(1),
    });
    Ok(Evidence::faster(measured, |s| (op.flops() / s / 1e9, "GFLOP/s")))
}

/// A matmul of square matrices into preallocated memory.
struct Library {
    n: usize,
    threads: usize,
    sets: Vec<Inputs>,
    result: Vec<f32>,
}

impl Subject for Library {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        self.sets = sets.to_vec();
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        let [a, b] = &self.sets[set][..] else { return Err("expected two inputs".into()) };
        let (n, step) = (self.n, self.n as isize);
        let threads = if self.threads > 1 { Parallelism::Rayon(self.threads) } else { Parallelism::None };
        if a.len() != n * n || b.len() != n * n {
            return Err(format!("expected matrices of {n} x {n}, found {} and {} elements", a.len(), b.len()).into());
        }
        #[expect(unsafe_code, reason = "the library takes pointers and strides")]
        // SAFETY: all three matrices have n contiguous rows of n elements; only the result is written.
        unsafe {
            let (to, a, b) = (self.result.as_mut_ptr(), a.as_ptr(), b.as_ptr());
            // As `gemm::gemm` calls it: the kernel expects column-major data, and (ab)ᵀ = bᵀaᵀ.
            let gemm = gemm_f32::gemm::f32::get_gemm_fn();
            gemm(n, n, n, to, step, 1, false, b, step, 1, a, step, 1, 0.0, 1.0, false, false, false, threads);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        Ok(self.result.clone())
    }
}
