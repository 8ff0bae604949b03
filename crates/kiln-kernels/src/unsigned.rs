//! Vectors of unsigned integers in 32 bytes, for sorting. Each implementation of [`Vector`](crate::matmul::vector::Vector) names those of its SIMD
//! level.

use std::ops::BitXor;

/// A vector of `u32` or `u16`.
///
/// # Safety
/// An implementation consists of exactly the bytes of its lanes, and every bit pattern is valid: the sorting network casts slices of words to
/// slices of vectors.
pub(crate) unsafe trait Unsigned: Copy {
    type Word: Word;

    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;

    /// Moves lane `i ^ MASK` to lane `i`. `MASK` is less than the number of lanes.
    fn permute<const MASK: usize>(self) -> Self;

    /// Takes the lanes whose index has the bit `BIT` from `other`. `BIT` is a power of two less than the
    /// number of lanes.
    fn blend<const BIT: usize>(self, other: Self) -> Self;
}

/// The type of a lane.
pub(crate) trait Word: Copy + Ord + bytemuck::Pod + BitXor<Output = Self> + Send + Sync {
    const MAX: Self;
    /// Takes the low bits.
    fn truncate(from: u32) -> Self;
    /// Zero-extends.
    fn widen(self) -> u32;
}

macro_rules! words {
    ($($word:ty),*) => {
        $(impl Word for $word {
            const MAX: Self = <$word>::MAX;

            #[inline(always)]
            fn truncate(from: u32) -> Self {
                from as Self
            }

            #[inline(always)]
            fn widen(self) -> u32 {
                self.into()
            }
        })*
    };
}

words!(u16, u32);

/// Loops over lanes that the compiler vectorizes.
// SAFETY: an array consists of its words, which have no invalid bits.
unsafe impl<W: Word, const LANES: usize> Unsigned for [W; LANES] {
    type Word = W;

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        std::array::from_fn(|lane| self[lane].min(other[lane]))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        std::array::from_fn(|lane| self[lane].max(other[lane]))
    }

    #[inline(always)]
    fn permute<const MASK: usize>(self) -> Self {
        std::array::from_fn(|lane| self[lane ^ MASK])
    }

    #[inline(always)]
    fn blend<const BIT: usize>(self, other: Self) -> Self {
        std::array::from_fn(|lane| if lane & BIT == 0 { self[lane] } else { other[lane] })
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2 {
    use super::Unsigned;
    use std::arch::x86_64::*;

    /// Swaps the 128-bit halves of a register.
    const SWAP_HALVES: i32 = 0b01_00_11_10;

    /// Eight `u32` in an AVX2 register, created only where the processor has AVX2.
    #[derive(Clone, Copy)]
    pub(crate) struct U32x8(__m256i);

    // SAFETY, for the trait: a register is its lanes, without invalid bits. For all blocks: the type exists only where the processor has AVX2.
    #[expect(clippy::undocumented_unsafe_blocks, reason = "the comment above is about every block")]
    unsafe impl Unsigned for U32x8 {
        type Word = u32;

        #[inline(always)]
        fn min(self, other: Self) -> Self {
            Self(unsafe { _mm256_min_epu32(self.0, other.0) })
        }

        #[inline(always)]
        fn max(self, other: Self) -> Self {
            Self(unsafe { _mm256_max_epu32(self.0, other.0) })
        }

        #[inline(always)]
        fn permute<const MASK: usize>(self) -> Self {
            let x = self.0;
            Self(unsafe {
                // Two bits select the source of each lane, the lowest lane last. Shuffles stay within 128-bit halves, so `MASK & 4` is a swap
                // of the halves.
                let x = match MASK & 3 {
                    1 => _mm256_shuffle_epi32::<0b10_11_00_01>(x),
                    2 => _mm256_shuffle_epi32::<0b01_00_11_10>(x),
                    3 => _mm256_shuffle_epi32::<0b00_01_10_11>(x),
                    _ => x,
                };
                if MASK & 4 == 0 { x } else { _mm256_permute4x64_epi64::<SWAP_HALVES>(x) }
            })
        }

        #[inline(always)]
        fn blend<const BIT: usize>(self, other: Self) -> Self {
            Self(unsafe {
                match BIT {
                    1 => _mm256_blend_epi32::<0b1010_1010>(self.0, other.0),
                    2 => _mm256_blend_epi32::<0b1100_1100>(self.0, other.0),
                    _ => _mm256_blend_epi32::<0b1111_0000>(self.0, other.0),
                }
            })
        }
    }

    /// Sixteen `u16` in an AVX2 register, created only where the processor has AVX2.
    #[derive(Clone, Copy)]
    pub(crate) struct U16x16(__m256i);

    // SAFETY, for the trait: a register is its lanes, without invalid bits. For all blocks: the type exists only where the processor has AVX2.
    #[expect(clippy::undocumented_unsafe_blocks, reason = "the comment above is about every block")]
    unsafe impl Unsigned for U16x16 {
        type Word = u16;

        #[inline(always)]
        fn min(self, other: Self) -> Self {
            Self(unsafe { _mm256_min_epu16(self.0, other.0) })
        }

        #[inline(always)]
        fn max(self, other: Self) -> Self {
            Self(unsafe { _mm256_max_epu16(self.0, other.0) })
        }

        #[inline(always)]
        fn permute<const MASK: usize>(self) -> Self {
            // The byte shuffle works within 128-bit halves, which hold eight lanes each.
            let bytes: [u8; 32] = std::array::from_fn(|byte| ((byte % 16) ^ ((MASK & 7) * 2)) as u8);
            Self(unsafe {
                let x = _mm256_shuffle_epi8(self.0, _mm256_loadu_si256(bytes.as_ptr().cast()));
                if MASK & 8 == 0 { x } else { _mm256_permute4x64_epi64::<SWAP_HALVES>(x) }
            })
        }

        #[inline(always)]
        fn blend<const BIT: usize>(self, other: Self) -> Self {
            Self(unsafe {
                match BIT {
                    // The mask applies to each 128-bit half. The remaining `BIT`, 8, selects the half itself.
                    1 => _mm256_blend_epi16::<0b1010_1010>(self.0, other.0),
                    2 => _mm256_blend_epi16::<0b1100_1100>(self.0, other.0),
                    4 => _mm256_blend_epi16::<0b1111_0000>(self.0, other.0),
                    _ => _mm256_blend_epi32::<0b1111_0000>(self.0, other.0),
                }
            })
        }
    }
}
