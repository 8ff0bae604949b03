//! Pooling on the CPU. It is separable: first the rows of a window are combined elementwise into one row, then its columns.

use super::{Pool, PoolGradient, PoolOp, Sizes};
use crate::matmul::vector::{Stored, Vector, Work, at};
use crate::memory::{Target, elements};
use crate::rows::{Results, STORE_LEN, by_storage};
use crate::strided::parallel_for;
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::host::HostCall;
use kiln_ir::{DType, Result};

/// Elements and the type that they are compared in.
trait Comparable: Pod + Send + Sync {
    type Wide: Pod + PartialOrd;
    const LOWEST: Self::Wide;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

macro_rules! comparable {
    ($($element:ty, $wide:ty, $lowest:expr, $widen:expr, $narrow:expr;)*) => {
        $(impl Comparable for $element {
            type Wide = $wide;
            const LOWEST: $wide = $lowest;

            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }

            #[inline(always)]
            fn narrow(wide: $wide) -> Self {
                $narrow(wide)
            }
        })*
    };
}

comparable! {
    f32, f32, f32::NEG_INFINITY, std::convert::identity, std::convert::identity;
    f16, f32, f32::NEG_INFINITY, f16::to_f32, f16::from_f32;
    bf16, f32, f32::NEG_INFINITY, bf16::to_f32, bf16::from_f32;
    i32, i32, i32::MIN, std::convert::identity, std::convert::identity;
    u32, u32, 0, std::convert::identity, std::convert::identity;
    u8, u8, 0, std::convert::identity, std::convert::identity;
    i8, i8, i8::MIN, std::convert::identity, std::convert::identity;
}

/// Returns the larger one, or the one that is NaN.
#[inline(always)]
#[expect(clippy::eq_op, reason = "a NaN differs from itself")]
fn larger<W: Copy + PartialOrd>(a: W, b: W) -> W {
    if b > a || b != b { b } else { a }
}

pub(super) fn pool(op: &Pool, call: &HostCall<'_>) -> Result<()> {
    let dtype = call.operands[0].dtype;
    match (op.op, dtype) {
        (PoolOp::Sum, _) => by_storage!(dtype, sum(op, call)),
        (_, DType::F16) => max::<f16>(op, call),
        (_, DType::BF16) => max::<bf16>(op, call),
        (_, DType::F32) => max::<f32>(op, call),
        (_, DType::I32) => max::<i32>(op, call),
        (_, DType::U32) => max::<u32>(op, call),
        (_, DType::U8 | DType::Bool) => max::<u8>(op, call),
        (_, DType::I8) => max::<i8>(op, call),
        (_, DType::I64 | DType::F64) => unreachable!("kernels that compute in 32 bits get no 64-bit operands"),
    }
}

fn images<'a, T: Pod>(call: &HostCall<'a>, operand: usize) -> (&'a [T], usize) {
    let operand = &call.operands[operand];
    let shape = operand.layout.shape();
    (&elements::<T>(operand)[operand.layout.offset()..][..shape.elem_count()], shape[0] * shape[1])
}

fn max<T: Comparable>(op: &Pool, call: &HostCall<'_>) -> Result<()> {
    let (from, planes) = images::<T>(call, 0);
    let shape = call.operands[0].layout.shape();
    let sizes = Sizes::new(&op.window, planes, [shape[2], shape[3]])?;
    let (to, level, across) = (Target::<T>::of(call.output), call.workers.simd(), sizes.positions[1]);
    each_row(call, &sizes, |range| {
        let (mut covered, mut result) = (sizes.covered(T::LOWEST), vec![T::LOWEST; across]);
        for row in range {
            at(
                level,
                Row {
                    from: sizes.rows(from, row),
                    first: sizes.window.padding[1],
                    covered: &mut covered,
                    out: &mut result,
                    sizes: &sizes,
                    widen: T::widen,
                    combine: larger,
                    none: T::LOWEST,
                },
            );
            // SAFETY: the ranges of the tasks are disjoint.
            let out = unsafe { to.slice(row * across, across) };
            for (out, &result) in out.iter_mut().zip(&result) {
                *out = T::narrow(result);
            }
        }
    })
}

fn sum<T: Stored>(op: &Pool, call: &HostCall<'_>) -> Result<()> {
    let (from, planes) = images::<T>(call, 0);
    let shape = call.operands[0].layout.shape();
    let sizes = Sizes::new(&op.window, planes, [shape[2], shape[3]])?;
    let (level, across) = (call.workers.simd(), sizes.positions[1]);
    each_row(call, &sizes, |range| {
        let mut covered = sizes.covered(0.0);
        let together = (STORE_LEN / across).max(1).min(range.len());
        let mut results = Results::new(call.output, range.start * across, together * across);
        let end = range.end * across;
        for row in range {
            let pool = |out: &mut [f32]| {
                at(
                    level,
                    Row {
                        from: sizes.rows(from, row),
                        first: sizes.window.padding[1],
                        covered: &mut covered,
                        out,
                        sizes: &sizes,
                        widen: <T as Into<f32>>::into,
                        combine: |a: f32, b: f32| a + b,
                        none: 0.0,
                    },
                );
            };
            // SAFETY: the ranges of the tasks are disjoint and within the output.
            unsafe { results.put(across, end, pool) };
        }
    })
}

impl Sizes {
    /// Allocates one row of an image with its padding.
    fn covered<W: Copy>(&self, none: W) -> Vec<W> {
        vec![none; self.image[1] + 2 * self.window.padding[1]]
    }

    /// Iterates over the image rows that the window covers in a row of positions, counted over all planes.
    fn rows<'a, T>(&'a self, from: &'a [T], row: usize) -> impl Iterator<Item = &'a [T]> {
        let [height, width] = self.image;
        let (plane, position) = (row / self.positions[0], row % self.positions[0]);
        let inside = (0..self.window.size[0]).filter_map(move |element| self.image_coordinate(0, position, element));
        inside.map(move |y| &from[(plane * height + y) * width..][..width])
    }
}

/// Calls `work` with ranges of the rows of all results.
fn each_row(call: &HostCall<'_>, sizes: &Sizes, work: impl Fn(std::ops::Range<usize>) + Sync) -> Result<()> {
    let [down, across] = sizes.positions;
    if across == 0 {
        return Ok(());
    }
    let [rows, columns] = sizes.window.size;
    parallel_for(call.workers, sizes.planes * down, 16 + (rows * sizes.image[1] + columns * across) / 4, work)
}

/// Computes a row of positions.
struct Row<'a, I, W, F, C> {
    from: I,
    first: usize,
    covered: &'a mut [W],
    out: &'a mut [W],
    sizes: &'a Sizes,
    widen: F,
    combine: C,
    none: W,
}

impl<'a, T, I, W, F, C> Work for Row<'_, I, W, F, C>
where
    T: Copy + 'a,
    I: Iterator<Item = &'a [T]>,
    W: Copy,
    F: Fn(T) -> W,
    C: Fn(W, W) -> W,
{
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { from, first, covered, out, sizes, widen, combine, none } = self;
        let width = sizes.image[1];
        let inside = &mut covered[first..first + width];
        let mut is_first = true;
        for row in from {
            if std::mem::take(&mut is_first) {
                inside.iter_mut().zip(row).for_each(|(to, &x)| *to = widen(x));
            } else {
                inside.iter_mut().zip(row).for_each(|(to, &x)| *to = combine(*to, widen(x)));
            }
        }
        if is_first {
            inside.fill(none);
        }
        let dilation = sizes.window.dilation[1];
        for element in 0..sizes.window.size[1] {
            let covered = &covered[element * dilation..];
            // Constant strides compile to vector loads.
            match (sizes.window.stride[1], element) {
                (1, 0) => out.iter_mut().zip(covered).for_each(|(out, &x)| *out = x),
                (1, _) => out.iter_mut().zip(covered).for_each(|(out, &x)| *out = combine(*out, x)),
                (2, 0) => out.iter_mut().zip(pairs(covered)).for_each(|(out, x)| *out = x),
                (2, _) => out.iter_mut().zip(pairs(covered)).for_each(|(out, x)| *out = combine(*out, x)),
                (stride, 0) => out.iter_mut().zip(covered.iter().step_by(stride)).for_each(|(out, &x)| *out = x),
                (stride, _) => {
                    out.iter_mut().zip(covered.iter().step_by(stride)).for_each(|(out, &x)| *out = combine(*out, x));
                }
            }
        }
    }
}

/// Iterates over the elements at even indices.
#[inline(always)]
fn pairs<W: Copy>(from: &[W]) -> impl Iterator<Item = W> {
    let (pairs, rest) = from.as_chunks::<2>();
    pairs.iter().map(|pair| pair[0]).chain(rest.first().copied())
}

pub(super) fn gradient(op: &PoolGradient, call: &HostCall<'_>) -> Result<()> {
    by_storage!(call.operands[0].dtype, add_gradient(op, call))
}

fn add_gradient<T: Stored>(op: &PoolGradient, call: &HostCall<'_>) -> Result<()> {
    let (gradient, planes) = images::<T>(call, 0);
    let from = (op.pool.op == PoolOp::Max).then(|| images::<T>(call, 1).0);
    let sizes = op.sizes(&[planes, 1])?;
    let ([height, width], [down, across], [rows, columns]) = (sizes.image, sizes.positions, sizes.window.size);
    parallel_for(call.workers, planes, height * width + down * across * rows * columns, |range| {
        let mut plane = vec![0.0f32; height * width];
        for item in range {
            plane.fill(0.0);
            let gradient = &gradient[item * down * across..][..down * across];
            let image = from.map(|from| &from[item * height * width..][..height * width]);
            for (position, &value) in gradient.iter().enumerate() {
                let value: f32 = value.into();
                match image {
                    Some(image) => {
                        if let Some(element) = largest(&sizes, image, [position / across, position % across]) {
                            plane[element] += value;
                        }
                    }
                    None => {
                        sizes.each_element([position / across, position % across], |element| plane[element] += value);
                    }
                }
            }
            // SAFETY: the planes are disjoint.
            unsafe { call.output.store(item * height * width, &mut plane) };
        }
    })
}

impl Sizes {
    /// Calls `visit` with the index of each image element that the window covers, in row-major order.
    fn each_element(&self, position: [usize; 2], mut visit: impl FnMut(usize)) {
        for row in 0..self.window.size[0] {
            let Some(y) = self.image_coordinate(0, position[0], row) else { continue };
            for column in 0..self.window.size[1] {
                if let Some(x) = self.image_coordinate(1, position[1], column) {
                    visit(y * self.image[1] + x);
                }
            }
        }
    }
}

/// Returns the index of the first largest element in a window, or of the first NaN.
fn largest<T: Stored>(sizes: &Sizes, image: &[T], position: [usize; 2]) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    sizes.each_element(position, |element| {
        let x: f32 = image[element].into();
        if best.is_none_or(|(_, best)| x > best || (x.is_nan() && !best.is_nan())) {
            best = Some((element, x));
        }
    });
    best.map(|(element, _)| element)
}
