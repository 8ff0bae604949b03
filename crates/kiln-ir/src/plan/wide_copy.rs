//! Copies of 64-bit elements as copies of words.
//!
//! A map over `I64` or `F64` is always a copy, because fused programs have no 64-bit arithmetic. Copied as pairs of
//! `u32` with an additional axis, they need no extra code on any device.

use super::space::simplify;
use crate::graph::TensorType;
use crate::kernel::{Body, Core, Kernel, Operand};
use crate::{DType, Layout, Shape};

impl Kernel {
    /// Returns a map over 64-bit elements as the same map over words; `None` for any other kernel.
    pub fn as_word_copy(&self) -> Option<Self> {
        if !self.output.dtype.is_wide() || !matches!(self.core, Core::Map) {
            return None;
        }
        let mut operands: Vec<Operand> = self.body.operands.iter().map(in_pairs).collect();
        let space = pairs_of(&self.body.space);
        let (space, _) = simplify(&space, space.rank(), &mut operands);
        Some(Self {
            name: self.name.clone(),
            core: Core::Map,
            body: Body { space, operands, program: self.body.program.clone() },
            output: TensorType { shape: pairs_of(&self.output.shape), dtype: DType::U32 },
        })
    }
}

fn pairs_of(shape: &Shape) -> Shape {
    shape.iter().copied().chain([2]).collect()
}

/// Reinterprets an operand as words, with an additional axis for the two halves of an element.
fn in_pairs(operand: &Operand) -> Operand {
    let layout = &operand.layout;
    let strides: Vec<isize> = layout.strides().iter().map(|stride| stride * 2).chain([1]).collect();
    Operand { dtype: DType::U32, layout: Layout::strided(pairs_of(layout.shape()), &strides, layout.offset() * 2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Instruction, Program};

    #[test]
    fn a_copy_of_wide_elements_is_a_copy_of_pairs_of_words() {
        let layout = Layout::contiguous(Shape::from((3, 4))).sliced(1, 1, 3, 1).permuted(&[1, 0]);
        let operands = vec![Operand { dtype: DType::I64, layout: layout.clone() }];
        let program = Program { instructions: vec![Instruction::Load { operand: 0 }] };
        let output = TensorType { shape: layout.shape().clone(), dtype: DType::I64 };
        let body = Body { space: layout.shape().clone(), operands, program };
        let kernel = Kernel { name: "copy".into(), core: Core::Map, body, output };
        let words = kernel.as_word_copy().unwrap();
        assert_eq!(words.output, TensorType { shape: Shape::from((3, 3, 2)), dtype: DType::U32 });
        let [operand] = &words.body.operands[..] else { panic!("one operand") };
        assert_eq!((operand.layout.strides(), operand.layout.offset()), (&[2, 8, 1][..], 2));
        assert!(words.as_word_copy().is_none(), "words are copied as they are");
    }
}
