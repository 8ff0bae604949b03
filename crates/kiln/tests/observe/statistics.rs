//! Every kernel is counted, and timed if the device supports it.

use crate::devices::open;
use kiln::device::Feature;
use kiln::observe::KernelStatistics;
use kiln::{DType, Device, Result, Tensor};

fn measured(device: &Device, work: impl FnOnce() -> Result<()>) -> Vec<KernelStatistics> {
    device.set_profiling(true);
    work().unwrap();
    device.synchronize().unwrap();
    device.set_profiling(false);
    device.kernel_statistics()
}

fn is_timed(device: &Device) -> bool {
    device.info().id == "cpu" || device.info().features.contains(&Feature::Timestamps)
}

/// A chain of elementwise ops is one launch, with the name and cost that `explain` reports.
#[test]
fn a_fused_chain_is_one_launch_with_the_bytes_that_explain_reports() {
    for device in open() {
        let x = Tensor::ones(1000, DType::F32, &device).unwrap();
        x.eval().unwrap();
        let y = x.mul(&x).unwrap().add_scalar(1.0).unwrap().sqrt().unwrap();
        let explained = y.explain().unwrap();
        let found = measured(&device, || y.eval());
        let [kernel] = &found[..] else { panic!("expected one kernel, found {found:?}") };
        assert_eq!(Some(kernel.name.as_str()), explained.kernel_names().next());
        assert_eq!((kernel.launches, kernel.bytes, kernel.flops), (1, explained.bytes_moved(), 3000));
        assert_eq!(kernel.timed, u64::from(is_timed(&device)));
        assert_eq!(!kernel.total.is_zero(), is_timed(&device));
    }
}

#[test]
fn a_matmul_has_two_operations_for_each_product() {
    let (m, k, n) = (33, 65, 17);
    for device in open() {
        let a = Tensor::ones((m, k), DType::F32, &device).unwrap();
        let b = Tensor::ones((k, n), DType::F32, &device).unwrap();
        kiln::Tensor::eval_all(&[&a, &b]).unwrap();
        let found = measured(&device, || (0..3).try_for_each(|_| a.matmul(&b)?.eval()));
        let [kernel] = &found[..] else { panic!("expected one kernel, found {found:?}") };
        assert_eq!((kernel.name.as_str(), kernel.launches), ("matmul", 3));
        assert_eq!(kernel.flops, 3 * 2 * (m * k * n) as u64);
        assert_eq!(kernel.bytes, 3 * 4 * (m * k + k * n + m * n) as u64);
    }
}

/// Consecutive launches of the same small kernel are timed together and counted individually.
#[test]
fn many_small_kernels_of_one_plan_are_all_counted() {
    for device in open() {
        let x = Tensor::ones(16, DType::F32, &device).unwrap();
        x.eval().unwrap();
        let sums: Vec<Tensor> = (0..100).map(|_| x.add_scalar(1.0).unwrap()).collect();
        let found = measured(&device, || Tensor::eval_all(&sums.iter().collect::<Vec<_>>()));
        let [kernel] = &found[..] else { panic!("expected one kernel, found {found:?}") };
        assert_eq!((kernel.launches, kernel.bytes, kernel.flops), (100, 100 * 2 * 64, 100 * 16));
        assert_eq!(kernel.timed, if is_timed(&device) { 100 } else { 0 });
    }
}

#[test]
fn nothing_is_counted_while_profiling_is_off_and_beginning_anew_forgets() {
    for device in open() {
        let run = || Tensor::ones(64, DType::F32, &device)?.add_scalar(1.0)?.eval();
        run().unwrap();
        device.synchronize().unwrap();
        assert_eq!(device.kernel_statistics(), []);
        assert_eq!(measured(&device, run)[0].launches, 1);
        run().unwrap();
        device.synchronize().unwrap();
        assert_eq!(device.kernel_statistics()[0].launches, 1, "counted while off");
        assert_eq!(measured(&device, run)[0].launches, 1, "kept from before");
    }
}
