//! Vectors of eight words, for loops that the compiler does not vectorize.

use half::f16;

/// Words per [`Vector`].
pub(super) const LANES: usize = 8;

/// Words holding numbers of one class. A mask has all bits set where true, none where false.
///
/// Everything is `#[inline(always)]`, so that it is compiled for the SIMD level of the loop. That does not hold for a
/// closure called by an iterator method.
pub(super) trait Words: Copy {
    fn splat(word: u32) -> Self;
    fn add_floats(self, other: Self) -> Self;
    /// Wrapping integer addition.
    fn add_integers(self, other: Self) -> Self;
    /// Compares floats; false if either is NaN.
    fn is_greater_float(self, other: Self) -> Self;
    fn is_nan(self) -> Self;
    /// Compares signed integers.
    fn is_greater_int(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// Selects `one` where the mask is true, `other` elsewhere.
    fn select(self, one: Self, other: Self) -> Self;
    /// Returns whether the mask is true in all lanes.
    fn is_all(self) -> bool;
}

/// [`LANES`] words.
pub(super) trait Vector: Words {
    fn load(from: &[u32; LANES]) -> Self;
    fn load_f16(from: &[u16; LANES]) -> Self;
    fn load_bf16(from: &[u16; LANES]) -> Self;
    fn words(self) -> [u32; LANES];

    /// Reduces all words with a commutative function.
    fn fold(self, join: impl Fn(Self, Self) -> Self) -> u32;
}

/// The storage format of elements.
pub(super) trait Stored {
    type Bits: bytemuck::Pod;

    /// Loads elements as words of their class.
    fn load<V: Vector>(from: &[Self::Bits; LANES]) -> V;

    /// Converts one element.
    fn word(from: Self::Bits) -> u32;
}

macro_rules! stored {
    ($($(#[$doc:meta])* $name:ident $bits:ty, $load:ident, |$from:ident| $word:expr;)*) => {
        $($(#[$doc])*
        pub(super) struct $name;

        impl Stored for $name {
            type Bits = $bits;

            #[inline(always)]
            fn load<V: Vector>(from: &[$bits; LANES]) -> V {
                V::$load(from)
            }

            #[inline(always)]
            fn word($from: $bits) -> u32 {
                $word
            }
        })*
    };
}

stored! {
    /// Words of any class.
    Whole u32, load, |from| from;
    F16 u16, load_f16, |from| f16::from_bits(from).to_f32().to_bits();
    Bf16 u16, load_bf16, |from| u32::from(from) << 16;
}

#[inline(always)]
fn truth(is_true: bool) -> u32 {
    if is_true { u32::MAX } else { 0 }
}

macro_rules! word_by_word {
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

impl<const N: usize> Words for [u32; N] {
    #[inline(always)]
    fn splat(word: u32) -> Self {
        [word; N]
    }

    word_by_word! {
        add_floats |a, b| (f32::from_bits(a) + f32::from_bits(b)).to_bits();
        add_integers |a, b| a.wrapping_add(b);
        is_greater_float |a, b| truth(f32::from_bits(a) > f32::from_bits(b));
        is_greater_int |a, b| truth(a as i32 > b as i32);
        or |a, b| a | b;
        xor |a, b| a ^ b;
    }

    #[inline(always)]
    fn is_nan(self) -> Self {
        self.map(|word| truth(f32::from_bits(word).is_nan()))
    }

    #[inline(always)]
    fn select(self, one: Self, other: Self) -> Self {
        std::array::from_fn(|lane| (self[lane] & one[lane]) | (!self[lane] & other[lane]))
    }

    #[inline(always)]
    fn is_all(self) -> bool {
        self.iter().fold(u32::MAX, |all, word| all & word) == u32::MAX
    }
}

impl Vector for [u32; LANES] {
    #[inline(always)]
    fn load(from: &[u32; LANES]) -> Self {
        *from
    }

    #[inline(always)]
    fn load_f16(from: &[u16; LANES]) -> Self {
        from.map(F16::word)
    }

    #[inline(always)]
    fn load_bf16(from: &[u16; LANES]) -> Self {
        from.map(Bf16::word)
    }

    #[inline(always)]
    fn words(self) -> [u32; LANES] {
        self
    }

    #[inline(always)]
    fn fold(self, join: impl Fn(Self, Self) -> Self) -> u32 {
        // A butterfly in the order of the AVX2 version, so that both select the same bits.
        [4, 2, 1].into_iter().fold(self, |words, step| join(words, std::array::from_fn(|lane| words[lane ^ step])))[0]
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use super::{LANES, Vector, Words};
    use std::arch::x86_64::*;

    /// Constructed only in loops compiled for a level with AVX2 and F16C.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2(__m256i);

    macro_rules! instructions {
        ($($name:ident |$a:ident, $b:ident| $value:expr;)*) => {
            $(#[inline(always)]
            fn $name(self, other: Self) -> Self {
                let ($a, $b) = (self.0, other.0);
                Self(unsafe { $value })
            })*
        };
    }

    // SAFETY, for all blocks: an `Avx2` is constructed only in loops whose callers checked that the processor
    // supports the instructions.
    #[expect(clippy::undocumented_unsafe_blocks, reason = "the comment above covers all blocks")]
    impl Words for Avx2 {
        #[inline(always)]
        fn splat(word: u32) -> Self {
            Self(unsafe { _mm256_set1_epi32(word as i32) })
        }

        instructions! {
            add_floats |a, b| _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
            add_integers |a, b| _mm256_add_epi32(a, b);
            is_greater_float |a, b| {
                _mm256_castps_si256(_mm256_cmp_ps::<_CMP_GT_OQ>(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)))
            };
            is_greater_int |a, b| _mm256_cmpgt_epi32(a, b);
            or |a, b| _mm256_or_si256(a, b);
            xor |a, b| _mm256_xor_si256(a, b);
        }

        #[inline(always)]
        fn is_nan(self) -> Self {
            unsafe {
                let numbers = _mm256_castsi256_ps(self.0);
                Self(_mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(numbers, numbers)))
            }
        }

        #[inline(always)]
        fn select(self, one: Self, other: Self) -> Self {
            // Selects by byte, which is the same as by lane: a mask has all or no bits of a lane set.
            Self(unsafe { _mm256_blendv_epi8(other.0, one.0, self.0) })
        }

        #[inline(always)]
        fn is_all(self) -> bool {
            unsafe { _mm256_movemask_epi8(self.0) == -1 }
        }
    }

    #[expect(clippy::undocumented_unsafe_blocks, reason = "the comment above covers all blocks")]
    impl Vector for Avx2 {
        #[inline(always)]
        fn load(from: &[u32; LANES]) -> Self {
            Self(unsafe { _mm256_loadu_si256(from.as_ptr().cast()) })
        }

        #[inline(always)]
        fn load_f16(from: &[u16; LANES]) -> Self {
            Self(unsafe { _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) })
        }

        #[inline(always)]
        fn load_bf16(from: &[u16; LANES]) -> Self {
            unsafe { Self(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast())))) }
        }

        #[inline(always)]
        fn words(self) -> [u32; LANES] {
            let mut words = [0; LANES];
            unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), self.0) };
            words
        }

        #[inline(always)]
        fn fold(self, join: impl Fn(Self, Self) -> Self) -> u32 {
            unsafe {
                // Swaps the 128-bit halves, then the pairs within them, then neighbours: distances 4, 2 and 1.
                let words = join(self, Self(_mm256_permute2x128_si256::<1>(self.0, self.0)));
                let words = join(words, Self(_mm256_shuffle_epi32::<0b0100_1110>(words.0)));
                let words = join(words, Self(_mm256_shuffle_epi32::<0b1011_0001>(words.0)));
                _mm256_cvtsi256_si32(words.0) as u32
            }
        }
    }
}
