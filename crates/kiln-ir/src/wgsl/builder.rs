//! The text common to all kernels: bindings, parameters, and the functions available to a kernel's author.

use super::body::{Calls, Writer};
use super::convert::type_name;
use super::frame::Frame;
use super::memory::Memory;
use super::{WgslArgument, WgslBinding, WgslCall, WgslFeatures, WgslGuarantees, WgslKernel};
use crate::graph::TensorType;
use crate::kernel::{Body, Instruction, Operand};
use crate::{Class, Layout};
use std::fmt::Write as _;

/// Collects the parameters of a kernel and generates the code around its author's source.
///
/// For operand `K` of the core, the source may call
/// - `load_K(i)`: the element at index `i` of the buffer, as `f32`, `i32` or `u32` whatever the dtype;
/// - `load4_K(i)`: the four elements from index `i` as a `vec4`, fastest if `i` is a multiple of 4;
/// - `quad_K(q)`: the four elements from index `4q`;
///
/// and to store an element of the result, by its row-major index,
/// - `finish(i, value)`: applies the fused epilogue and stores the element. The output's dtype must not be packed;
/// - `finish4(q, values)`: the same for the four elements from index `4q`, for any dtype. Elements past the end of
///   the output are stored into its padding.
///
/// Out-of-bounds loads return an unspecified value, and out-of-bounds stores have no visible effect. The buffers are
/// named `core0`, `body0` and so on, and `output`. A `param` is a function `p_NAME()`.
///
/// See [`KernelOp`](crate::KernelOp) for an example.
#[derive(Debug)]
pub struct WgslBuilder<'a> {
    features: WgslFeatures,
    operands: &'a [Operand],
    body: &'a Body,
    output: &'a TensorType,
    /// Names and types of the parameters so far.
    names: Vec<(String, Class)>,
    params: Vec<u32>,
    pub(super) calls: Calls,
    /// Additional functions of the kernel.
    pub(super) functions: String,
}

impl<'a> WgslCall<'a> {
    /// Creates a builder for the source.
    pub fn builder(&self) -> WgslBuilder<'a> {
        WgslBuilder::new(self.features, self.operands, self.body, self.output)
    }
}

impl<'a> WgslBuilder<'a> {
    pub(super) fn new(features: WgslFeatures, operands: &'a [Operand], body: &'a Body, output: &'a TensorType) -> Self {
        Self {
            features,
            operands,
            body,
            output,
            names: Vec::new(),
            params: Vec::new(),
            calls: Calls::default(),
            functions: String::new(),
        }
    }

    /// Adds a `u32` parameter, read as `p_NAME()`.
    pub fn param(&mut self, name: &str, value: u32) {
        self.names.push((name.to_string(), Class::Uint));
        self.params.push(value);
    }

    /// Adds an `i32` parameter, read as `p_NAME()`.
    pub fn param_i32(&mut self, name: &str, value: i32) {
        self.names.push((name.to_string(), Class::Int));
        self.params.push(value as u32);
    }

    /// Adds the offset, lengths and strides of a layout as `p_PREFIX_offset()`, `p_PREFIX_length0()` and
    /// `p_PREFIX_stride0()`, all `u32`. Indices are computed modulo 2^32, so negative strides need no special case.
    pub fn strides(&mut self, prefix: &str, layout: &Layout) {
        self.param(&format!("{prefix}_offset"), layout.offset() as u32);
        for (axis, (&length, &stride)) in layout.shape().iter().zip(layout.strides()).enumerate() {
            self.param(&format!("{prefix}_length{axis}"), length as u32);
            self.param(&format!("{prefix}_stride{axis}"), stride as u32);
        }
    }

    /// Returns the capabilities of the adapter.
    pub fn features(&self) -> WgslFeatures {
        self.features
    }

    /// Completes the kernel. `main` contains the entry point and everything it needs besides the functions above.
    pub fn finish(mut self, main: &str, workgroups: [u32; 3]) -> WgslKernel {
        // The author's source is not parsed, so calls are found by text: only functions that are called are generated.
        let (one, four) = (main.contains("finish("), main.contains("finish4("));
        let frame = Frame::whole(self.body, "body");
        if one || four {
            for (name, value) in frame.params() {
                self.param(&name, value);
            }
        }
        let mut output = self.memory("output".to_string(), "out", self.output.dtype);
        // A buffer has one declaration. If single elements are stored too, `finish4` stores four of them separately.
        output.in_fours = four && (!one || output.is_packed());
        let mut text = String::new();
        if one {
            text += &self.finish_function(&frame, &output, false);
        }
        if four {
            text += &self.finish_function(&frame, &output, true);
        }
        let mut memories = Vec::new();
        for (kind, operands) in [("", self.operands), ("b", &self.body.operands)] {
            for (index, operand) in operands.iter().enumerate() {
                let variable = format!("{}{index}", if kind.is_empty() { "core" } else { "body" });
                let memory = self.memory(variable, &format!("{kind}{index}"), operand.dtype);
                memories.push(memory);
            }
        }
        // After the epilogue: generating it recorded which load functions it calls.
        for memory in &mut memories {
            text += &self.load_functions(memory, main);
        }
        self.assemble(main, &text, &memories, &output, workgroups)
    }

    fn memory(&self, variable: String, suffix: &str, dtype: crate::DType) -> Memory {
        Memory { variable, suffix: suffix.to_string(), dtype, native_half: self.features.f16, in_fours: false }
    }

    /// Generates the load functions of a buffer that are called, which decide how the buffer is declared.
    fn load_functions(&mut self, memory: &mut Memory, main: &str) -> String {
        let calls = &mut self.calls;
        let called = |function: &str| {
            let name = format!("{function}_{}", memory.suffix);
            main.contains(&format!("{name}(")) || calls.loads.contains(&name)
        };
        let load4 = called("load4");
        // `load4` calls both.
        let (load, quad) = (called("load") || load4, called("quad") || load4);
        memory.in_fours = quad;
        let mut text = String::new();
        if load {
            text += &memory.load(&mut calls.conversions);
        }
        if quad {
            text += &memory.quad(&mut calls.conversions);
        }
        if load4 {
            text += &memory.load4();
        }
        text
    }

    /// Returns the class of the core's result.
    fn core_class(&self) -> Class {
        let core = self.body.program.instructions.iter().find_map(|instruction| match instruction {
            Instruction::Core { class } => Some(*class),
            _ => None,
        });
        core.unwrap_or(self.output.dtype.class())
    }

    fn finish_function(&mut self, frame: &Frame, output: &Memory, four: bool) -> String {
        let stored = Some(self.output.dtype);
        let writer = Writer { body: self.body, frame, operands: "b", four, number: "i", stored };
        let (statements, result, _) = writer.write(&mut self.calls);
        // An empty program means that there is no epilogue.
        let result = if self.body.program.instructions.is_empty() { "value".to_string() } else { result };
        let class = type_name(self.core_class(), four);
        if four {
            let store = output.store_quad(&mut self.calls.conversions, "q", &result);
            return format!(
                "fn finish4(q: u32, value: {class}) {{\n    let i = 4u * q;\n{statements}    {store}\n}}\n"
            );
        }
        format!("fn finish(i: u32, value: {class}) {{\n{statements}    {}\n}}\n", output.store("i", &result))
    }

    fn assemble(
        self,
        main: &str,
        functions: &str,
        memories: &[Memory],
        output: &Memory,
        workgroups: [u32; 3],
    ) -> WgslKernel {
        let mut text = String::new();
        let mut buffers = memories.iter().chain([output]);
        if self.features.f16 && (main.contains("f16") || buffers.any(Memory::uses_half)) {
            text += "enable f16;\n";
        }
        for (binding, memory) in memories.iter().enumerate() {
            text += &memory.declaration(binding, "read");
        }
        text += &output.declaration(memories.len(), "read_write");
        let mut arguments: Vec<WgslArgument> = (0..memories.len()).map(WgslArgument::Operand).collect();
        arguments.push(WgslArgument::Output);
        let words = self.params.len() + self.calls.scalars.len();
        if words > 0 {
            arguments.push(WgslArgument::Params);
            // Array elements in a uniform are 16 bytes apart, so four words share a `vec4`.
            let (binding, fours) = (memories.len() + 1, words.div_ceil(4));
            let _ = writeln!(text, "@group(0) @binding({binding}) var<uniform> params: array<vec4<u32>, {fours}>;");
        }
        let word = |index: usize| format!("params[{}].{}", index / 4, ["x", "y", "z", "w"][index % 4]);
        for (index, (name, class)) in self.names.iter().enumerate() {
            let (class, word) = (type_name(*class, false), word(index));
            let value = if class == "i32" { format!("bitcast<i32>({word})") } else { word };
            let _ = writeln!(text, "fn p_{name}() -> {class} {{ return {value}; }}");
        }
        for index in 0..self.calls.scalars.len() {
            let word = word(self.params.len() + index);
            let _ = writeln!(text, "fn s_{index}() -> u32 {{ return {word}; }}");
        }
        text += &self.calls.conversions.text();
        text += &self.calls.op_functions();
        text += functions;
        text += &self.functions;
        text += main.trim_matches('\n');
        text.push('\n');
        let bindings = (0..).zip(arguments).map(|(number, argument)| WgslBinding { number, argument, bytes: None });
        WgslKernel {
            source: text.into(),
            entry: None,
            constants: Vec::new(),
            bindings: bindings.collect(),
            params: self.params,
            scalars: self.calls.scalars,
            workgroups,
            zeroes_output: false,
            guarantees: WgslGuarantees { loops_end: true, workgroup_is_written: false },
        }
    }
}
