//! Sums of many small numbers: `f16` and `bf16` are storage types, sums are `f32`.

use crate::devices;
use kiln::{DType, Tensor};

/// 100,000 ones of `f16` are 100,000 in `f32`, which `f16` itself could not hold.
#[test]
fn many_ones_add_up() {
    for subject in devices::all() {
        let ones = Tensor::ones(100_000, DType::F16, &subject.device).unwrap();
        ones.eval().unwrap();
        let sum = ones.to_dtype(DType::F32).unwrap().sum_all().unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), [100_000.0], "{}", subject.name);
        let ones = Tensor::ones((2, 100_000), DType::BF16, &subject.device).unwrap();
        let sum = ones.to_dtype(DType::F32).unwrap().sum(1).unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), [100_000.0; 2], "{}", subject.name);
    }
}

/// Rows of 70,000 ones of `f16` average to 1, although their sum is beyond what `f16` holds.
#[test]
fn a_long_row_averages_to_one() {
    for subject in devices::all() {
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            let ones = Tensor::ones((2, 70_000), dtype, &subject.device).unwrap();
            let means = ones.mean(1).unwrap();
            assert_eq!((means.dtype(), &means.shape()[..]), (dtype, &[2][..]));
            assert_eq!(means.to_vec::<f32>().unwrap(), [1.0, 1.0], "{dtype} on {}", subject.name);
            let columns = ones.t().unwrap().mean(0).unwrap();
            assert_eq!(columns.to_vec::<f32>().unwrap(), [1.0, 1.0], "columns of {dtype} on {}", subject.name);
            assert_eq!(ones.mean_all().unwrap().to_vec::<f32>().unwrap(), [1.0], "{dtype} on {}", subject.name);
        }
    }
}

/// Small numbers are not lost next to a large one: rows are summed in parts, not sequentially.
#[test]
fn small_numbers_are_not_lost_next_to_a_large_one() {
    for subject in devices::all() {
        let mut numbers = vec![1.0f32; 1 << 16];
        numbers[0] = 16_777_216.0;
        let sum = Tensor::from_slice(&numbers, 1 << 16, &subject.device).unwrap().sum_all().unwrap();
        let (found, exact) = (sum.to_vec::<f32>().unwrap()[0], 16_777_216.0 + 65_535.0);
        // Summed sequentially, the result would stay at 16777216.
        assert!((found - exact).abs() <= 4096.0, "{found} on {}", subject.name);
    }
}

/// Software drivers silently terminate long loops, so no kernel has any.
#[test]
fn long_axes_are_seen_whole() {
    for subject in devices::all() {
        let (device, name) = (&subject.device, subject.name);
        let places = Tensor::arange(0.0, 17e6, 1.0, DType::U32, device).unwrap();
        let largest = places.argmax_all().unwrap().to_scalar::<u32>().unwrap();
        assert_eq!(largest, 16_999_999, "argmax on {name}");
        // A prime number cannot be divided among workgroups.
        let ones = Tensor::ones(17_000_023, DType::U32, device).unwrap();
        assert_eq!(ones.sum_all().unwrap().to_scalar::<u32>().unwrap(), 17_000_023, "sum on {name}");
        let (zeros, many) =
            (Tensor::zeros(2, DType::F32, device).unwrap(), Tensor::ones(70_000, DType::F32, device).unwrap());
        let index = Tensor::zeros(70_000, DType::U32, device).unwrap();
        let scattered = zeros.scatter_add(0, &index, &many).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(scattered, [70_000.0, 0.0], "scatter_add on {name}");
        let row = Tensor::ones((1, 50_000), DType::F32, device).unwrap();
        let product = row.matmul(&row.t().unwrap()).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(product, [50_000.0], "matmul on {name}");
    }
}
