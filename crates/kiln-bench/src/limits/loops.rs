//! Loops that reach the machine's limits. They use AVX2 and FMA on x86-64 if available; elsewhere they are auto-vectorized.

use super::Pattern;
use memmap2::MmapMut;
use std::hint::black_box;

/// Number of independent accumulators: more than a processor has multiply-adds in flight.
const SUMS: usize = 12;
const LANES: usize = 8;

/// FLOPs of one round of [`multiply_add`].
pub(super) const FLOPS_PER_ROUND: usize = 2 * SUMS * LANES;

/// Runs multiply-adds in registers.
pub(super) fn multiply_add(rounds: usize) {
    #[cfg(target_arch = "x86_64")]
    if avx2::is_available() {
        // SAFETY: the processor has AVX2 and FMA.
        black_box(unsafe { avx2::multiply_add(rounds) });
        return;
    }
    black_box(plain_multiply_add(rounds));
}

fn plain_multiply_add(rounds: usize) -> [f32; SUMS * LANES] {
    // The sums converge to y / (1 - x) = 1, so no operation meets an infinity or a subnormal number, which may be slower.
    let (x, y) = (black_box(0.999_f32), black_box(0.001_f32));
    let mut sums = [1.0_f32; SUMS * LANES];
    for _ in 0..rounds {
        for sum in &mut sums {
            // Without an FMA instruction, `mul_add` calls a slow library function.
            *sum = if cfg!(target_arch = "aarch64") { sum.mul_add(x, y) } else { *sum * x + y };
        }
    }
    sums
}

/// The arrays of one thread; those that the pattern does not use are empty.
pub(super) struct Streams {
    from: [Array; 2],
    to: Array,
}

/// Elements in huge pages if available, as device buffers are. With ordinary pages, TLB misses dominate a pass over much memory, and the
/// result is not a limit.
enum Array {
    Map(MmapMut),
    /// Fallback if the system refuses to map memory.
    Heap(Vec<f32>),
}

impl Array {
    fn new(len: usize) -> Self {
        // A mapping cannot be empty.
        let Ok(map) = MmapMut::map_anon((len * size_of::<f32>()).max(size_of::<f32>())) else {
            return Self::Heap(vec![1.0; len]);
        };
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let mut array = Self::Map(map);
        array.elements_mut().fill(1.0);
        array
    }

    fn elements(&self) -> &[f32] {
        match self {
            Self::Map(map) => bytemuck::cast_slice(map),
            Self::Heap(elements) => elements,
        }
    }

    fn elements_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Map(map) => bytemuck::cast_slice_mut(map),
            Self::Heap(elements) => elements,
        }
    }
}

impl Streams {
    pub(super) fn new(len: usize, pattern: Pattern) -> Self {
        let array = |is_used: bool| Array::new(if is_used { len } else { 0 });
        Self { from: [array(true), array(pattern == Pattern::Triad)], to: array(pattern != Pattern::Read) }
    }

    /// Passes over the arrays once. Non-temporal stores avoid reading the destination, but leave nothing in the cache for the next pass.
    pub(super) fn pass(&mut self, pattern: Pattern, bypass_cache: bool) {
        // Arrays that the pattern does not use are empty, or one element long if they are mapped.
        let ([a, b], to) = (self.from.each_ref().map(Array::elements), self.to.elements_mut());
        #[cfg(target_arch = "x86_64")]
        if avx2::is_available() {
            // SAFETY: the processor has AVX2 and FMA.
            unsafe {
                match (pattern, bypass_cache) {
                    (Pattern::Read, _) => _ = black_box(avx2::read(a)),
                    (Pattern::Copy, false) => avx2::copy(a, to),
                    (Pattern::Triad, false) => avx2::triad(a, b, to),
                    (Pattern::Copy, true) => avx2::stream::<false>(a, a, to),
                    (Pattern::Triad, true) => avx2::stream::<true>(a, b, to),
                }
            }
            return;
        }
        let _ = bypass_cache;
        match pattern {
            Pattern::Read => _ = black_box(read(a)),
            Pattern::Copy => copy(a, to),
            Pattern::Triad => triad(a, b, to),
        }
    }
}

#[inline(always)]
fn read(from: &[f32]) -> [f32; 64] {
    let mut sums = [0.0; 64];
    for group in from.chunks_exact(64) {
        sums.iter_mut().zip(group).for_each(|(sum, value)| *sum += value);
    }
    sums
}

#[inline(always)]
fn copy(from: &[f32], to: &mut [f32]) {
    // Adding an opaque zero keeps this a loop: `memcpy` would choose its own strategy.
    let zero = black_box(0.0);
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from + zero);
}

#[inline(always)]
fn triad(a: &[f32], b: &[f32], to: &mut [f32]) {
    let factor = black_box(0.5);
    to.iter_mut().zip(a.iter().zip(b)).for_each(|(to, (a, b))| *to = a + factor * b);
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{LANES, SUMS};
    use std::arch::x86_64::{
        __m256, _mm_sfence, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps,
        _mm256_stream_ps,
    };
    use std::hint::black_box;

    pub(super) fn is_available() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn multiply_add(rounds: usize) -> [__m256; SUMS] {
        let (x, y) = (_mm256_set1_ps(black_box(0.999)), _mm256_set1_ps(black_box(0.001)));
        let mut sums = [y; SUMS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, x, y);
            }
        }
        sums
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn read(from: &[f32]) -> [__m256; 8] {
        let mut sums = [_mm256_setzero_ps(); 8];
        for group in from.chunks_exact(8 * LANES) {
            for (index, sum) in sums.iter_mut().enumerate() {
                // SAFETY: a group has eight elements for each sum.
                *sum = _mm256_add_ps(*sum, unsafe { _mm256_loadu_ps(group.as_ptr().add(index * LANES)) });
            }
        }
        sums
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn copy(from: &[f32], to: &mut [f32]) {
        super::copy(from, to);
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn triad(a: &[f32], b: &[f32], to: &mut [f32]) {
        super::triad(a, b, to);
    }

    /// Computes `to = a`, or `to = a + b` if `ADDS`, with non-temporal stores. The triad needs no factor: memory is the limit.
    #[target_feature(enable = "avx2,fma")]
    pub(super) fn stream<const ADDS: bool>(a: &[f32], b: &[f32], to: &mut [f32]) {
        // `_mm256_stream_ps` requires a destination aligned to 32 bytes.
        let skipped = to.as_ptr().align_offset(32);
        // The sources are not shifted by as much: only the number of bytes matters, not which elements are paired.
        let Some(to) = to.get_mut(skipped..) else { return };
        for (to, (a, b)) in to.chunks_exact_mut(LANES).zip(a.chunks_exact(LANES).zip(b.chunks_exact(LANES))) {
            // SAFETY: all three have eight elements; `to` begins at a multiple of 32 bytes.
            unsafe {
                let mut value = _mm256_loadu_ps(a.as_ptr());
                if ADDS {
                    value = _mm256_add_ps(value, _mm256_loadu_ps(b.as_ptr()));
                }
                _mm256_stream_ps(to.as_mut_ptr(), value);
            }
        }
        // Non-temporal stores are weakly ordered: Rust requires a fence before any other access to their memory.
        _mm_sfence();
    }
}
