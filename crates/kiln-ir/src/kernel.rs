//! The kernels of a plan: an optional core op with a fused elementwise epilogue.

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

/// A hand-written kernel: shape inference, WGSL and optionally CPU code of one op. See the crate `kiln-kernels`.
///
/// ```
/// use kiln_ir::{KernelOp, Result, graph::TensorType, wgsl::WgslCall, wgsl::WgslKernel};
///
/// const MAIN: &str = "@compute @workgroup_size(1) fn double() { finish(0u, 2.0 * load_0(0u)); }";
/// #[derive(Debug)] struct Double; // of a scalar
/// impl KernelOp for Double {
///     fn name(&self) -> &str { "double" }
///     fn attributes(&self) -> smallvec::SmallVec<[u64; 4]> { smallvec::SmallVec::new() }
///     fn infer(&self, inputs: &[TensorType]) -> Result<TensorType> { Ok(inputs[0].clone()) }
///     fn wgsl(&self, call: &WgslCall<'_>) -> Result<WgslKernel> { Ok(call.builder().finish(MAIN, [1, 1, 1])) }
/// }
/// ```
pub trait KernelOp: Any + Debug + Send + Sync {
    /// Returns the name used in messages and reports.
    fn name(&self) -> &str;

    /// Returns the attributes that, with the name and the input types, identify the op; floats as their bits.
    fn attributes(&self) -> SmallVec<[u64; 4]>;

    /// Infers the shape and dtype of the result.
    ///
    /// # Errors
    /// Returns `ShapeMismatch`, `InvalidArgument` or `Unsupported`, with the shapes and dtypes that were expected and
    /// found.
    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType>;

    /// Returns whether an operand may have this layout; an operand with any other layout is made contiguous first.
    fn takes(&self, operand: usize, layout: &Layout) -> bool {
        let _ = operand;
        layout.is_contiguous()
    }

    /// Returns whether the kernel can apply a fused elementwise epilogue. If so, it computes in `f32`.
    fn fuses_epilogue(&self) -> bool {
        false
    }

    /// Returns whether its WGSL can store every dtype, including those packed into words. If not, a result that the
    /// [target](crate::plan::Target::stores) cannot store is stored in the dtype of its class and converted by a
    /// second kernel.
    fn stores_any_dtype(&self) -> bool {
        false
    }

    /// Returns whether it accepts `I64` and `F64` operands. A kernel that computes in 32 bits must not.
    fn takes_wide(&self) -> bool {
        false
    }

    /// Returns the maximum absolute error before the result is stored, for operands of magnitude at most `largest`.
    /// Kernels that only move elements keep the default.
    fn error_bound(&self, inputs: &[TensorType], largest: &[f64]) -> f64 {
        let _ = (inputs, largest);
        0.0
    }

    /// Returns the gradient of each input, given the gradient of the result. `None` means that the op has no
    /// gradient, and `backward` returns an error.
    fn gradient<'a>(&self, inputs: &[Expr<'a>], output: Expr<'a>, gradient: Expr<'a>) -> Option<Gradients<'a>> {
        let _ = (inputs, output, gradient);
        None
    }

    /// Returns the arithmetic operations of one run, for reports. Kernels that only move elements keep the default.
    fn flops(&self, inputs: &[TensorType]) -> u64 {
        let _ = inputs;
        0
    }

    /// Returns an upper bound of the bytes of an operand that one run reads, for reports. The default is the whole
    /// operand; kernels that select elements by index read less.
    fn read_bytes(&self, operand: usize, inputs: &[TensorType]) -> u64 {
        inputs[operand].bytes()
    }

    /// Returns whether [`run`](Self::run) is implemented. Otherwise the CPU device compiles the [WGSL](Self::wgsl).
    fn has_host_code(&self) -> bool {
        false
    }

    /// Runs on the CPU with native code, which is faster than its WGSL.
    ///
    /// # Errors
    /// Returns `Internal` if a thread panicked; `InvalidArgument` if an operand has invalid elements (an index out of
    /// range).
    fn run(&self, call: &HostCall<'_>) -> Result<()> {
        let _ = call;
        Err(Error::new(ErrorKind::Internal, format!("`{}` expected CPU code, found none", self.name())))
    }

    /// Generates the kernel in WGSL.
    ///
    /// # Errors
    /// Returns `Unsupported` if the kernel has no WGSL for these operands.
    fn wgsl(&self, call: &WgslCall<'_>) -> Result<WgslKernel>;
}

/// One kernel of a plan.
///
/// ```
/// use kiln_ir::kernel::{Body, Core, Instruction, Kernel, Operand, Program};
/// use kiln_ir::{Class, DType, Layout, Shape, op};
///
/// let x = Operand { dtype: DType::F32, layout: Layout::contiguous(Shape::new(&[6])) };
/// let output = x.ty();
/// let square = Instruction::Op { op: &op::MUL, class: Class::Float, args: [0, 0].into_iter().collect() };
/// let program = Program { instructions: vec![Instruction::Load { operand: 0 }, square] };
/// let body = Body { space: output.shape.clone(), operands: vec![x], program };
/// let kernel = Kernel { name: "square".to_string(), core: Core::Map, body, output };
/// assert_eq!(kernel.flops(), 6);
/// ```
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name composed of the fused ops, for reports: `mul_add_relu_sum`.
    pub name: String,
    /// The op computed first.
    pub core: Core,
    /// The epilogue applied to each element of the core's result, or the whole kernel for [`Core::Map`]. Its space is
    /// the output's shape.
    pub body: Body,
    /// Shape and dtype of the output, which is contiguous.
    pub output: TensorType,
}

/// The operation that a kernel computes before its elementwise epilogue.
///
/// See [`Kernel`] for an example.
#[derive(Clone, Debug)]
pub enum Core {
    /// No core: the kernel is an elementwise program.
    Map,
    /// A reduction over the last axes of `input`'s space. The leading axes are those of the output, in order, without
    /// the reduced axes of length 1.
    Reduce {
        /// The reduction.
        op: Reduce,
        /// The prologue: an elementwise program that computes the reduced values.
        input: Body,
        /// Number of leading axes of `input.space` that are kept.
        kept: usize,
    },
    /// A hand-written kernel.
    Op {
        /// The op.
        op: Arc<dyn KernelOp>,
        /// Its operands; each layout has the operand's own shape.
        operands: Vec<Operand>,
    },
}

impl Core {
    /// Returns the operands that the core reads.
    pub fn operands(&self) -> &[Operand] {
        match self {
            Self::Map => &[],
            Self::Reduce { input, .. } => &input.operands,
            Self::Op { operands, .. } => operands,
        }
    }

    /// Returns the maximum absolute error before the result is stored, for operands loaded unmodified, of magnitude
    /// at most `largest`.
    pub fn error_bound(&self, largest: &[f64]) -> f64 {
        match self {
            Self::Map => 0.0,
            Self::Reduce { op, input, kept } => {
                let terms = input.space[*kept..].iter().product();
                op.error_bound(terms, largest.first().copied().unwrap_or(0.0))
            }
            Self::Op { op, operands } => op.error_bound(&operands.iter().map(Operand::ty).collect::<Vec<_>>(), largest),
        }
    }
}

/// An elementwise program over an iteration space.
///
/// See [`Kernel`] for an example.
#[derive(Clone, Debug)]
pub struct Body {
    /// The shape of the iteration space.
    pub space: crate::Shape,
    /// The operands that the program loads; their layouts have the shape of the space.
    pub operands: Vec<Operand>,
    /// The program evaluated for each element.
    pub program: Program,
}

impl Body {
    /// Returns the class of an instruction's result.
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

/// A tensor that a kernel reads.
///
/// See [`Kernel`] for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// The element type.
    pub dtype: DType,
    /// The memory layout.
    pub layout: Layout,
}

impl Operand {
    /// Returns the shape and dtype.
    pub fn ty(&self) -> TensorType {
        TensorType { shape: self.layout.shape().clone(), dtype: self.dtype }
    }
}

/// A straight-line program; the last instruction is the result.
///
/// See [`Kernel`] for an example.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The instructions. Each produces one value, which later instructions refer to by index.
    pub instructions: Vec<Instruction>,
}

/// An instruction, evaluated for each element of the space.
///
/// See [`Kernel`] for an example.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// Loads an element of an operand, in the class of its dtype.
    Load {
        /// Index among the operands of the body.
        operand: usize,
    },
    /// A scalar argument of the run.
    Scalar {
        /// Index among the scalars of the run.
        scalar: usize,
        /// The class it is computed in.
        class: Class,
    },
    /// The row-major index of the element in the space.
    Iota,
    /// The result of the core for this element.
    Core {
        /// The class it is computed in.
        class: Class,
    },
    /// An elementwise op.
    Op {
        /// The op.
        op: &'static ElementOp,
        /// The class of the operands whose dtype is variable.
        class: Class,
        /// Indices of earlier instructions.
        args: SmallVec<[usize; 3]>,
    },
    /// A conversion as in [`Op::Cast`](crate::graph::Op::Cast). For `U8` it also wraps results of arithmetic.
    Cast {
        /// Index of the converted instruction.
        arg: usize,
        /// The source class.
        from: Class,
        /// The target dtype; the value is represented in its class.
        to: DType,
    },
}
