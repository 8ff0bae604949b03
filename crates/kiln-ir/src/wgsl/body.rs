//! Elementwise programs as WGSL statements.

use super::convert::{Conversions, type_name};
use super::frame::{Frame, VectorLoad};
use crate::kernel::{Body, Instruction};
use crate::op::ElementOp;
use crate::{Class, DType};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Functions and operands used by the programs of a kernel, collected during code generation.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) conversions: Conversions,
    ops: Vec<OpFunction>,
    /// Indices of the run's scalars, in the order of their words.
    pub(super) scalars: Vec<usize>,
    /// Called load functions: `load_b0`, `quad_1`.
    pub(super) loads: BTreeSet<String>,
}

/// The WGSL function of an op.
#[derive(Debug)]
struct OpFunction {
    op: &'static ElementOp,
    class: Class,
    four: bool,
    name: String,
}

impl Calls {
    pub(super) fn op_functions(&self) -> String {
        // An op without WGSL leaves its call undefined, which compilation reports by name.
        let texts = self.ops.iter().filter_map(|known| known.op.wgsl(known.class, &known.name, known.four));
        texts.map(|text| format!("{}\n", text.trim_end())).collect()
    }

    fn op(&mut self, op: &'static ElementOp, class: Class, four: bool) -> &str {
        let known = |known: &OpFunction| known.op == op && (known.class, known.four) == (class, four);
        let index = self.ops.iter().position(known).unwrap_or_else(|| {
            let name = self.op_name(op, class, four);
            self.ops.push(OpFunction { op, class, four, name });
            self.ops.len() - 1
        });
        &self.ops[index].name
    }

    /// Returns a unique function name: ops declared outside the table may have any name, even that of another op.
    fn op_name(&self, op: &ElementOp, class: Class, four: bool) -> String {
        let letter = match class {
            Class::Float => "f",
            Class::Int => "i",
            Class::Uint => "u",
            Class::Wide => "w",
        };
        let plain = op.name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        let mut name = format!("op_{plain}_{letter}{}", if four { "4" } else { "" });
        while self.ops.iter().any(|known| known.name == name) {
            name += "_";
        }
        name
    }

    fn scalar(&mut self, scalar: usize, class: Class) -> String {
        // Numbered by first use, so that the uniform has only the scalars of this kernel.
        let position = self.scalars.iter().position(|&known| known == scalar).unwrap_or_else(|| {
            self.scalars.push(scalar);
            self.scalars.len() - 1
        });
        match class {
            Class::Uint => format!("s_{position}()"),
            _ => format!("bitcast<{}>(s_{position}())", type_name(class, false)),
        }
    }

    fn load(&mut self, function: &str, suffix: &str, index: &str) -> String {
        let name = format!("{function}_{suffix}");
        let call = format!("{name}({index})");
        self.loads.insert(name);
        call
    }
}

/// Generates a program for one element or four.
pub(super) struct Writer<'a> {
    pub(super) body: &'a Body,
    pub(super) frame: &'a Frame,
    /// Prefix of the operands' function suffixes: empty, or `b`.
    pub(super) operands: &'static str,
    /// Whether four elements are computed at once.
    pub(super) four: bool,
    /// The WGSL expression of the element's index in the space, a `u32`.
    pub(super) number: &'static str,
    /// The dtype that the result is rounded to when it is stored.
    pub(super) stored: Option<DType>,
}

impl Writer<'_> {
    /// Returns the statements, and the name and class of the result.
    pub(super) fn write(&self, calls: &mut Calls) -> (String, String, Class) {
        let mut text = String::new();
        self.frame.coordinates(&mut text, if self.four { 4 } else { 1 });
        let instructions = &self.body.program.instructions;
        for (number, instruction) in instructions.iter().enumerate() {
            let value = self.instruction(calls, instruction, number + 1 == instructions.len());
            let class = type_name(self.body.class(instruction), self.four);
            let _ = writeln!(text, "    let v{number}: {class} = {value};");
        }
        let class = instructions.last().map_or(Class::Float, |last| self.body.class(last));
        (text, format!("v{}", instructions.len().saturating_sub(1)), class)
    }

    fn instruction(&self, calls: &mut Calls, instruction: &Instruction, is_last: bool) -> String {
        match instruction {
            &Instruction::Load { operand } => self.load(calls, operand),
            &Instruction::Scalar { scalar, class } => {
                let value = calls.scalar(scalar, class);
                if self.four { format!("{}({value})", type_name(class, true)) } else { value }
            }
            Instruction::Iota if self.four => format!("vec4<u32>({}) + vec4<u32>(0u, 1u, 2u, 3u)", self.number),
            Instruction::Iota => self.number.to_string(),
            // The parameter of `finish` and `finish4`.
            Instruction::Core { .. } => "value".to_string(),
            Instruction::Op { op, class, args } => {
                let args: Vec<String> = args.iter().map(|arg| format!("v{arg}")).collect();
                format!("{}({})", calls.op(op, *class, self.four), args.join(", "))
            }
            &Instruction::Cast { arg, from, to } => {
                let arg = format!("v{arg}");
                // The store rounds to this dtype anyway; rounding here too would repeat the work.
                if is_last && to.is_float() && self.stored == Some(to) {
                    return calls.conversions.cast_before_rounding(from, to, self.four, &arg);
                }
                calls.conversions.cast(from, to, self.four, &arg)
            }
        }
    }

    fn load(&self, calls: &mut Calls, operand: usize) -> String {
        let suffix = format!("{}{operand}", self.operands);
        let index = |lane: usize| self.frame.index(operand, lane);
        if !self.four {
            return calls.load("load", &suffix, &index(0));
        }
        let class = type_name(self.body.operands[operand].dtype.class(), true);
        match self.frame.four(operand) {
            VectorLoad::Aligned => calls.load("quad", &suffix, &format!("({}) >> 2u", index(0))),
            VectorLoad::Broadcast => format!("{class}({})", calls.load("load", &suffix, &index(0))),
            VectorLoad::Separate => {
                let lanes: Vec<String> = (0..4).map(|lane| calls.load("load", &suffix, &index(lane))).collect();
                format!("{class}({})", lanes.join(", "))
            }
        }
    }
}
