//! Buffers of kernels: declarations, loads and stores for each dtype.

use super::convert::{Conversions, type_name};
use crate::DType;

/// A buffer of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// The name of the WGSL variable.
    pub(super) variable: String,
    /// The suffix of its functions' names.
    pub(super) suffix: String,
    pub(super) dtype: DType,
    /// Whether `f16` is a native type; otherwise two are packed into a word.
    pub(super) native_half: bool,
    /// Whether the buffer is declared as groups of four elements, which are loaded and stored at once.
    pub(super) in_fours: bool,
}

/// How elements are packed into words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    /// Each element is a WGSL scalar.
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

    /// Returns whether its declaration uses the WGSL type `f16`.
    pub(super) fn uses_half(&self) -> bool {
        self.dtype == DType::F16 && self.packing() == Packing::None
    }

    /// Returns the element type of the array.
    fn item(&self) -> String {
        let scalar = if self.uses_half() { "f16" } else { type_name(self.dtype.class(), false) };
        match (self.packing(), self.in_fours) {
            (Packing::None, true) => format!("vec4<{scalar}>"),
            (Packing::None, false) => scalar.to_string(),
            (Packing::Pairs, true) => "vec2<u32>".to_string(),
            // Four bytes are one word, so they need no wider type.
            (Packing::Pairs, false) | (Packing::Fours, _) => "u32".to_string(),
        }
    }

    pub(super) fn declaration(&self, binding: usize, access: &str) -> String {
        let (variable, item) = (&self.variable, self.item());
        format!("@group(0) @binding({binding}) var<storage, {access}> {variable}: array<{item}>;\n")
    }

    /// Generates `load_K(i)`: the element at an index of the buffer.
    pub(super) fn load(&self, conversions: &mut Conversions) -> String {
        let Self { variable: x, suffix, dtype, .. } = self;
        let class = type_name(dtype.class(), false);
        // A buffer has one declaration, so an element of a buffer in fours is a component of its group.
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

    /// Generates `quad_K(q)`: the four elements from index `4q`. The buffer must be declared in groups of four.
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

    /// Generates `load4_K(i)`: the four elements from any index of the buffer.
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

    /// Generates the statement that stores `value` at index `i`. The dtype must not be packed, because two
    /// invocations cannot store parts of one word.
    pub(super) fn store(&self, index: &str, value: &str) -> String {
        let value = if self.uses_half() { format!("f16({value})") } else { value.to_string() };
        format!("{}[{index}] = {value};", self.variable)
    }

    /// Generates the statements that store the four elements of `value` from index `4q`. `value` is a variable name.
    pub(super) fn store_quad(&self, conversions: &mut Conversions, index: &str, value: &str) -> String {
        let x = &self.variable;
        match (self.packing(), self.in_fours) {
            (Packing::None, true) if self.uses_half() => format!("{x}[{index}] = vec4<f16>({value});"),
            (Packing::None, true) => format!("{x}[{index}] = {value};"),
            (Packing::None, false) => {
                let lane = |lane: usize| self.store(&format!("4u * {index} + {lane}u"), &format!("{value}[{lane}]"));
                (0..4).map(lane).collect::<Vec<_>>().join("\n    ")
            }
            // Whole words: one invocation writes all elements of a word, so no two invocations share one.
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
