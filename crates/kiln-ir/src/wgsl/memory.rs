//! Buffers of kernels: how the elements of a dtype are declared, loaded and stored.

use super::convert::{Conversions, type_name};
use crate::DType;

/// A buffer of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// The name of the variable.
    pub(super) variable: String,
    /// What ends the names of its functions.
    pub(super) suffix: String,
    pub(super) dtype: DType,
    /// Whether `f16` is a type of its own; otherwise two are in a word.
    pub(super) native_half: bool,
    /// Whether the buffer is declared as groups of four elements, which are then loaded and stored at once.
    pub(super) in_fours: bool,
}

/// How elements lie in words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// Each is a number of WGSL.
    None,
    Pairs,
    Fours,
}

impl Memory {
    fn packing(&self) -> Packing {
        match self.dtype {
            DType::F32 | DType::I32 | DType::U32 | DType::I64 | DType::F64 => Packing::None,
            DType::F16 if self.native_half => Packing::None,
            DType::F16 | DType::BF16 => Packing::Pairs,
            DType::I8 | DType::U8 | DType::Bool => Packing::Fours,
        }
    }

    /// Whether the WGSL type `f16` is in its declaration.
    pub(super) fn uses_half(&self) -> bool {
        self.dtype == DType::F16 && self.packing() == Packing::None
    }

    /// What the array consists of.
    fn item(&self) -> String {
        let scalar = if self.uses_half() { "f16" } else { type_name(self.dtype.class(), false) };
        match (self.packing(), self.in_fours) {
            (Packing::None, true) => format!("vec4<{scalar}>"),
            (Packing::None, false) => scalar.to_string(),
            (Packing::Pairs, true) => "vec2<u32>".to_string(),
            (Packing::Pairs, false) | (Packing::Fours, _) => "u32".to_string(),
        }
    }

    pub(super) fn declaration(&self, binding: usize, access: &str) -> String {
        let (variable, item) = (&self.variable, self.item());
        format!("@group(0) @binding({binding}) var<storage, {access}> {variable}: array<{item}>;\n")
    }

    /// `load_K(i)`: the element at an index of the buffer.
    pub(super) fn load(&self, conversions: &mut Conversions) -> String {
        let Self { variable: x, suffix, dtype, .. } = self;
        let class = type_name(dtype.class(), false);
        let word = match (self.packing(), self.in_fours) {
            (Packing::None, true) => format!("{x}[i >> 2u][i & 3u]"),
            (Packing::None, false) => format!("{x}[i]"),
            (Packing::Pairs, true) => format!("(({x}[i >> 2u][(i >> 1u) & 1u] >> ((i & 1u) * 16u)) & 0xffffu)"),
            (Packing::Pairs, false) => format!("(({x}[i >> 1u] >> ((i & 1u) * 16u)) & 0xffffu)"),
            (Packing::Fours, _) => format!("(({x}[i >> 2u] >> ((i & 3u) * 8u)) & 0xffu)"),
        };
        let element = match self.packing() {
            Packing::None if self.uses_half() => format!("f32({word})"),
            Packing::None => word,
            _ => conversions.unpack(*dtype, false, &word),
        };
        format!("fn load_{suffix}(i: u32) -> {class} {{\n    return {element};\n}}\n")
    }

    /// `quad_K(q)`: the elements from index `4q` on. The buffer must be in fours.
    pub(super) fn quad(&self, conversions: &mut Conversions) -> String {
        let Self { variable: x, suffix, dtype, .. } = self;
        let class = type_name(dtype.class(), true);
        let body = match self.packing() {
            Packing::None => format!("return {class}({x}[q]);"),
            Packing::Pairs => {
                let bits = "vec4<u32>(w.x & 0xffffu, w.x >> 16u, w.y & 0xffffu, w.y >> 16u)";
                format!("let w = {x}[q];\n    return {};", conversions.unpack(*dtype, true, bits))
            }
            Packing::Fours => {
                let bits = "((vec4<u32>(w) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu))";
                format!("let w = {x}[q];\n    return {};", conversions.unpack(*dtype, true, bits))
            }
        };
        format!("fn quad_{suffix}(q: u32) -> {class} {{\n    {body}\n}}\n")
    }

    /// `load4_K(i)`: the four elements from an index of the buffer on, wherever it is.
    pub(super) fn load4(&self) -> String {
        let (s, class) = (&self.suffix, type_name(self.dtype.class(), true));
        format!(
            "fn load4_{s}(i: u32) -> {class} {{
    if ((i & 3u) == 0u) {{
        return quad_{s}(i >> 2u);
    }}
    return {class}(load_{s}(i), load_{s}(i + 1u), load_{s}(i + 2u), load_{s}(i + 3u));
}}
"
        )
    }

    /// The statement that stores `value` at index `i`. Two invocations cannot store parts of one word, so the dtype must not be packed.
    pub(super) fn store(&self, index: &str, value: &str) -> String {
        let value = if self.uses_half() { format!("f16({value})") } else { value.to_string() };
        format!("{}[{index}] = {value};", self.variable)
    }

    /// The statements that store the four elements of `value` from index `4q` on. `value` is a name.
    pub(super) fn store_quad(&self, conversions: &mut Conversions, index: &str, value: &str) -> String {
        let x = &self.variable;
        match (self.packing(), self.in_fours) {
            (Packing::None, true) if self.uses_half() => format!("{x}[{index}] = vec4<f16>({value});"),
            (Packing::None, true) => format!("{x}[{index}] = {value};"),
            (Packing::None, false) => {
                let lane = |lane: usize| self.store(&format!("4u * {index} + {lane}u"), &format!("{value}[{lane}]"));
                (0..4).map(lane).collect::<Vec<_>>().join("\n    ")
            }
            (Packing::Pairs, _) => {
                let bits = conversions.pack(self.dtype, true, value);
                format!("let w = {bits};\n    {x}[{index}] = w.xz | (w.yw << vec2<u32>(16u));")
            }
            (Packing::Fours, _) => {
                let bits = conversions.pack(self.dtype, true, value);
                format!("let w = {bits};\n    {x}[{index}] = w.x | (w.y << 8u) | (w.z << 16u) | (w.w << 24u);")
            }
        }
    }

    pub(super) fn is_packed(&self) -> bool {
        self.packing() != Packing::None
    }
}
