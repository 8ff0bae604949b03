//! Pooling on the CPU. It is separable: the image rows that a row of window positions covers are first combined elementwise into one row, then the
//! columns of each window within that row.

use super::{Pool, PoolGradient, PoolOp, Sizes};
use crate::matmul::vector::{Stored, Vector, Work, at};
use crate::memory::{Target, elements};
use crate::rows::{Results, STORE_LEN, by_storage};
use crate::strided::parallel_for;
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::host::HostCall;
use kiln_ir::{DType, Result};

/// An element type of max pooling, and the type that its elements are compared in.
trait Comparable: Pod + Send + Sync {
    type Wide: Pod;
    /// The value of padding, which no element is below.
    const LOWEST: Self::Wide;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    /// Returns the larger one, or the one that is NaN.
    fn larger(a: Self::Wide, b: Self::Wide) -> Self::Wide;
}

impl Comparable for f32 {
    type Wide = f32;
    const LOWEST: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        wide
    }

    #[inline(always)]
    fn larger(a: f32, b: f32) -> f32 {
        if b > a || b.is_nan() { b } else { a }
    }
}

/// 16-bit floats are compared as signed integers: twice as many per vector, and no conversions to `f32`. Positive zero is above negative zero,
/// while `f32` keeps the one that is compared first.
macro_rules! comparable_halves {
    ($($float:ty),*) => {
        $(impl Comparable for $float {
            type Wide = i16;
            const LOWEST: i16 = ordered(<$float>::NEG_INFINITY.to_bits() as i16);

            #[inline(always)]
            fn widen(self) -> i16 {
                let magnitude = self.to_bits() as i16 & i16::MAX;
                // A NaN of either sign becomes a positive one, which is above infinity.
                if magnitude > <$float>::INFINITY.to_bits() as i16 { magnitude } else { ordered(self.to_bits() as i16) }
            }

            #[inline(always)]
            fn narrow(wide: i16) -> Self {
                Self::from_bits(ordered(wide) as u16)
            }

            #[inline(always)]
            fn larger(a: i16, b: i16) -> i16 {
                a.max(b)
            }
        })*
    };
}

comparable_halves!(f16, bf16);

/// Inverts the magnitude bits of negative floats, so that signed integer order is numeric order. It is its own inverse.
#[inline(always)]
const fn ordered(bits: i16) -> i16 {
    bits ^ ((bits >> 15) & i16::MAX)
}

macro_rules! comparable_integers {
    ($($integer:ty),*) => {
        $(impl Comparable for $integer {
            type Wide = $integer;
            const LOWEST: $integer = <$integer>::MIN;

            #[inline(always)]
            fn widen(self) -> $integer {
                self
            }

            #[inline(always)]
            fn narrow(wide: $integer) -> Self {
                wide
            }

            #[inline(always)]
            fn larger(a: $integer, b: $integer) -> $integer {
                a.max(b)
            }
        })*
    };
}

comparable_integers!(i32, u32, u8, i8);

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

/// Returns the elements of a contiguous operand, and the number of planes: batch times channels.
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
        let mut covered = sizes.covered(T::LOWEST);
        let (mut phases, mut result) = (covered.clone(), vec![T::LOWEST; across]);
        for row in range {
            at(
                level,
                Row {
                    from: sizes.rows(from, row),
                    first: sizes.window.padding[1],
                    covered: &mut covered,
                    phases: &mut phases,
                    out: &mut result,
                    sizes: &sizes,
                    widen: T::widen,
                    combine: T::larger,
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
        let mut phases = covered.clone();
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
                        phases: &mut phases,
                        out,
                        sizes: &sizes,
                        widen: T::widen,
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
    /// Allocates one row of an image with its padding, filled with `none`. Only the image part is overwritten, so the padding stays.
    fn covered<W: Copy>(&self, none: W) -> Vec<W> {
        vec![none; self.image[1] + 2 * self.window.padding[1]]
    }

    /// Iterates over the image rows that the windows of a row of positions cover, without padding. `row` counts over all planes.
    fn rows<'a, T>(&'a self, from: &'a [T], row: usize) -> impl Iterator<Item = &'a [T]> {
        let [height, width] = self.image;
        let (plane, position) = (row / self.positions[0], row % self.positions[0]);
        let coordinates =
            (0..self.window.size[0]).filter_map(move |element| self.image_coordinate(0, position, element));
        coordinates.map(move |y| &from[(plane * height + y) * width..][..width])
    }
}

/// Calls `work` with ranges of rows of positions, counted over all planes.
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
    /// The image rows that the windows cover.
    from: I,
    /// Index of the first image element in `covered`: the padding.
    first: usize,
    /// Scratch for the combined row, with its padding.
    covered: &'a mut [W],
    /// Scratch for the elements of `covered` at even indices, followed by those at odd ones.
    phases: &'a mut [W],
    out: &'a mut [W],
    sizes: &'a Sizes,
    widen: F,
    combine: C,
    /// The result of a window row that covers only padding.
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
        let Self { from, first, covered, phases, out, sizes, widen, combine, none } = self;
        combine_all(&mut covered[first..first + sizes.image[1]], from, widen, &combine, none);
        let (columns, dilation) = (0..sizes.window.size[1], sizes.window.dilation[1]);
        match sizes.window.stride[1] {
            1 => combine_all(out, columns.map(|column| &covered[column * dilation..]), |x| x, &combine, none),
            2 => {
                // Strided loads do not vectorize. One pass splits the row by parity; each column of the windows is then contiguous.
                let (even, odd) = phases.split_at_mut(covered.len().div_ceil(2));
                let (pairs, rest) = covered.as_chunks::<2>();
                for ((pair, even), odd) in pairs.iter().zip(&mut *even).zip(&mut *odd) {
                    [*even, *odd] = *pair;
                }
                if let ([last], Some(even)) = (rest, even.last_mut()) {
                    *even = *last;
                }
                let (even, odd) = (&*even, &*odd);
                let column = |column: usize| {
                    let index = column * dilation;
                    if index.is_multiple_of(2) { &even[index / 2..] } else { &odd[index / 2..] }
                };
                combine_all(out, columns.map(column), |x| x, &combine, none);
            }
            stride => {
                for column in columns {
                    let covered = covered[column * dilation..].iter().step_by(stride);
                    for (out, &x) in out.iter_mut().zip(covered) {
                        *out = if column == 0 { x } else { combine(*out, x) };
                    }
                }
            }
        }
    }
}

/// Combines slices elementwise into `out`, the first three in one pass; `none` if there is no slice. Each is at least as long as `out`. `from` is
/// polled again after it ends, so it must be fused, as maps and filters of a range are.
#[inline(always)]
fn combine_all<'a, T: Copy + 'a, W: Copy>(
    out: &mut [W],
    mut from: impl Iterator<Item = &'a [T]>,
    widen: impl Fn(T) -> W,
    combine: &impl Fn(W, W) -> W,
    none: W,
) {
    match [from.next(), from.next(), from.next()] {
        [Some(a), Some(b), Some(c)] => {
            for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
                *out = combine(combine(widen(a), widen(b)), widen(c));
            }
        }
        [Some(a), Some(b), None] => {
            for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                *out = combine(widen(a), widen(b));
            }
        }
        [Some(a), ..] => out.iter_mut().zip(a).for_each(|(out, &a)| *out = widen(a)),
        [None, ..] => out.fill(none),
    }
    for a in from {
        out.iter_mut().zip(a).for_each(|(out, &a)| *out = combine(*out, widen(a)));
    }
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
