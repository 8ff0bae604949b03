//! Unfold and fold against loops over signed coordinates.

use super::{Fold, Unfold, Window, reference};
use crate::offsets::checks::assert_valid;
use crate::testing::{Numbers, Operand, Threads, run_moved, run_stored};
use kiln_ir::graph::TensorType;
use kiln_ir::{DType, ErrorKind, KernelOp, Layout, Shape};

const SQUARE: Window = Window { size: [3, 3], stride: [1, 1], padding: [1, 1], dilation: [1, 1] };

fn cases() -> Vec<(Window, [usize; 4])> {
    vec![
        (SQUARE, [2, 3, 5, 4]),
        (Window { size: [2, 3], stride: [2, 1], padding: [0, 2], dilation: [1, 1] }, [1, 2, 6, 5]),
        (Window { size: [3, 2], stride: [1, 3], padding: [2, 0], dilation: [2, 3] }, [2, 1, 7, 9]),
        (Window { size: [1, 1], stride: [2, 2], padding: [0, 0], dilation: [1, 1] }, [3, 2, 5, 5]),
        (Window { size: [1, 5], stride: [1, 2], padding: [0, 4], dilation: [1, 1] }, [2, 4, 1, 33]),
        (SQUARE, [0, 2, 4, 4]),
        (SQUARE, [2, 0, 4, 4]),
        (SQUARE, [40, 8, 9, 9]),
    ]
}

fn numbers(seed: u64, dtype: DType, lengths: &[usize]) -> Operand {
    let mut numbers = Numbers::new(seed);
    // Small integers: they and their sums are exact in every dtype.
    Operand::new(dtype, Layout::contiguous(Shape::new(lengths)), || numbers.below(9) as f64)
}

#[test]
fn a_window_sees_what_the_reference_sees() {
    for (window, sizes) in cases() {
        for dtype in [DType::F32, DType::F16, DType::U8] {
            let images = numbers(1, dtype, &sizes);
            let wanted = reference::unfold(&window, sizes, &images.values());
            for threads in Threads::all() {
                let found = run_moved(&Unfold { window }, std::slice::from_ref(&images), threads).unwrap();
                let found: Vec<f64> = (0..wanted.len()).map(|index| found.get(index)).collect();
                assert_eq!(found, wanted, "{window:?} {sizes:?} {dtype}");
            }
        }
    }
}

/// Fold adds each patch element to the image element it came from. Unfolding element numbers gives that mapping.
#[test]
fn folding_adds_up_what_was_seen() {
    for (window, sizes) in cases() {
        let count: usize = sizes.iter().product();
        let places: Vec<f64> = (1..=count).map(|place| place as f64).collect();
        let seen = reference::unfold(&window, sizes, &places);
        let [down, across] = window.positions([sizes[2], sizes[3]]).unwrap();
        let row = sizes[1] * window.size[0] * window.size[1];
        let op = Fold { window, image: [sizes[2], sizes[3]] };
        if row == 0 {
            continue;
        }
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let rows = numbers(2, dtype, &[sizes[0], down * across, row]);
            let mut wanted = vec![0.0; count];
            for (place, number) in seen.iter().zip(rows.values()) {
                if *place > 0.0 {
                    wanted[*place as usize - 1] += number;
                }
            }
            for threads in Threads::all() {
                let found = run_stored(&op, std::slice::from_ref(&rows), threads);
                let found: Vec<f64> = (0..count).map(|index| found.get(index)).collect();
                assert_eq!(found, wanted, "{window:?} {sizes:?} {dtype}");
            }
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_named() {
    let ty = |lengths: &[usize], dtype| TensorType { shape: Shape::new(lengths), dtype };
    let unfold = |window, lengths: &[usize]| Unfold { window }.infer(&[ty(lengths, DType::F32)]);
    assert_eq!(unfold(SQUARE, &[2, 3, 5, 4]).unwrap().shape[..], [2, 20, 27]);
    for (window, lengths, kind, part) in [
        (SQUARE, &[2, 3, 5][..], ErrorKind::ShapeMismatch, "(batch, channels, height, width)"),
        (Window { padding: [0, 0], ..SQUARE }, &[1, 1, 2, 9], ErrorKind::ShapeMismatch, "at least its size"),
        (Window { stride: [1, 0], ..SQUARE }, &[1, 1, 4, 4], ErrorKind::InvalidArgument, "at least 1"),
        (Window { dilation: [usize::MAX, 1], ..SQUARE }, &[1, 1, 4, 4], ErrorKind::ShapeMismatch, "at least its size"),
    ] {
        let error = unfold(window, lengths).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(part), "{error}");
    }
    let fold = Fold { window: SQUARE, image: [4, 4] };
    assert_eq!(fold.infer(&[ty(&[2, 16, 18], DType::F16)]).unwrap().shape[..], [2, 2, 4, 4]);
    for (lengths, dtype) in
        [(&[2, 15, 18][..], DType::F32), (&[2, 16, 17], DType::F32), (&[16, 9], DType::F32), (&[2, 16, 18], DType::I32)]
    {
        assert!(fold.infer(&[ty(lengths, dtype)]).is_err());
    }
    assert_ne!(fold.attributes(), Fold { image: [4, 5], ..fold }.attributes());
    assert_ne!(
        Unfold { window: SQUARE }.attributes(),
        Unfold { window: Window { stride: [1, 2], ..SQUARE } }.attributes()
    );
}

#[test]
fn the_text_is_valid() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        assert_valid(&Unfold { window: SQUARE }, &[(dtype, Layout::contiguous(Shape::from([2, 3, 5, 4])))]);
        let rows = Layout::contiguous(Shape::from((2, 20, 27)));
        assert_valid(&Fold { window: SQUARE, image: [5, 4] }, &[(dtype, rows)]);
    }
}

/// Drivers may end the loops of an invocation early, which would give wrong sums.
#[test]
fn windows_with_too_many_steps_are_refused_on_a_gpu() {
    let check = |size| super::gpu::check_steps("fold", &Window { size, ..SQUARE }, 1);
    check([200, 200]).unwrap();
    let error = check([256, 256]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("windows of (256, 256); use the CPU device"), "{error}");
}
