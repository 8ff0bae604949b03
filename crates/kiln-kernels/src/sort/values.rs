//! Sorting elements without their indices, as [codes](Key::code). A [network] sorts short rows. The codes of a long row are first distributed to
//! buckets by their upper bits, so that each bucket holds a range of codes, and most are short enough for a network. A descending sort inverts the
//! codes: `flip` is all ones.

use super::Sort;
use super::key::Key;
use super::network;
use super::radix::{self, Item};
use crate::matmul::scratch;
use crate::matmul::vector::{Vector, Work, at};
use crate::memory::Target;
use crate::strided::parallel_for;
use crate::unsigned::Word;
use kiln_ir::host::{HostCall, Workers};
use kiln_ir::{Result, SimdLevel};
use std::ops::Range;

/// Rows of at most this many elements are sorted by a network. Their codes take at most 32 KiB.
const NETWORK: usize = 8192;
/// Maximum length of a bucket, unless a single prefix of codes has more.
const BUCKET: usize = 2048;

pub(super) fn sort<T: Key<Code: Item>>(op: &Sort, call: &HostCall<'_>) -> Result<()> {
    let length = call.operands[0].layout.shape().last().copied().unwrap_or(0);
    let (x, to) = (super::cpu::whole::<T>(call), Target::<T>::of(call.output));
    if x.is_empty() {
        return Ok(());
    }
    let flip = T::Code::truncate(if op.descending { u32::MAX } else { 0 });
    let (rows, workers) = (x.len() / length, call.workers);
    if length > NETWORK && rows < workers.count() {
        return x.chunks_exact(length).enumerate().try_for_each(|(row, x)| {
            // SAFETY: each row is stored once.
            sort_long(workers, x, unsafe { to.slice(row * length, length) }, flip)
        });
    }
    parallel_for(workers, rows, length * 4, |range| {
        let (start, count) = (range.start * length, range.len() * length);
        // SAFETY: the ranges of the tasks are disjoint.
        let (x, to) = (&x[start..][..count], unsafe { to.slice(start, count) });
        if length <= NETWORK {
            sort_short(workers.simd(), x, to, length, |x: T| x.code() ^ flip, flip);
        } else {
            for (x, to) in x.chunks_exact(length).zip(to.chunks_exact_mut(length)) {
                sort_long(&OneThread(workers.simd()), x, to, flip).expect("a single thread reports no error");
            }
        }
    })
}

/// Runs all parts on the calling thread, for rows that are sorted in parallel with other rows.
struct OneThread(SimdLevel);

impl Workers for OneThread {
    fn count(&self) -> usize {
        1
    }

    fn simd(&self) -> SimdLevel {
        self.0
    }

    fn run(&self, parts: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()> {
        (0..parts).for_each(task);
        Ok(())
    }
}

/// Sorts each row of `length` items with a network: `encode` returns the code of an item; `to` receives the sorted elements. `length` is at
/// least 1.
fn sort_short<T: Key, X: Copy>(
    level: SimdLevel,
    x: &[X],
    to: &mut [T],
    length: usize,
    encode: impl Fn(X) -> T::Code,
    flip: T::Code,
) {
    let words = network::words::<T::Code>(length);
    scratch::with([words * size_of::<T::Code>() / size_of::<f32>(); 2], |memory| {
        // SAFETY: the memory has room for these words, is aligned to cache lines, and is initialized.
        let memory = memory.map(|part| unsafe { std::slice::from_raw_parts_mut(part.cast(), words) });
        at(level, SortShort { x, to, length, encode, flip, memory });
    });
}

struct SortShort<'a, T: Key, X, E> {
    x: &'a [X],
    to: &'a mut [T],
    length: usize,
    encode: E,
    flip: T::Code,
    /// Scratch for the padded codes of a row, and for the sorted codes in order.
    memory: [&'a mut [T::Code]; 2],
}

impl<T: Key, X: Copy, E: Fn(X) -> T::Code> Work for SortShort<'_, T, X, E> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { x, to, length, encode, flip, memory: [codes, sorted] } = self;
        for (x, to) in x.chunks_exact(length).zip(to.chunks_exact_mut(length)) {
            let (row, padding) = codes.split_at_mut(length);
            for (code, &x) in row.iter_mut().zip(x) {
                *code = encode(x);
            }
            // No code is larger, so the padding stays at the end. Codes that equal it are indistinguishable from it.
            padding.fill(Word::MAX);
            network::sort::<T::Codes<V>>(codes);
            network::store::<V, _>(codes, sorted);
            for (to, &code) in to.iter_mut().zip(&*sorted) {
                *to = T::from_code(code ^ flip);
            }
        }
    }
}

/// Sorts a row of more than [`NETWORK`] elements in buckets, on all threads of `workers`.
fn sort_long<T: Key<Code: Item>>(workers: &dyn Workers, x: &[T], to: &mut [T], flip: T::Code) -> Result<()> {
    let (length, level) = (x.len(), workers.simd());
    let words = (length * size_of::<T::Code>()).div_ceil(size_of::<f32>());
    scratch::with([words, words], |memory| {
        // SAFETY: the memory has room for a code per element, is aligned to cache lines, and is initialized.
        let [codes, other] =
            memory.map(|part| unsafe { std::slice::from_raw_parts_mut(part.cast::<T::Code>(), length) });
        let buckets = distribute(workers, x, flip, codes)?;
        let (to, codes, other) = (Target::over(to), Target::over(codes), Target::over(other));
        parallel_for(workers, buckets.len(), length / buckets.len() * 4, |range| {
            for bucket in &buckets[range] {
                // SAFETY: the buckets are disjoint.
                let [codes, other] = [&codes, &other].map(|words| unsafe { words.slice(bucket.start, bucket.len()) });
                // SAFETY: as above.
                let to = unsafe { to.slice(bucket.start, bucket.len()) };
                if codes.len() <= NETWORK {
                    sort_short(level, codes, to, codes.len(), |code| code, flip);
                } else {
                    // Many codes share their upper bits, and a radix sort skips the passes over digits that are equal in all of them.
                    let sorted = radix::sort([codes, other]);
                    for (to, &code) in to.iter_mut().zip(sorted) {
                        *to = T::from_code(code ^ flip);
                    }
                }
            }
        })
    })
}

/// Moves the codes of a row to buckets, and returns the ranges of the buckets in ascending order of their codes.
///
/// The prefix of a code is its distance from the smallest one without the low bits; codes with the same prefix share a bucket. Three passes over
/// the row: extrema, counts per prefix, and the move. Each thread has one part of the row, the same in all passes.
fn distribute<T: Key>(
    workers: &dyn Workers,
    x: &[T],
    flip: T::Code,
    codes: &mut [T::Code],
) -> Result<Vec<Range<usize>>> {
    let (parts, level) = (workers.count(), workers.simd());
    let part = |number: usize| x.len() * number / parts..x.len() * (number + 1) / parts;
    let mut extrema = vec![[0u32; 2]; parts];
    let table = Target::over(&mut extrema);
    workers.run(parts, &|number| {
        // SAFETY: each part has its own element.
        let extrema = unsafe { &mut table.slice(number, 1)[0] };
        *extrema = at(level, Extrema { x: &x[part(number)], flip });
    })?;
    let least = extrema.iter().map(|&[least, _]| least).min().unwrap_or(0);
    let most = extrema.iter().map(|&[_, most]| most).max().unwrap_or(0);
    // About 16 elements per prefix if codes are uniform, so that prefixes combine to buckets of similar length; at most 2^16 prefixes, whose
    // counters fit in the second-level cache.
    let bits = (x.len().ilog2() - 4).min(16);
    let shift = (32 - (most - least).leading_zeros()).saturating_sub(bits);
    let prefix = |code: T::Code| ((code.widen() - least) >> shift) as usize;
    let prefixes = ((most - least) >> shift) as usize + 1;

    let mut counts = vec![0u32; parts * prefixes];
    let table = Target::over(&mut counts);
    workers.run(parts, &|number| {
        // SAFETY: each part has its own counters.
        let counts = unsafe { table.slice(number * prefixes, prefixes) };
        let visit = |codes: &[T::Code]| codes.iter().for_each(|&code| counts[prefix(code)] += 1);
        at(level, EachCode { x: &x[part(number)], flip, visit });
    })?;

    // No bucket stays empty, which `sort_short` relies on: the first prefix has the smallest code, the last one the largest, and an empty bucket
    // takes the next prefix.
    let (mut bucket_of, mut buckets, mut last) = (vec![0u16; prefixes], Vec::new(), 0..0);
    for (prefix, bucket) in bucket_of.iter_mut().enumerate() {
        let total: usize = (0..parts).map(|part| counts[part * prefixes + prefix] as usize).sum();
        if last.len() + total > BUCKET && last.end > last.start {
            let start = last.end;
            buckets.push(std::mem::replace(&mut last, start..start));
        }
        last.end += total;
        *bucket = buckets.len() as u16;
    }
    buckets.push(last);

    let to = Target::over(codes);
    workers.run(parts, &|number| {
        // The codes of earlier parts come first in a bucket.
        let mut next: Vec<usize> = buckets.iter().map(|bucket| bucket.start).collect();
        for part in 0..number {
            for (&bucket, &count) in bucket_of.iter().zip(&counts[part * prefixes..][..prefixes]) {
                next[usize::from(bucket)] += count as usize;
            }
        }
        let visit = |codes: &[T::Code]| {
            // Two loops, because equal buckets load a counter that was just stored: the processor forwards that store without a stall only if it
            // knows the bucket early.
            let mut ids = [0; TOGETHER];
            for (id, &code) in ids.iter_mut().zip(codes) {
                *id = bucket_of[prefix(code)];
            }
            for (&id, &code) in ids.iter().zip(codes) {
                let next = &mut next[usize::from(id)];
                // SAFETY: every code has a distinct position: the parts start after the counts of earlier parts, and each part visits its
                // codes in this pass as often as it counted them.
                unsafe { to.slice(*next, 1)[0] = code };
                *next += 1;
            }
        };
        at(level, EachCode { x: &x[part(number)], flip, visit });
    })?;
    Ok(buckets)
}

/// Returns the smallest code and the largest.
struct Extrema<'a, T: Key> {
    x: &'a [T],
    flip: T::Code,
}

impl<T: Key> Work for Extrema<'_, T> {
    type Output = [u32; 2];

    #[inline(always)]
    fn run<V: Vector>(self) -> [u32; 2] {
        let (mut least, mut most) = (T::Code::MAX, T::Code::truncate(0));
        for &x in self.x {
            let code = x.code() ^ self.flip;
            (least, most) = (least.min(code), most.max(code));
        }
        [least.widen(), most.widen()]
    }
}

/// Calls `visit` with the codes of all elements, at most [`TOGETHER`] at a time.
struct EachCode<'a, T: Key, F> {
    x: &'a [T],
    flip: T::Code,
    visit: F,
}

/// Codes per batch. The compiler vectorizes the loop that computes them, but not one that also visits them.
const TOGETHER: usize = 64;

impl<T: Key, F: FnMut(&[T::Code])> Work for EachCode<'_, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(mut self) {
        let mut codes = [T::Code::MAX; TOGETHER];
        for x in self.x.chunks(TOGETHER) {
            for (code, x) in codes.iter_mut().zip(x) {
                *code = x.code() ^ self.flip;
            }
            (self.visit)(&codes[..x.len()]);
        }
    }
}
