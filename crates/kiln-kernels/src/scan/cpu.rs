//! Scans on the CPU. Contiguous rows are scanned in groups, which shortens the dependency chain. Along an axis that is not the last one, neighbouring
//! lines are scanned together.

use super::{Lines, Scan, ScanOp};
use crate::matmul::vector::{LANES, Vector, Work, at, widen_bf16, widen_f16};
use crate::memory::{Target, elements};
use crate::strided::parallel_for;
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::host::HostCall;
use kiln_ir::{DType, Result};

/// An element, and the type that it is accumulated in.
trait Stored: Pod + Send + Sync {
    type Wide: Wide;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;

    #[inline(always)]
    fn load<V: Vector>(from: &[Self; GROUP]) -> [Self::Wide; GROUP] {
        from.map(Self::widen)
    }

    #[inline(always)]
    fn store<V: Vector>(wide: [Self::Wide; GROUP], to: &mut [Self; GROUP]) {
        *to = wide.map(Self::narrow);
    }
}

trait Wide: Pod + Send + Sync {
    const ZERO: Self;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
}

impl Wide for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self + other
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self * other
    }
}

/// Also for `i32`: wrapping sums and products have the same bits.
impl Wide for u32 {
    const ZERO: Self = 0;
    const ONE: Self = 1;

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
}

macro_rules! stored {
    ($($element:ty, $wide:ty, |$x:ident| $widen:expr, |$y:ident| $narrow:expr;)*) => {
        $(impl Stored for $element {
            type Wide = $wide;

            #[inline(always)]
            fn widen(self) -> $wide {
                let $x = self;
                $widen
            }

            #[inline(always)]
            fn narrow($y: $wide) -> Self {
                $narrow
            }
        })*
    };
}

stored! {
    f32, f64, |x| f64::from(x), |y| y as f32;
    bf16, f64, |x| f64::from(widen_bf16(x.to_bits())), |y| bf16::from_f32(y as f32);
    u32, u32, |x| x, |y| y;
}

impl Stored for f16 {
    type Wide = f64;

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(widen_f16(self.to_bits()))
    }

    #[inline(always)]
    fn narrow(wide: f64) -> Self {
        Self::from_f32(wide as f32)
    }

    #[inline(always)]
    fn load<V: Vector>(from: &[Self; GROUP]) -> [f64; GROUP] {
        // SAFETY: a group has as many elements as a vector.
        let wide = unsafe { V::load_f16(from.as_ptr().cast()) };
        wide.lanes().map(f64::from)
    }

    #[inline(always)]
    fn store<V: Vector>(wide: [f64; GROUP], to: &mut [Self; GROUP]) {
        let narrow = wide.map(|wide| wide as f32);
        // SAFETY: a group has as many elements as a vector.
        unsafe { V::load(narrow.as_ptr()).store_f16(to.as_mut_ptr().cast()) };
    }
}

pub(super) fn run(op: &Scan, call: &HostCall<'_>) -> Result<()> {
    match call.operands[0].dtype {
        DType::F16 => of_elements::<f16>(op, call),
        DType::BF16 => of_elements::<bf16>(op, call),
        DType::F32 => of_elements::<f32>(op, call),
        _ => of_elements::<u32>(op, call),
    }
}

fn of_elements<T: Stored>(op: &Scan, call: &HostCall<'_>) -> Result<()> {
    let lines = Lines::new(call.operands[0].layout.shape(), op.axis);
    if lines.outer * lines.length * lines.inner == 0 {
        return Ok(());
    }
    match op.op {
        ScanOp::Linear => columns::<T, _>(op, call, lines, |before, [a, b]| a.mul(before).add(b)),
        // Sequential: a product of some elements may overflow where the whole product does not, as after a zero.
        ScanOp::Product => columns::<T, _>(op, call, lines, |before, [x, _]| before.mul(x)),
        ScanOp::Sum if lines.inner > 1 => columns::<T, _>(op, call, lines, |before, [x, _]| before.add(x)),
        ScanOp::Sum => rows::<T>(op, call, lines),
    }
}

/// Elements of a row per task. It determines the order of additions, so results have the same bits on any number of
/// threads.
const BLOCK: usize = 1 << 14;

fn rows<T: Stored>(op: &Scan, call: &HostCall<'_>, lines: Lines) -> Result<()> {
    let x = &elements::<T>(&call.operands[0])[call.operands[0].layout.offset()..];
    let (to, level, length) = (Target::<T>::of(call.output), call.workers.simd(), lines.length);
    let blocks = length.div_ceil(BLOCK);
    if lines.outer >= call.workers.count() || blocks < 4 || call.workers.count() == 1 {
        return parallel_for(call.workers, lines.outer, length, |range| {
            for row in range {
                let mut before = T::Wide::ZERO;
                for block in 0..blocks {
                    let (start, length) = block_of(row, block, lines, op.reverse);
                    // SAFETY: the ranges of the tasks are disjoint.
                    let out = unsafe { to.slice(start, length) };
                    let total = at(level, Block::<T>::new(&x[start..start + length], Some(out), before, op.reverse));
                    before = before.add(total);
                }
            }
        });
    }
    // Few long rows: first the totals of all blocks, then each block starts from the total of those before it.
    let mut before = vec![T::Wide::ZERO; lines.outer * blocks];
    let totals = Target::over(&mut before);
    parallel_for(call.workers, lines.outer * blocks, BLOCK / 2, |range| {
        for item in range {
            let (start, length) = block_of(item / blocks, item % blocks, lines, op.reverse);
            let total = at(level, Block::<T>::new(&x[start..start + length], None, T::Wide::ZERO, op.reverse));
            // SAFETY: the ranges of the tasks are disjoint.
            unsafe { totals.slice(item, 1)[0] = total };
        }
    })?;
    for row in before.chunks_exact_mut(blocks) {
        let mut sum = T::Wide::ZERO;
        for total in row {
            sum = sum.add(std::mem::replace(total, sum));
        }
    }
    parallel_for(call.workers, lines.outer * blocks, BLOCK, |range| {
        for item in range {
            let (start, length) = block_of(item / blocks, item % blocks, lines, op.reverse);
            // SAFETY: the ranges of the tasks are disjoint.
            let out = unsafe { to.slice(start, length) };
            at(level, Block::<T>::new(&x[start..start + length], Some(out), before[item], op.reverse));
        }
    })
}

/// Returns the start of a block and its length. In reverse, the first block is the last one of the row.
fn block_of(row: usize, block: usize, lines: Lines, reverse: bool) -> (usize, usize) {
    let (first, end) = (block * BLOCK, ((block + 1) * BLOCK).min(lines.length));
    let start = if reverse { lines.length - end } else { first };
    (row * lines.length + start, end - first)
}

/// Computes the total of a block of a row. If `out` is given, writes its running results, starting from `before`.
struct Block<'a, T: Stored> {
    x: &'a [T],
    out: Option<&'a mut [T]>,
    before: T::Wide,
    reverse: bool,
}

impl<'a, T: Stored> Block<'a, T> {
    fn new(x: &'a [T], out: Option<&'a mut [T]>, before: T::Wide, reverse: bool) -> Self {
        Self { x, out, before, reverse }
    }
}

/// Elements that are combined with each other before the running total is added, which shortens the dependency chain.
const GROUP: usize = LANES;

impl<T: Stored> Work for Block<'_, T> {
    type Output = T::Wide;

    #[inline(always)]
    fn run<V: Vector>(self) -> T::Wide {
        if self.reverse { scan::<T, V, true>(self) } else { scan::<T, V, false>(self) }
    }
}

#[inline(always)]
fn scan<T: Stored, V: Vector, const REVERSE: bool>(block: Block<'_, T>) -> T::Wide {
    let Block { x, mut out, before, .. } = block;
    let (mut total, groups) = (T::Wide::ZERO, x.len() / GROUP);
    let mirrored = |index: usize| if REVERSE { GROUP - 1 - index } else { index };
    for group in 0..groups {
        let start = if REVERSE { x.len() - (group + 1) * GROUP } else { group * GROUP };
        let Some((from, _)) = x[start..].split_first_chunk() else { break };
        let wide = T::load::<V>(from);
        let mut sums: [T::Wide; GROUP] = std::array::from_fn(|index| wide[mirrored(index)]);
        // Hillis-Steele scan: three dependent additions instead of seven.
        for step in [1, 2, 4] {
            let add = |index: usize| if index < step { sums[index] } else { sums[index - step].add(sums[index]) };
            sums = std::array::from_fn(add);
        }
        if let Some(out) = &mut out {
            let Some((out, _)) = out[start..].split_first_chunk_mut() else { break };
            let base = before.add(total);
            T::store::<V>(std::array::from_fn(|index| base.add(sums[mirrored(index)])), out);
        }
        total = total.add(sums[GROUP - 1]);
    }
    for rest in groups * GROUP..x.len() {
        let index = if REVERSE { x.len() - 1 - rest } else { rest };
        total = total.add(x[index].widen());
        if let Some(out) = &mut out {
            out[index] = T::narrow(before.add(total));
        }
    }
    total
}

/// Lines that are scanned together: their running results stay in the L1 cache.
const STRIP: usize = 256;

/// Scans neighbouring lines together, row by row.
fn columns<T: Stored, F: Fn(T::Wide, [T::Wide; 2]) -> T::Wide + Sync>(
    op: &Scan,
    call: &HostCall<'_>,
    lines: Lines,
    step: F,
) -> Result<()> {
    let of = |operand: usize| {
        let operand = &call.operands[operand.min(call.operands.len() - 1)];
        &elements::<T>(operand)[operand.layout.offset()..]
    };
    let (inputs, to, level) = ([of(0), of(1)], Target::<T>::of(call.output), call.workers.simd());
    let strips = lines.inner.div_ceil(STRIP);
    let first = if op.op == ScanOp::Product { T::Wide::ONE } else { T::Wide::ZERO };
    parallel_for(call.workers, lines.outer * strips, lines.length * lines.inner.min(STRIP), |range| {
        for item in range {
            let column = item % strips * STRIP;
            let start = item / strips * lines.length * lines.inner + column;
            let width = (lines.inner - column).min(STRIP);
            at(level, Strip { inputs, to: &to, step: &step, start, width, lines, first, op });
        }
    })
}

struct Strip<'a, T: Stored, F> {
    inputs: [&'a [T]; 2],
    to: &'a Target<'a, T>,
    step: &'a F,
    start: usize,
    width: usize,
    lines: Lines,
    first: T::Wide,
    op: &'a Scan,
}

impl<T: Stored, F: Fn(T::Wide, [T::Wide; 2]) -> T::Wide> Work for Strip<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { inputs: [a, b], to, step, start, width, lines, first, op } = self;
        let mut running = [first; STRIP];
        for number in 0..lines.length {
            let row = if op.reverse { lines.length - 1 - number } else { number };
            let index = start + row * lines.inner;
            // In reverse, the linear recurrence takes the factor of the row before. Its first result has no product: an infinite factor times
            // the initial zero would be NaN.
            let is_linear = op.op == ScanOp::Linear;
            let before = if op.reverse && number > 0 && is_linear { index + lines.inner } else { index };
            let is_first = number == 0 && is_linear;
            let (a, b) = (&a[before..before + width], &b[index..index + width]);
            // SAFETY: the ranges of the tasks are disjoint.
            let out = unsafe { to.slice(index, width) };
            for (((running, out), a), b) in running.iter_mut().zip(out).zip(a).zip(b) {
                *running = if is_first { b.widen() } else { step(*running, [a.widen(), b.widen()]) };
                *out = T::narrow(*running);
            }
        }
    }
}
