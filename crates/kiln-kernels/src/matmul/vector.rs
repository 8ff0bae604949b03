//! Eight `f32` at a time. Kernels are written once over [`Vector`] and compiled for each [level](SimdLevel) by [`at`].

use bytemuck::Pod;
use half::{bf16, f16};
use kiln_ir::SimdLevel;

/// How many `f32` a [`Vector`] holds.
pub(crate) const LANES: usize = 8;

/// Eight `f32`. Implementations differ in whether `mul_add` rounds once, so results of levels differ in the last bits.
pub(crate) trait Vector: Copy {
    fn splat(value: f32) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// The larger one; `other` where either is a NaN.
    fn max(self, other: Self) -> Self;
    /// `self * factor + addend`.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// Two to the power of the number in the low bits of each lane, the sum of 1.5 * 2^23 and a whole number from -127 to 127; 0 of -127.
    fn power_of_two(self) -> Self;
    fn lanes(self) -> [f32; LANES];

    /// # Safety
    /// Eight `f32` can be read.
    unsafe fn load(from: *const f32) -> Self;

    /// # Safety
    /// Eight half-precision floats can be read.
    unsafe fn load_f16(from: *const u16) -> Self;

    /// # Safety
    /// Eight upper halves of `f32` can be read.
    unsafe fn load_bf16(from: *const u16) -> Self;

    /// # Safety
    /// Eight `f32` can be written.
    unsafe fn store(self, to: *mut f32);

    /// Rows become columns.
    fn transpose(rows: [Self; LANES]) -> [Self; LANES];

    /// The sum of the lanes, in a fixed order.
    #[inline(always)]
    fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.lanes();
        ((a + e) + (b + f)) + ((c + g) + (d + h))
    }

    /// e to the power of numbers that are not positive, to 2 units in the last place; 0 where that is far below the normal numbers.
    #[inline(always)]
    fn exp(self) -> Self {
        const SHIFT: f32 = 12_582_912.0;
        // Less than -127 powers of two; a NaN stays.
        let x = Self::splat(-88.1).max(self);
        let shifted = x.mul_add(Self::splat(std::f32::consts::LOG2_E), Self::splat(SHIFT));
        let n = shifted.sub(Self::splat(SHIFT));
        // ln 2 in two parts, the first short enough that its product with n is exact.
        let r = n.mul_add(Self::splat(-0.693_359_4), x);
        let r = n.mul_add(Self::splat(2.121_944_4e-4), r);
        // The polynomial with the smallest relative error, 2e-9, for half of ln 2 on both sides of 0.
        let mut p = Self::splat(1.383_679_4e-3);
        for factor in [8.374_857e-3, 4.166_823e-2, 1.666_642e-1, 0.499_999_9, 1.0, 1.0] {
            p = p.mul_add(r, Self::splat(factor));
        }
        p.mul(shifted.power_of_two())
    }
}

/// A float as it is stored, which is computed with as `f32`.
pub(crate) trait Stored: Pod + Into<f32> + Send + Sync {
    /// # Safety
    /// Eight elements can be read.
    unsafe fn load_from<V: Vector>(from: *const Self) -> V;

    #[inline(always)]
    fn load<V: Vector>(from: &[Self; LANES]) -> V {
        // SAFETY: there are as many as a vector has.
        unsafe { Self::load_from(from.as_ptr()) }
    }
}

macro_rules! stored {
    ($($float:ty: $load:ident),*) => {
        $(impl Stored for $float {
            #[inline(always)]
            unsafe fn load_from<V: Vector>(from: *const Self) -> V {
                // SAFETY: as promised by the caller.
                unsafe { V::$load(from.cast()) }
            }
        })*
    };
}

stored!(f32: load, f16: load_f16, bf16: load_bf16);

/// Two to the power of numbers that are not positive, to 2 units in the last place; 0 where that is below the normal numbers.
#[inline(always)]
pub(crate) fn exp2<V: Vector>(x: V) -> V {
    const SHIFT: f32 = 12_582_912.0;
    // A NaN stays.
    let x = V::splat(-127.0).max(x);
    let shifted = x.add(V::splat(SHIFT));
    let r = x.sub(shifted.sub(V::splat(SHIFT)));
    // The polynomial with the smallest relative error, 9e-8, from -0.5 to 0.5; its factors are near those of the series.
    #[expect(
        clippy::approx_constant,
        reason = "not the natural logarithm of two, but the factor that gives the smallest error"
    )]
    const FACTORS: [f32; 5] = [9.671_513e-3, 5.550_733_6e-2, 0.240_222_42, 0.693_147, 1.0];
    let mut p = V::splat(1.326_472_7e-3);
    for factor in FACTORS {
        p = p.mul_add(r, V::splat(factor));
    }
    p.mul(shifted.power_of_two())
}

/// Work that is compiled for each level. `run` is `#[inline(always)]`, and so is what it calls, or it is not compiled for the level.
pub(crate) trait Work {
    type Output;
    fn run<V: Vector>(self) -> Self::Output;
}

/// Does the work with the instructions of a level, which the processor has: [`Workers::simd`](kiln_ir::host::Workers::simd) says so.
pub(crate) fn at<W: Work>(level: SimdLevel, work: W) -> W::Output {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the instructions of the level.
        SimdLevel::Avx2 | SimdLevel::Avx512 => unsafe { x86::run(work) },
        _ => work.run::<[f32; LANES]>(),
    }
}

/// Asks for memory that is read soon. It need not exist.
#[inline(always)]
pub(crate) fn prefetch<T>(from: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction, which does nothing where it cannot read.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

/// The value of the bits of a half-precision float, without a branch.
#[inline(always)]
pub(crate) fn widen_f16(bits: u16) -> f32 {
    const EXPONENT_SHIFT: f32 = f32::from_bits((127 + 127 - 15) << 23);
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // Infinities and NaNs have all exponent bits set; subnormal numbers are made normal by the multiplication.
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    let value = (f32::from_bits(magnitude) * EXPONENT_SHIFT).to_bits() | special;
    f32::from_bits(value | (u32::from(bits & 0x8000) << 16))
}

/// The value of the bits of a `bf16`.
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

/// Loops over lanes that the compiler makes vector instructions of.
impl Vector for [f32; LANES] {
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
        // Without an instruction for it, `f32::mul_add` is a slow function.
        if cfg!(target_arch = "aarch64") {
            std::array::from_fn(|lane| self[lane].mul_add(factor[lane], addend[lane]))
        } else {
            std::array::from_fn(|lane| self[lane] * factor[lane] + addend[lane])
        }
    }

    #[inline(always)]
    fn power_of_two(self) -> Self {
        self.map(|lane| f32::from_bits((lane.to_bits() << 23).wrapping_add(1f32.to_bits())))
    }

    #[inline(always)]
    fn lanes(self) -> [f32; LANES] {
        self
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { from.cast::<[u16; LANES]>().read_unaligned() }.map(widen_f16)
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: as promised by the caller.
        unsafe { from.cast::<[u16; LANES]>().read_unaligned() }.map(widen_bf16)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as promised by the caller.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        std::array::from_fn(|column| std::array::from_fn(|row| rows[row][column]))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LANES, Vector, Work};
    use std::arch::x86_64::*;

    /// # Safety
    /// The processor has AVX2, FMA and F16C.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn run<W: Work>(work: W) -> W::Output {
        work.run::<Avx2>()
    }

    /// Made only inside of [`run`].
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

    // SAFETY, for all of them: an `Avx2` exists only inside of `run`, whose caller knows that the processor has the instructions.
    #[expect(clippy::undocumented_unsafe_blocks, reason = "the comment above is about every block")]
    impl Vector for Avx2 {
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
        fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
            unsafe {
                let r = rows;
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
