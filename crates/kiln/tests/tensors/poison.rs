//! Results do not depend on previous contents of memory.

use kiln::buffer::BufferOptions;
use kiln::{DType, Device, Tensor};

/// Fills buffers with bytes that are NaN in every float dtype, and returns them to the pool.
pub(crate) fn fill_free_memory(device: &Device) {
    let sizes = [16, 64, 256, 1024, 4096, 16384];
    let buffers: Vec<_> = sizes
        .into_iter()
        .flat_map(|size| [size; 3])
        .map(|size| {
            let buffer = device.buffer_with(BufferOptions::new(size)).unwrap();
            buffer.write(&vec![0xff; size as usize]).unwrap();
            buffer
        })
        .collect();
    drop(buffers);
}

/// The results of a graph with intermediates, reductions and packed dtypes are those of clean memory, again and again.
#[test]
fn results_do_not_depend_on_what_was_in_the_memory() {
    for subject in crate::devices::all() {
        let device = &subject.device;
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let compute = || {
                let x = Tensor::arange(0.0, 35.0, 1.0, dtype, device).unwrap().reshape((5, 7)).unwrap();
                let rows = x.mul_scalar(0.125).unwrap().softmax(1).unwrap();
                let product = rows.matmul(&x.t().unwrap()).unwrap();
                let flags = product.gt(&product.mean_keepdim([1]).unwrap()).unwrap();
                let sums = product.add(&product.sum_keepdim([0]).unwrap()).unwrap().to_vec::<f32>().unwrap();
                (sums, flags.to_vec::<u8>().unwrap())
            };
            let first = compute();
            assert!(first.0.iter().all(|sum| sum.is_finite()));
            for _ in 0..3 {
                fill_free_memory(device);
                assert_eq!(compute(), first, "{dtype} on {}", subject.name);
            }
        }
    }
}

/// The next buffers do reuse that memory; otherwise the tests above would show nothing.
#[test]
fn poisoned_memory_is_what_the_next_buffer_gets() {
    let device = Device::cpu_with(crate::devices::cpu_options()).unwrap();
    fill_free_memory(&device);
    let before = device.buffer_pool_stats();
    let x = Tensor::zeros(1000, DType::F32, &device).unwrap();
    x.eval().unwrap();
    let after = device.buffer_pool_stats();
    assert!(after.reuse_count > before.reuse_count, "{before:?} {after:?}");
}
