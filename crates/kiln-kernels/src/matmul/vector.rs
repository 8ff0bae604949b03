//! Vectors of eight `f32`. Kernels are written once over [`Vector`] and compiled for each [level](SimdLevel) by [`at`].

use crate::unsigned::Unsigned;
use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::SimdLevel;

/// Number of `f32` in a [`Vector`].
pub(crate) const LANES: usize = 8;

/// Eight `f32`. Implementations differ in whether `mul_add` is fused, so results differ between levels in the last bits.
pub(crate) trait Vector: Copy {
    type U32: Unsigned<Word = u32>;
    type U16: Unsigned<Word = u16>;

    fn splat(value: f32) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Returns the larger one; `other` if either is NaN.
    fn max(self, other: Self) -> Self;
    /// Returns `self * factor + addend`.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// Returns 2^n for lanes of the form 1.5 * 2^23 + n, where n is an integer from -127 to 127; 0 for n = -127.
    fn power_of_two(self) -> Self;
    fn lanes(self) -> [f32; LANES];

    /// # Safety
    /// Eight `f32` must be readable.
    unsafe fn load(from: *const f32) -> Self;

    /// # Safety
    /// Eight `f16` must be readable.
    unsafe fn load_f16(from: *const u16) -> Self;

    /// # Safety
    /// Eight `bf16` must be readable.
    unsafe fn load_bf16(from: *const u16) -> Self;

    /// # Safety
    /// Eight `f32` must be writable.
    unsafe fn store(self, to: *mut f32);

    /// Rounds to nearest, ties to even.
    ///
    /// # Safety
    /// Eight `f16` must be writable.
    unsafe fn store_f16(self, to: *mut u16);

    /// Transposes an 8 by 8 matrix.
    fn transpose(rows: [Self; LANES]) -> [Self; LANES];

    /// Returns the sum of the lanes, in a fixed order.
    #[inline(always)]
    fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.lanes();
        ((a + e) + (b + f)) + ((c + g) + (d + h))
    }

    /// Returns e^x for x <= 0, to 2 ULP; 0 if the result is far below the smallest normal number.
    #[inline(always)]
    fn exp(self) -> Self {
        // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits of the mantissa.
        const SHIFT: f32 = 12_582_912.0;
        // -88.1 is just below -127 * ln 2, which gives 0. `max` returns its second operand for NaN, so NaN stays NaN.
        let x = Self::splat(-88.1).max(self);
        // Cody-Waite range reduction: e^x = 2^n * e^r, where n is x / ln 2 rounded to an integer and r is the rest.
        let shifted = x.mul_add(Self::splat(std::f32::consts::LOG2_E), Self::splat(SHIFT));
        let n = shifted.sub(Self::splat(SHIFT));
        // ln 2 in two parts, the first short enough that its product with n is exact.
        let r = n.mul_add(Self::splat(-0.693_359_4), x);
        // The second part restores the digits of ln 2 that the first lacks.
        let r = n.mul_add(Self::splat(2.121_944_4e-4), r);
        // Minimax polynomial on [-ln 2 / 2, ln 2 / 2], with a relative error of 2e-9.
        let mut p = Self::splat(1.383_679_4e-3);
        for factor in [8.374_857e-3, 4.166_823e-2, 1.666_642e-1, 0.499_999_9, 1.0, 1.0] {
            p = p.mul_add(r, Self::splat(factor));
        }
        p.mul(shifted.power_of_two())
    }
}

/// A storage type of floats, computed with as `f32`.
pub(crate) trait Stored: Pod + Into<f32> + Send + Sync {
    /// # Safety
    /// Eight elements must be readable.
    unsafe fn load_from<V: Vector>(from: *const Self) -> V;

    /// Converts without branches or calls, so that loops vectorize.
    fn widen(self) -> f32;

    #[inline(always)]
    fn load<V: Vector>(from: &[Self; LANES]) -> V {
        // SAFETY: `from` has as many elements as a vector.
        unsafe { Self::load_from(from.as_ptr()) }
    }
}

macro_rules! stored {
    ($($float:ty: $load:ident, |$x:ident| $widened:expr;)*) => {
        $(impl Stored for $float {
            #[inline(always)]
            fn widen(self) -> f32 {
                let $x = self;
                $widened
            }

            #[inline(always)]
            unsafe fn load_from<V: Vector>(from: *const Self) -> V {
                // SAFETY: promised by the caller.
                unsafe { V::$load(from.cast()) }
            }
        })*
    };
}

stored! {
    f32: load, |x| x;
    f16: load_f16, |x| widen_f16(x.to_bits());
    bf16: load_bf16, |x| widen_bf16(x.to_bits());
}

/// Returns 2^x for x <= 0, to 2 ULP; 0 if the result is below the smallest normal number.
#[inline(always)]
pub(crate) fn exp2<V: Vector>(x: V) -> V {
    // As in `Vector::exp`: rounds to an integer in the low bits of the mantissa.
    const SHIFT: f32 = 12_582_912.0;
    // `max` returns its second operand for NaN, so NaN stays NaN.
    let x = V::splat(-127.0).max(x);
    let shifted = x.add(V::splat(SHIFT));
    // Exact, because x and the integer nearest to it are close enough that their difference needs no rounding.
    let r = x.sub(shifted.sub(V::splat(SHIFT)));
    // Minimax polynomial on [-0.5, 0.5], with a relative error of 9e-8. Its coefficients are close to those of the Taylor series.
    #[expect(clippy::approx_constant, reason = "a coefficient chosen for the smallest error, not ln 2")]
    const FACTORS: [f32; 5] = [9.671_513e-3, 5.550_733_6e-2, 0.240_222_42, 0.693_147, 1.0];
    let mut p = V::splat(1.326_472_7e-3);
    for factor in FACTORS {
        p = p.mul_add(r, V::splat(factor));
    }
    p.mul(shifted.power_of_two())
}

/// Work that is compiled for each level. `run` and everything it calls must be `#[inline(always)]`; otherwise they are not compiled for the level.
pub(crate) trait Work {
    type Output;
    fn run<V: Vector>(self) -> Self::Output;
}

/// Runs work with the instructions of a level. The processor must support it, as [`Workers::simd`](kiln_ir::host::Workers::simd) reports.
pub(crate) fn at<W: Work>(level: SimdLevel, work: W) -> W::Output {
    match level {
        // Vectors have eight lanes on every level, so AVX-512 runs the same code.
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the instructions of the level.
        SimdLevel::Avx2 | SimdLevel::Avx512 => unsafe { x86::run(work) },
        _ => work.run::<[f32; LANES]>(),
    }
}

/// Prefetches memory that is read soon. The address need not be valid.
#[inline(always)]
pub(crate) fn prefetch<T>(from: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, and it does not fault on invalid addresses.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// Converts the bits of an `f16` to `f32` without branches.
#[inline(always)]
pub(crate) fn widen_f16(bits: u16) -> f32 {
    // 2^112: from an exponent bias of 15 to one of 127.
    const EXPONENT_SHIFT: f32 = f32::from_bits((127 + 127 - 15) << 23);
    // The bits of a subnormal `f16` are a subnormal `f32` here. Their product below is exact, because Rust code runs without flushing subnormal
    // numbers to 0.
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // Infinities and NaNs have all exponent bits set; the multiplication normalizes subnormal numbers.
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    let value = (f32::from_bits(magnitude) * EXPONENT_SHIFT).to_bits() | special;
    f32::from_bits(value | (u32::from(bits & 0x8000) << 16))
}

/// Converts the bits of a `bf16` to `f32`.
#[inline(always)]
pub(crate) fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

macro_rules! lane_by_lane {
    ($($name:ident |$a:ident, $b:ident| $value:expr;)*) => {
        $(#[inline(always)]
        fn $name(self, other: Self) -> Self {
            std::array::from_fn(|lane| {
                let ($a, $b) = (self[lane], other[lane]);
                $value
            })
        })*
    };
}

/// Loops over lanes that the compiler vectorizes.
impl Vector for [f32; LANES] {
    type U32 = [u32; LANES];
    type U16 = [u16; 2 * LANES];

    #[inline(always)]
    fn splat(value: f32) -> Self {
        [value; LANES]
    }

    lane_by_lane! {
        add |a, b| a + b;
        sub |a, b| a - b;
        mul |a, b| a * b;
        max |a, b| if a > b { a } else { b };
    }

    #[inline(always)]
    fn mul_add(self, factor: Self, addend: Self) -> Self {
        // Without an FMA instruction, `f32::mul_add` is a slow library call.
        if cfg!(target_arch = "aarch64") {
            std::array::from_fn(|lane| self[lane].mul_add(factor[lane], addend[lane]))
        } else {
            std::array::from_fn(|lane| self[lane] * factor[lane] + addend[lane])
        }
    }

    #[inline(always)]
    fn power_of_two(self) -> Self {
        // Moves n to the exponent field and adds the bias of 1.0; the higher bits are shifted out.
        self.map(|lane| f32::from_bits((lane.to_bits() << 23).wrapping_add(1f32.to_bits())))
    }

    #[inline(always)]
    fn lanes(self) -> [f32; LANES] {
        self
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: promised by the caller.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        // SAFETY: promised by the caller.
        unsafe { from.cast::<[u16; LANES]>().read_unaligned() }.map(widen_f16)
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: promised by the caller.
        unsafe { from.cast::<[u16; LANES]>().read_unaligned() }.map(widen_bf16)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: promised by the caller.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, to: *mut u16) {
        let halves = self.map(|lane| f16::from_f32(lane).to_bits());
        // SAFETY: promised by the caller.
        unsafe { to.cast::<[u16; LANES]>().write_unaligned(halves) }
    }

    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        std::array::from_fn(|column| std::array::from_fn(|row| rows[row][column]))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LANES, Vector, Work};
    use crate::unsigned::avx2;
    use std::arch::x86_64::*;

    /// # Safety
    /// The processor must have AVX2, FMA and F16C.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn run<W: Work>(work: W) -> W::Output {
        work.run::<Avx2>()
    }

    /// Eight lanes in an AVX register, created only within [`run`].
    #[derive(Clone, Copy)]
    struct Avx2(__m256);

    macro_rules! instructions {
        ($($name:ident $instruction:ident),*) => {
            $(#[inline(always)]
            fn $name(self, other: Self) -> Self {
                Self(unsafe { $instruction(self.0, other.0) })
            })*
        };
    }

    // SAFETY, for all of them: an `Avx2` exists only within `run`, whose caller knows that the processor has the instructions.
    #[expect(clippy::undocumented_unsafe_blocks, reason = "the comment above covers all blocks")]
    impl Vector for Avx2 {
        type U32 = avx2::U32x8;
        type U16 = avx2::U16x16;

        #[inline(always)]
        fn splat(value: f32) -> Self {
            Self(unsafe { _mm256_set1_ps(value) })
        }

        instructions!(add _mm256_add_ps, sub _mm256_sub_ps, mul _mm256_mul_ps, max _mm256_max_ps);

        #[inline(always)]
        fn mul_add(self, factor: Self, addend: Self) -> Self {
            Self(unsafe { _mm256_fmadd_ps(self.0, factor.0, addend.0) })
        }

        #[inline(always)]
        fn power_of_two(self) -> Self {
            unsafe {
                let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(self.0));
                let one = _mm256_castps_si256(_mm256_set1_ps(1.0));
                Self(_mm256_castsi256_ps(_mm256_add_epi32(exponent, one)))
            }
        }

        #[inline(always)]
        fn lanes(self) -> [f32; LANES] {
            let mut lanes = [0.0; LANES];
            unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), self.0) };
            lanes
        }

        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            Self(unsafe { _mm256_loadu_ps(from) })
        }

        #[inline(always)]
        unsafe fn load_f16(from: *const u16) -> Self {
            Self(unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) })
        }

        #[inline(always)]
        unsafe fn load_bf16(from: *const u16) -> Self {
            unsafe {
                let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits)))
            }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            unsafe { _mm256_storeu_ps(to, self.0) }
        }

        #[inline(always)]
        unsafe fn store_f16(self, to: *mut u16) {
            unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) }
        }

        #[inline(always)]
        fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
            unsafe {
                let r = rows;
                // Interleaves pairs of rows, then pairs of pairs. That leaves four rows of a column in each 128-bit half. The last step joins
                // halves: 0x20 the low ones (columns 0 to 3), 0x31 the high ones (columns 4 to 7).
                let pairs = [
                    _mm256_unpacklo_ps(r[0].0, r[1].0),
                    _mm256_unpackhi_ps(r[0].0, r[1].0),
                    _mm256_unpacklo_ps(r[2].0, r[3].0),
                    _mm256_unpackhi_ps(r[2].0, r[3].0),
                    _mm256_unpacklo_ps(r[4].0, r[5].0),
                    _mm256_unpackhi_ps(r[4].0, r[5].0),
                    _mm256_unpacklo_ps(r[6].0, r[7].0),
                    _mm256_unpackhi_ps(r[6].0, r[7].0),
                ];
                let fours = [
                    _mm256_shuffle_ps::<0x44>(pairs[0], pairs[2]),
                    _mm256_shuffle_ps::<0xee>(pairs[0], pairs[2]),
                    _mm256_shuffle_ps::<0x44>(pairs[1], pairs[3]),
                    _mm256_shuffle_ps::<0xee>(pairs[1], pairs[3]),
                    _mm256_shuffle_ps::<0x44>(pairs[4], pairs[6]),
                    _mm256_shuffle_ps::<0xee>(pairs[4], pairs[6]),
                    _mm256_shuffle_ps::<0x44>(pairs[5], pairs[7]),
                    _mm256_shuffle_ps::<0xee>(pairs[5], pairs[7]),
                ];
                [
                    Self(_mm256_permute2f128_ps::<0x20>(fours[0], fours[4])),
                    Self(_mm256_permute2f128_ps::<0x20>(fours[1], fours[5])),
                    Self(_mm256_permute2f128_ps::<0x20>(fours[2], fours[6])),
                    Self(_mm256_permute2f128_ps::<0x20>(fours[3], fours[7])),
                    Self(_mm256_permute2f128_ps::<0x31>(fours[0], fours[4])),
                    Self(_mm256_permute2f128_ps::<0x31>(fours[1], fours[5])),
                    Self(_mm256_permute2f128_ps::<0x31>(fours[2], fours[6])),
                    Self(_mm256_permute2f128_ps::<0x31>(fours[3], fours[7])),
                ]
            }
        }
    }
}
