//! Conversions as WGSL functions, in integer arithmetic where WGSL leaves the result implementation-defined.

use crate::{Class, DType};
use std::collections::BTreeSet;

/// The conversion functions. `{F}`, `{I}` and `{U}` stand for types, `{4}` for the suffix of the vec4 variant. NaN is
/// detected by its bits, because drivers may assume that a float equals itself.
const HELPERS: [&str; 10] = [
    // Rounds to nearest, ties to even. Below 2^-14 the result is subnormal: a multiple of 2^-24.
    "fn float_to_half{4}(x: {F}) -> {U} {
    let bits = bitcast<{U}>(x);
    let size = bits & {U}(0x7fffffffu);
    let normal = (size - {U}(0x38000000u) + {U}(0xfffu) + ((size >> {U}(13u)) & {U}(1u))) >> {U}(13u);
    let digits = (size & {U}(0x7fffffu)) | {U}(0x800000u);
    let shift = min({U}(126u) - min(size >> {U}(23u), {U}(112u)), {U}(25u));
    let subnormal = (digits + ({U}(1u) << (shift - {U}(1u))) - {U}(1u) + ((digits >> shift) & {U}(1u))) >> shift;
    let finite = select(normal, subnormal, size < {U}(0x38800000u));
    let large = select(finite, {U}(0x7c00u), size >= {U}(0x477ff000u));
    return ((bits >> {U}(16u)) & {U}(0x8000u)) | select(large, {U}(0x7e00u), size > {U}(0x7f800000u));
}
",
    // A subnormal half is a multiple of 2^-24, and the product is a normal `f32`, so it is exact on every driver.
    "fn half_to_float{4}(bits: {U}) -> {F} {
    let size = bits & {U}(0x7fffu);
    let normal = (size << {U}(13u)) + {U}(0x38000000u);
    let subnormal = bitcast<{U}>({F}(size) * {F}(5.9604644775390625e-8));
    let finite = select(normal, subnormal, size < {U}(0x400u));
    let large = select(finite, (size << {U}(13u)) | {U}(0x7f800000u), size >= {U}(0x7c00u));
    return bitcast<{F}>(large | ((bits & {U}(0x8000u)) << {U}(16u)));
}
",
    // Rounds to nearest, ties to even. NaN is truncated and made quiet, because the carry could turn it into a number.
    "fn float_to_brain{4}(x: {F}) -> {U} {
    let bits = bitcast<{U}>(x);
    let rounded = (bits + {U}(0x7fffu) + ((bits >> {U}(16u)) & {U}(1u))) >> {U}(16u);
    return select(rounded, (bits >> {U}(16u)) | {U}(0x40u), (bits & {U}(0x7fffffffu)) > {U}(0x7f800000u));
}
",
    // Converts only numbers in range: 2147483520 is the largest `f32` below 2^31. NaN, which `clamp` may change, is
    // tested afterwards.
    "fn float_to_int{4}(x: {F}) -> {I} {
    let inside = {I}(clamp(x, {F}(-2147483648.0), {F}(2147483520.0)));
    let clamped = select(inside, {I}(2147483647), x >= {F}(2147483648.0));
    return select(clamped, {I}(0), (bitcast<{U}>(x) & {U}(0x7fffffffu)) > {U}(0x7f800000u));
}
",
    // Likewise; 4294967040 is the largest `f32` below 2^32.
    "fn float_to_uint{4}(x: {F}) -> {U} {
    let inside = {U}(clamp(x, {F}(0.0), {F}(4294967040.0)));
    let clamped = select(inside, {U}(4294967295u), x >= {F}(4294967296.0));
    return select(clamped, {U}(0u), (bitcast<{U}>(x) & {U}(0x7fffffffu)) > {U}(0x7f800000u));
}
",
    "fn float_to_byte{4}(x: {F}) -> {U} {
    let inside = {U}(clamp(x, {F}(0.0), {F}(255.0)));
    return select(inside, {U}(0u), (bitcast<{U}>(x) & {U}(0x7fffffffu)) > {U}(0x7f800000u));
}
",
    "fn float_to_signed_byte{4}(x: {F}) -> {I} {
    let inside = {I}(clamp(x, {F}(-128.0), {F}(127.0)));
    return select(inside, {I}(0), (bitcast<{U}>(x) & {U}(0x7fffffffu)) > {U}(0x7f800000u));
}
",
    // Rounds to odd at the precision of `f32`: truncates and sets the lowest bit if inexact, so that a second
    // rounding knows on which side of a midpoint the exact value is.
    "fn cut_to_odd{4}(x: {U}) -> {U} {
    let cut = (x & {U}(0xffffff00u)) | select({U}(0u), {U}(0x100u), (x & {U}(0xffu)) != {U}(0u));
    return select(x, cut, x >= {U}(0x1000000u));
}
",
    "fn round_to_half{4}(x: {F}) -> {F} {
    return half_to_float{4}(float_to_half{4}(x));
}
",
    "fn round_to_brain{4}(x: {F}) -> {F} {
    return bitcast<{F}>(float_to_brain{4}(x) << {U}(16u));
}
",
];

fn name_of(helper: &str) -> &str {
    helper.trim_start_matches("fn ").split('{').next().unwrap_or_default()
}

/// The conversions that a kernel calls: indices into [`HELPERS`], and whether for four elements.
#[derive(Debug, Default)]
pub(super) struct Conversions(BTreeSet<(usize, bool)>);

impl Conversions {
    fn call(&mut self, helper: &str, four: bool, arg: &str) -> String {
        let text = HELPERS.iter().find(|text| name_of(text) == helper).expect("every helper is in the table");
        // The source contains the name of the function itself and of those it calls.
        let is_needed = |place: &usize| text.contains(&format!("{}{{4}}(", name_of(HELPERS[*place])));
        self.0.extend((0..HELPERS.len()).filter(is_needed).map(|place| (place, four)));
        format!("{helper}{}({arg})", if four { "4" } else { "" })
    }

    /// Renders the functions.
    pub(super) fn text(&self) -> String {
        let render = |&(helper, four): &(usize, bool)| {
            let types = [Class::Float, Class::Int, Class::Uint].map(|class| type_name(class, four));
            let text = HELPERS[helper].replace("{4}", if four { "4" } else { "" });
            text.replace("{F}", types[0]).replace("{I}", types[1]).replace("{U}", types[2])
        };
        self.0.iter().map(render).collect()
    }

    /// Casts a value of a class to a dtype; the result is in the dtype's class.
    pub(super) fn cast(&mut self, from: Class, to: DType, four: bool, arg: &str) -> String {
        let name = type_name(to.class(), four);
        match (from, to) {
            (Class::Float, DType::F32) | (Class::Int, DType::I32) | (Class::Uint, DType::U32) => arg.to_string(),
            (Class::Float, DType::F16) => self.call("round_to_half", four, arg),
            (Class::Float, DType::BF16) => self.call("round_to_brain", four, arg),
            (Class::Float, DType::I32) => self.call("float_to_int", four, arg),
            (Class::Float, DType::U32) => self.call("float_to_uint", four, arg),
            (Class::Float, DType::U8) => self.call("float_to_byte", four, arg),
            (Class::Float, DType::I8) => self.call("float_to_signed_byte", four, arg),
            // Tests the bits, which no driver rewrites: both zeros are false, every NaN is true.
            (Class::Float, DType::Bool) => {
                let (float, uint) = (type_name(Class::Float, four), type_name(Class::Uint, four));
                format!(
                    "select({uint}(0u), {uint}(1u), (bitcast<{uint}>({float}({arg})) & {uint}(0x7fffffffu)) != {uint}(0u))"
                )
            }
            (Class::Int | Class::Uint, DType::Bool) => {
                let (number, uint) = (type_name(from, four), type_name(Class::Uint, four));
                format!("select({uint}(0u), {uint}(1u), {arg} != {number}(0))")
            }
            (Class::Int | Class::Uint, DType::F32) => format!("{name}({arg})"),
            (Class::Int | Class::Uint, DType::F16 | DType::BF16) => {
                let float = self.cast_before_rounding(from, to, four, arg);
                self.cast(Class::Float, to, four, &float)
            }
            (Class::Int, DType::U32) | (Class::Uint, DType::I32) => format!("bitcast<{name}>({arg})"),
            (Class::Int, DType::U8) => format!("(bitcast<{name}>({arg}) & {name}(255u))"),
            (Class::Uint, DType::U8) => format!("({arg} & {name}(255u))"),
            (Class::Int | Class::Uint, DType::I8) => {
                let bits = if from == Class::Uint { arg.to_string() } else { bits_of(arg, four) };
                signed_byte(&bits, four)
            }
            (Class::Wide, _) | (_, DType::I64 | DType::F64) => {
                unreachable!("64-bit elements are converted by separate kernels")
            }
        }
    }

    /// Casts a value of a class to an `f32` that gives the correctly rounded result when it is then rounded to a
    /// float dtype.
    pub(super) fn cast_before_rounding(&mut self, from: Class, to: DType, four: bool, arg: &str) -> String {
        let name = type_name(Class::Float, four);
        match (from, to) {
            // `f32` cannot represent every integer: those with more bits are rounded to odd, which avoids double
            // rounding.
            (Class::Int, DType::BF16) => {
                let size = self.call("cut_to_odd", four, &bits_of(&format!("abs({arg})"), four));
                format!("({name}({size}) * sign({name}({arg})))")
            }
            (Class::Uint, DType::BF16) => format!("{name}({})", self.call("cut_to_odd", four, arg)),
            // Integers up to the largest `F16` are exact in `f32`.
            _ => self.cast(from, DType::F32, four, arg),
        }
    }

    /// Converts the bits of a dtype, in the low part of a `u32`, to a number.
    pub(super) fn unpack(&mut self, dtype: DType, four: bool, bits: &str) -> String {
        let (float, uint) = (type_name(Class::Float, four), type_name(Class::Uint, four));
        match dtype {
            DType::F16 => self.call("half_to_float", four, bits),
            DType::BF16 => format!("bitcast<{float}>({bits} << {uint}(16u))"),
            DType::I8 => signed_byte(bits, four),
            _ => bits.to_string(),
        }
    }

    /// Converts a number to the bits of a dtype, in the low part of a `u32`.
    pub(super) fn pack(&mut self, dtype: DType, four: bool, number: &str) -> String {
        match dtype {
            DType::F16 => self.call("float_to_half", four, number),
            DType::BF16 => self.call("float_to_brain", four, number),
            DType::I8 => format!("({} & {}(255u))", bits_of(number, four), type_name(Class::Uint, four)),
            _ => format!("({number} & {}(255u))", type_name(Class::Uint, four)),
        }
    }
}

fn bits_of(number: &str, four: bool) -> String {
    format!("bitcast<{}>({number})", type_name(Class::Uint, four))
}

/// Sign-extends the lowest byte.
fn signed_byte(bits: &str, four: bool) -> String {
    let (int, uint) = (type_name(Class::Int, four), type_name(Class::Uint, four));
    format!("(bitcast<{int}>({bits} << {uint}(24u)) >> {uint}(24u))")
}

/// Returns the WGSL type of a class, for one element or four. There is no type for four wide elements: no kernel
/// loads four of them at once.
pub(super) fn type_name(class: Class, four: bool) -> &'static str {
    match (class, four) {
        (Class::Float, false) => "f32",
        (Class::Int, false) => "i32",
        (Class::Uint, false) => "u32",
        (Class::Float, true) => "vec4<f32>",
        (Class::Int, true) => "vec4<i32>",
        (Class::Uint, true) => "vec4<u32>",
        (Class::Wide, _) => "vec2<u32>",
    }
}
