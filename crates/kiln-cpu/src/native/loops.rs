//! Loops over tiles that are not table ops: conversions between dtypes and words, and casts.
//!
//! Each is written once as a plain loop and compiled for every SIMD level, so all levels produce the same bits.

use half::f16;
use half::slice::HalfFloatSliceExt;
use kiln_ir::op::TileLoop;
use kiln_ir::{Class, DType, SimdLevel, round_to_odd};

macro_rules! loops {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) $body:block)*) => {
        /// The loops of one SIMD level.
        ///
        /// # Safety
        /// The processor must support the level, and slices must have equal length.
        pub(crate) struct Loops {
            $($(#[$doc])* pub(crate) $name: unsafe fn($($ty),*),)*
            /// Converts `F16` to words.
            pub(crate) from_f16: unsafe fn(&[u16], &mut [u32]),
            /// Converts words to `F16`.
            pub(crate) to_f16: unsafe fn(&[u32], &mut [u16]),
        }

        /// The loops compiled for the baseline target, and inlined into those of each level.
        mod code {
            use super::{each, nearest_bf16, round_to_odd};

            $(#[inline(always)]
            pub(super) fn $name($($arg: $ty),*) $body)*
        }

        static PLAIN: Loops = Loops { $($name: code::$name,)* from_f16, to_f16 };

        #[cfg(target_arch = "x86_64")]
        static AVX2: Loops = Loops {
            $($name: {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn wide($($arg: $ty),*) {
                    code::$name($($arg),*);
                }
                wide
            },)*
            from_f16: f16c::from_f16,
            to_f16: f16c::to_f16,
        };
    };
}

loops! {
    /// Converts `BF16` to words.
    from_bf16(from: &[u16], to: &mut [u32]) { each(to, from, |x| u32::from(x) << 16) }
    /// Converts words to `BF16`, rounding to nearest, ties to even.
    to_bf16(from: &[u32], to: &mut [u16]) { each(to, from, |x| nearest_bf16(x) as u16) }
    /// Converts `U8` to words.
    from_u8(from: &[u8], to: &mut [u32]) { each(to, from, u32::from) }
    /// Converts `I8` to words.
    from_i8(from: &[u8], to: &mut [u32]) { each(to, from, |x| x as i8 as u32) }
    /// Converts words to `U8` or `I8`: the lowest byte.
    to_u8(from: &[u32], to: &mut [u8]) { each(to, from, |x| x as u8) }
    /// `f32` to `i32`.
    float_to_int(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| f32::from_bits(x) as i32 as u32) }
    /// `f32` to `u32`.
    float_to_uint(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| f32::from_bits(x) as u32) }
    /// `f32` to `U8`, saturating.
    float_to_u8(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| u32::from(f32::from_bits(x) as u8)) }
    /// `f32` to `I8`, saturating.
    float_to_i8(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| f32::from_bits(x) as i8 as u32) }
    /// `f32` to `Bool`: only zeros are false.
    float_to_bool(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| u32::from(x & 0x7fff_ffff != 0)) }
    /// `f32` to the nearest `BF16`.
    float_to_bf16(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| nearest_bf16(x) << 16) }
    /// `i32` to `f32`.
    int_to_float(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| (x as i32 as f32).to_bits()) }
    /// `u32` to `f32`.
    uint_to_float(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| (x as f32).to_bits()) }
    /// `i32` to the nearest `BF16`. Rounds to odd first, to avoid double rounding.
    int_to_bf16(out: &mut [u32], args: [&[u32]; 3]) {
        each(out, args[0], |x| nearest_bf16(round_to_odd::f32_of(f64::from(x as i32)).to_bits()) << 16);
    }
    /// `u32` to the nearest `BF16`, likewise.
    uint_to_bf16(out: &mut [u32], args: [&[u32]; 3]) {
        each(out, args[0], |x| nearest_bf16(round_to_odd::f32_of(f64::from(x)).to_bits()) << 16);
    }
    /// Zero-extends the lowest byte.
    wrap_u8(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| x & 0xff) }
    /// Sign-extends the lowest byte.
    wrap_i8(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| x as i8 as u32) }
    /// Integer to `Bool`: only 0 is false.
    integer_to_bool(out: &mut [u32], args: [&[u32]; 3]) { each(out, args[0], |x| u32::from(x != 0)) }
    /// Element indices from `start`.
    iota(out: &mut [u32], start: u32) { (start..).zip(out).for_each(|(number, out)| *out = number) }
}

#[inline(always)]
fn each<T: Copy, U>(to: &mut [U], from: &[T], value: impl Fn(T) -> U) {
    to.iter_mut().zip(from).for_each(|(to, &from)| *to = value(from));
}

/// Like [`bf16::from_f32`], in a form that the compiler vectorizes.
#[inline(always)]
fn nearest_bf16(bits: u32) -> u32 {
    let is_nan = bits & 0x7fff_ffff > 0x7f80_0000;
    // Half of the last kept bit, less one, plus that bit: ties go to even. A carry into the exponent is right, up to
    // infinity. It would turn some NaNs into zeros, so they are truncated; bit 0x40 keeps the mantissa nonzero.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if is_nan { bits >> 16 | 0x40 } else { rounded }
}

impl Loops {
    /// Returns the loops of a level. The caller has checked that the processor supports it.
    pub(crate) fn of(level: SimdLevel) -> &'static Self {
        match level {
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 | SimdLevel::Avx512 => &AVX2,
            // On other architectures the baseline target includes everything that the levels name.
            _ => &PLAIN,
        }
    }

    /// Returns the loops of a cast, in order; none if the bits are unchanged.
    pub(crate) fn cast(&self, from: Class, to: DType, level: SimdLevel) -> [Option<TileLoop>; 2] {
        let round_f16 = Some(round_f16(level));
        match (from, to) {
            (Class::Float, DType::F32) | (Class::Int | Class::Uint, DType::I32 | DType::U32) => [None, None],
            (Class::Float, DType::F16) => [round_f16, None],
            (Class::Float, DType::BF16) => [Some(self.float_to_bf16), None],
            (Class::Float, DType::I32) => [Some(self.float_to_int), None],
            (Class::Float, DType::U32) => [Some(self.float_to_uint), None],
            (Class::Float, DType::U8) => [Some(self.float_to_u8), None],
            (Class::Float, DType::I8) => [Some(self.float_to_i8), None],
            (Class::Float, DType::Bool) => [Some(self.float_to_bool), None],
            (Class::Int | Class::Uint, DType::U8) => [Some(self.wrap_u8), None],
            (Class::Int | Class::Uint, DType::I8) => [Some(self.wrap_i8), None],
            (Class::Int | Class::Uint, DType::Bool) => [Some(self.integer_to_bool), None],
            (Class::Int, DType::F32) => [Some(self.int_to_float), None],
            (Class::Uint, DType::F32) => [Some(self.uint_to_float), None],
            // Integers up to the largest `F16` are exact in `f32`.
            (Class::Int, DType::F16) => [Some(self.int_to_float), round_f16],
            (Class::Uint, DType::F16) => [Some(self.uint_to_float), round_f16],
            (Class::Int, DType::BF16) => [Some(self.int_to_bf16), None],
            (Class::Uint, DType::BF16) => [Some(self.uint_to_bf16), None],
            (Class::Wide, _) | (_, DType::I64 | DType::F64) => {
                unreachable!("64-bit elements are converted by separate kernels")
            }
        }
    }
}

/// Returns the loop that rounds `f32` to the nearest `F16`.
fn round_f16(level: SimdLevel) -> TileLoop {
    match level {
        #[cfg(target_arch = "x86_64")]
        SimdLevel::Avx2 | SimdLevel::Avx512 => f16c::round,
        _ => |out, args| each(out, args[0], |x| f16::from_f32(f32::from_bits(x)).to_f32().to_bits()),
    }
}

fn from_f16(from: &[u16], to: &mut [u32]) {
    let from: &[f16] = bytemuck::cast_slice(from);
    from.convert_to_f32_slice(bytemuck::cast_slice_mut(to));
}

fn to_f16(from: &[u32], to: &mut [u16]) {
    let to: &mut [f16] = bytemuck::cast_slice_mut(to);
    to.convert_from_f32_slice(bytemuck::cast_slice(from));
}

/// `F16` conversions with F16C instructions.
#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
        _mm256_loadu_ps, _mm256_storeu_ps,
    };

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn from_f16(from: &[u16], to: &mut [u32]) {
        let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<8>(), to.as_chunks_mut::<8>());
        for (from, to) in from.iter().zip(to) {
            // SAFETY: reads an array of eight halves, and writes an array of eight floats.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr().cast(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
        }
        super::from_f16(from_rest, to_rest);
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn to_f16(from: &[u32], to: &mut [u16]) {
        let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<8>(), to.as_chunks_mut::<8>());
        for (from, to) in from.iter().zip(to) {
            // SAFETY: reads an array of eight floats, and writes an array of eight halves.
            unsafe {
                let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr().cast()));
                _mm_storeu_si128(to.as_mut_ptr().cast(), halves);
            }
        }
        super::to_f16(from_rest, to_rest);
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn round(out: &mut [u32], args: [&[u32]; 3]) {
        let mut halves = [0; 64];
        for (out, from) in out.chunks_mut(halves.len()).zip(args[0].chunks(halves.len())) {
            let halves = &mut halves[..from.len()];
            to_f16(from, halves);
            from_f16(halves, out);
        }
    }
}
