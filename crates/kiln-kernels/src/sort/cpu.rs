//! Sorting on the CPU. Indices are sorted by a radix sort of words that hold the key of an element above its index. Threads share the rows, or
//! sort a long row together. [`values`] sorts elements without their indices.

use super::key::Key;
use super::{Argsort, Sort, radix, values};
use crate::matmul::scratch;
use crate::matmul::vector::{Vector, Work, at};
use crate::memory::{Target, elements};
use crate::strided::parallel_for;
use crate::unsigned::Word;
use half::{bf16, f16};
use kiln_ir::host::HostCall;
use kiln_ir::{DType, Result};

/// Rows of at least this many elements are sorted by all threads together if there are fewer rows than threads.
const LONG: usize = 1 << 15;
/// A selection of at most `1 / SELECTED` of a row compares with the worst element selected so far instead of sorting.
const SELECTED: usize = 8;

/// Calls a function that is generic over the element type.
macro_rules! by_dtype {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            DType::F32 => $function::<f32>($($argument),*),
            DType::I32 => $function::<i32>($($argument),*),
            DType::U32 => $function::<u32>($($argument),*),
            DType::U8 | DType::Bool => $function::<u8>($($argument),*),
            DType::I8 => $function::<i8>($($argument),*),
            DType::I64 | DType::F64 => unreachable!("kernels that compute in 32 bits are not given 64"),
        }
    };
}

pub(super) fn argsort(op: &Argsort, call: &HostCall<'_>) -> Result<()> {
    by_dtype!(call.operands[0].dtype, places(op, call))
}

pub(super) fn sort(op: &Sort, call: &HostCall<'_>) -> Result<()> {
    use values::sort;
    by_dtype!(call.operands[0].dtype, sort(op, call))
}

fn places<T: Key>(op: &Argsort, call: &HostCall<'_>) -> Result<()> {
    let length = call.operands[0].layout.shape().last().copied().unwrap_or(0);
    let (count, flip) = (op.count.unwrap_or(length), T::Code::truncate(if op.descending { u32::MAX } else { 0 }));
    let (x, to, level) = (whole::<T>(call), Target::<u32>::of(call.output), call.workers.simd());
    if x.is_empty() || count == 0 {
        return Ok(());
    }
    if count > length / SELECTED {
        return rows(call, x, count, flip);
    }
    parallel_for(call.workers, x.len() / length, length, |range| {
        for row in range {
            // SAFETY: the ranges of the tasks are disjoint.
            let out = unsafe { to.slice(row * count, count) };
            at(level, Select { x: &x[row * length..][..length], flip, out });
        }
    })
}

pub(super) fn whole<'a, T: Key>(call: &HostCall<'a>) -> &'a [T] {
    let layout = call.operands[0].layout;
    &elements::<T>(&call.operands[0])[layout.offset()..][..layout.shape().elem_count()]
}

/// Sorts each row, and stores the indices of its first `count` elements.
fn rows<T: Key>(call: &HostCall<'_>, x: &[T], count: usize, flip: T::Code) -> Result<()> {
    let length = call.operands[0].layout.shape().last().copied().unwrap_or(0);
    let (rows, words, to) = (x.len() / length, length * 2, Target::<u32>::of(call.output));
    let write = |row: usize, items: &[u64]| {
        // SAFETY: each row is stored once.
        let out = unsafe { to.slice(row * count, count) };
        for (out, &item) in out.iter_mut().zip(items) {
            *out = item as u32;
        }
    };
    // SAFETY: the memory has room for an item per element, is aligned to cache lines, and its words are initialized.
    let items = |part: *mut f32| unsafe { std::slice::from_raw_parts_mut(part.cast::<u64>(), length) };
    if rows < call.workers.count() && length >= LONG {
        return scratch::with([words, words], |memory| {
            for (row, x) in x.chunks_exact(length).enumerate() {
                let pack = |place: usize| item(x[place], flip, place);
                write(row, radix::sort_together(call.workers, pack, memory.map(items))?);
            }
            Ok(())
        });
    }
    parallel_for(call.workers, rows, length * 8, |range| {
        scratch::with([words, words], |memory| {
            for row in range {
                let [packed, other] = memory.map(items);
                for ((place, packed), &x) in packed.iter_mut().enumerate().zip(&x[row * length..][..length]) {
                    *packed = item(x, flip, place);
                }
                write(row, radix::sort([packed, other]));
            }
        });
    })
}

/// Packs a key above an index. Sorting these words sorts the elements stably.
#[inline(always)]
fn item<T: Key>(x: T, flip: T::Code, place: usize) -> u64 {
    u64::from((x.key() ^ flip).widen()) << 32 | place as u64
}

/// Elements that are compared at a time with the worst selected one.
const CHUNK: usize = 64;

/// Selects the indices of the first few elements of a row in order.
struct Select<'a, T: Key> {
    x: &'a [T],
    flip: T::Code,
    out: &'a mut [u32],
}

impl<T: Key> Work for Select<'_, T> {
    type Output = ();

    /// Most elements are only compared with the worst one selected so far.
    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { x, flip, out } = self;
        let count = out.len();
        let (first, rest) = x.split_at(x.len().min(2 * count + CHUNK));
        let mut best: Vec<u64> = Vec::with_capacity(first.len() + CHUNK);
        best.extend(first.iter().enumerate().map(|(place, &x)| item(x, flip, place)));
        let mut worst = T::Code::truncate(keep_first(&mut best, count));
        for (number, chunk) in rest.chunks(CHUNK).enumerate() {
            // An element with an equal key sorts after the selected ones.
            if !chunk.iter().fold(false, |any, x| any | (x.key() ^ flip < worst)) {
                continue;
            }
            for (place, &x) in (first.len() + number * CHUNK..).zip(chunk) {
                if x.key() ^ flip < worst {
                    best.push(item(x, flip, place));
                }
            }
            if best.len() >= first.len() {
                worst = T::Code::truncate(keep_first(&mut best, count));
            }
        }
        keep_first(&mut best, count);
        best.sort_unstable();
        for (out, item) in out.iter_mut().zip(best) {
            *out = item as u32;
        }
    }
}

/// Keeps the first `count` items in order, and returns the key of the last of them.
fn keep_first(items: &mut Vec<u64>, count: usize) -> u32 {
    let (_, last, _) = items.select_nth_unstable(count - 1);
    let key = (*last >> 32) as u32;
    items.truncate(count);
    key
}
