//! gemm: matmul into preallocated memory.

use super::{Prepared, Task, Unavailable};
use gemm::{Parallelism, f16};
use kiln_bench::{ElementType, Op, PreparedWorkload};
use std::cell::RefCell;
use std::rc::Rc;

pub(super) fn prepare(task: &Task<'_>) -> Prepared {
    let Op::Matmul { m, k, n } = task.op else {
        return Err(Unavailable::Unsupported("it has matmul only"));
    };
    let [a, b] = [0, 1].map(|input| task.data[input].clone());
    let sizes = [m, k, n];
    Ok(match task.dtype {
        ElementType::F32 => prepared(sizes, a, b, [0.0, 1.0], |value| value, task.threads),
        ElementType::F16 => {
            let [a, b] = [a, b].map(|matrix| matrix.into_iter().map(f16::from_f32).collect());
            prepared(sizes, a, b, [f16::ZERO, f16::ONE], f16::to_f32, task.threads)
        }
    })
}

fn prepared<T: Copy + 'static>(
    [m, k, n]: [usize; 3],
    a: Vec<T>,
    b: Vec<T>,
    [zero, one]: [T; 2],
    widen: fn(T) -> f32,
    threads: usize,
) -> PreparedWorkload {
    assert!(a.len() == m * k && b.len() == k * n, "expected matrices of {m}x{k} and {k}x{n}");
    let product = Rc::new(RefCell::new(vec![zero; m * n]));
    let (of_row, step) = (n as isize, 1);
    let compute = move || {
        let mut to = product.borrow_mut();
        // SAFETY: the matrices have m*k, k*n and m*n elements, contiguous and row-major, and `to` is borrowed exclusively.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                to.as_mut_ptr(),
                step,
                of_row,
                false,
                a.as_ptr(),
                step,
                k as isize,
                b.as_ptr(),
                step,
                of_row,
                zero,
                one,
                false,
                false,
                false,
                Parallelism::Rayon(threads),
            );
        }
        Ok(vec![product.clone()])
    };
    PreparedWorkload::new(compute, move |product| Ok(product.borrow().iter().map(|value| widen(*value)).collect()))
}
