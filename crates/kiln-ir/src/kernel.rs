//! Kernels as a plan asks for them: an optional core, and an elementwise program behind it.

use crate::gradient::{Expr, Gradients};
use crate::graph::{Reduce, TensorType};
use crate::host::HostCall;
use crate::op::{ElementOp, Signature};
use crate::wgsl::{WgslCall, WgslKernel};
use crate::{Class, DType, Error, ErrorKind, Layout, Result};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// A kernel that is not generated: shape rule, WGSL and optionally CPU code of one op. See the crate `kiln-kernels`.
pub trait KernelOp: Any + Debug + Send + Sync {
    /// The name in messages and reports.
    fn name(&self) -> &str;

    /// Everything but the inputs' types that makes it another op than one of the same name; floats as their bits.
    fn attributes(&self) -> SmallVec<[u64; 4]>;

    /// Shape and dtype of the result.
    ///
    /// # Errors
    /// `ShapeMismatch`, `InvalidArgument` or `Unsupported`, with the shapes and dtypes that were expected and found.
    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType>;

    /// Whether an operand may have this layout; what it refuses is copied before.
    fn takes(&self, operand: usize, layout: &Layout) -> bool {
        let _ = operand;
        layout.is_contiguous()
    }

    /// Whether elementwise ops behind it can be applied by the kernel itself. Then it computes in `f32`.
    fn fuses_epilogue(&self) -> bool {
        false
    }

    /// Whether its WGSL stores every dtype by itself, those that are packed into words too. Otherwise a result that the
    /// [target](crate::plan::Target::stores) does not store is stored in the dtype of its class, and converted after it.
    fn stores_any_dtype(&self) -> bool {
        false
    }

    /// Whether it takes operands of `I64` and `F64`. A kernel that computes in 32 bits must not.
    fn takes_wide(&self) -> bool {
        false
    }

    /// How far a result may be from the exact one before it is stored, where the operands have elements as large as `largest`.
    /// Kernels that move elements leave the default.
    fn bound(&self, inputs: &[TensorType], largest: &[f64]) -> f64 {
        let _ = (inputs, largest);
        0.0
    }

    /// What it makes of the gradient of its result, for each input. `None`: it has no gradient, and `backward` refuses it.
    fn gradient<'a>(&self, inputs: &[Expr<'a>], output: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let _ = (inputs, output, gradient);
        None
    }

    /// Arithmetic operations of one run, for reports. Kernels that move elements leave the default.
    fn flops(&self, inputs: &[TensorType]) -> u64 {
        let _ = inputs;
        0
    }

    /// Bytes of an operand that one run reads at most, for reports. Kernels that select elements by index read less than the default, all of it.
    fn read_bytes(&self, operand: usize, inputs: &[TensorType]) -> u64 {
        inputs[operand].bytes()
    }

    /// Whether [`run`](Self::run) has code for the CPU. Without it the CPU device compiles the [WGSL](Self::wgsl).
    fn has_host_code(&self) -> bool {
        false
    }

    /// Runs on the CPU, faster than the WGSL would.
    ///
    /// # Errors
    /// `Internal` where a thread panicked; `InvalidArgument` where an operand's elements are at fault (an index out of range).
    fn run(&self, call: &HostCall<'_>) -> Result<()> {
        let _ = call;
        Err(Error::new(ErrorKind::Internal, format!("`{}` expected code for the CPU, found none", self.name())))
    }

    /// The kernel in WGSL.
    ///
    /// # Errors
    /// `Unsupported` where there is none for such operands.
    fn wgsl(&self, call: &WgslCall<'_>) -> Result<WgslKernel>;
}

/// One kernel of a plan.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The ops in it, for reports and as the kernel's name: `mul_add_relu_sum`.
    pub name: String,
    /// What is computed first.
    pub core: Core,
    /// What is applied to each element of the core's result, or computes it alone. Its space is the output's shape.
    pub body: Body,
    /// Shape and dtype of what is stored, row by row without gaps.
    pub output: TensorType,
}

/// What a kernel computes before its elementwise program.
#[derive(Clone, Debug)]
pub enum Core {
    /// Nothing: the program alone.
    Map,
    /// A reduction over the last axes of `input`'s space. The axes before them are those of the output, in order, without those of length 1 that
    /// the reduction left.
    Reduce {
        /// How.
        op: Reduce,
        /// What is reduced, computed on the way.
        input: Body,
        /// How many of the first axes of `input.space` are kept.
        kept: usize,
    },
    /// A hand-written kernel.
    Op {
        /// The kernel.
        op: Arc<dyn KernelOp>,
        /// Its operands, each with the layout of its own shape.
        operands: Vec<Operand>,
    },
}

impl Core {
    /// What it reads.
    pub fn operands(&self) -> &[Operand] {
        match self {
            Self::Map => &[],
            Self::Reduce { input, .. } => &input.operands,
            Self::Op { operands, .. } => operands,
        }
    }

    /// How far a result may be from the exact one before it is stored, where the operands are loaded as they are and have elements as large
    /// as `largest`.
    pub fn bound(&self, largest: &[f64]) -> f64 {
        match self {
            Self::Map => 0.0,
            Self::Reduce { op, input, kept } => {
                let terms = input.space[*kept..].iter().product();
                op.bound(terms, largest.first().copied().unwrap_or(0.0))
            }
            Self::Op { op, operands } => op.bound(&operands.iter().map(Operand::ty).collect::<Vec<_>>(), largest),
        }
    }
}

/// An elementwise program over a space.
#[derive(Clone, Debug)]
pub struct Body {
    /// The lengths along the axes of the space.
    pub space: crate::Shape,
    /// What the program loads: layouts have the shape of the space.
    pub operands: Vec<Operand>,
    /// What is computed for each element.
    pub program: Program,
}

impl Body {
    /// The class of what an instruction of the program gives.
    pub fn class(&self, instruction: &Instruction) -> Class {
        match instruction {
            &Instruction::Load { operand } => self.operands[operand].dtype.class(),
            &Instruction::Scalar { class, .. } | &Instruction::Core { class } => class,
            Instruction::Iota => Class::Uint,
            Instruction::Cast { to, .. } => to.class(),
            Instruction::Op { op, class, .. } => match op.signature {
                Signature::Same { .. } | Signature::Select => *class,
                Signature::Compare | Signature::Bits { .. } => Class::Uint,
                Signature::BitsToFloat { .. } => Class::Float,
            },
        }
    }
}

/// What a kernel reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// What the elements are.
    pub dtype: DType,
    /// Where they are.
    pub layout: Layout,
}

impl Operand {
    /// Shape and dtype.
    pub fn ty(&self) -> TensorType {
        TensorType { shape: self.layout.shape().clone(), dtype: self.dtype }
    }
}

/// Instructions in order; the last one is the result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Each gives one value, which later ones name by its index.
    pub instructions: Vec<Instruction>,
}

/// One instruction: a value for each element of the space.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// The operand's element, in the class of its dtype.
    Load {
        /// Index among the operands of the body.
        operand: usize,
    },
    /// A number that a run brings.
    Scalar {
        /// Index among the scalars of the run.
        scalar: usize,
        /// What it is computed with.
        class: Class,
    },
    /// The number of the element in the space, row by row.
    Iota,
    /// The result of the core for this element.
    Core {
        /// What it is computed with.
        class: Class,
    },
    /// An elementwise op.
    Op {
        /// The op.
        op: &'static ElementOp,
        /// The class of its operands of variable dtype.
        class: Class,
        /// Indices of earlier instructions.
        args: SmallVec<[usize; 3]>,
    },
    /// A conversion as [`Op::Cast`](crate::graph::Op::Cast) says, and for `U8` the wrapping of a result of arithmetic.
    Cast {
        /// The value.
        arg: usize,
        /// From this class.
        from: Class,
        /// To the numbers that this dtype has, in its class.
        to: DType,
    },
}
