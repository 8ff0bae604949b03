//! User-defined ops in WGSL.

use super::Tensor;
use super::autograd::GradientRule;
use super::check::{self, invalid, names};
use crate::{DType, Device, Error, Result};
use kiln_device::{BindingKind, Grid, Kernel, KernelSource, Scalar};
use kiln_ir::KernelOp;
use kiln_ir::graph::TensorType;
use kiln_ir::wgsl::{WgslArgument, WgslBinding, WgslCall, WgslGuarantees, WgslKernel};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A user-defined op with a WGSL kernel. It is lazy like every op, takes part in planning, autograd and verification,
/// and runs on a GPU and on the CPU device, which compiles the same source.
///
/// The kernel's `var<storage, read>` bindings are the inputs, in the order of their `@binding` numbers, and its one
/// `var<storage, read_write>` binding is the output. All are in group 0 and hold contiguous row-major elements:
/// `f32`, `f16`, `i32` and `u32` as themselves, `bf16`, `u8` and also `f16` packed into `u32` words. `arrayLength` is
/// the number of elements, rounded up to whole four-byte words; an empty input looks like one element. Inputs with
/// another layout are copied first. Elementwise ops before and after it fuse with each other, but not with it.
///
/// The [sanitizer](crate::Device::sanitized) checks it, and [`Tensor::eval_checked`] compares it on two devices.
///
#[cfg_attr(feature = "wgsl", doc = "```")]
#[cfg_attr(not(feature = "wgsl"), doc = "```no_run")]
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::Tensor;
/// use kiln::kernel::WgslOp;
///
/// let cube = WgslOp::new("cube", "
///     @group(0) @binding(0) var<storage, read> x: array<f32>;
///     @group(0) @binding(1) var<storage, read_write> y: array<f32>;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if (id.x < arrayLength(&y)) { y[id.x] = x[id.x] * x[id.x] * x[id.x]; }
///     }")
///     .gradient(|inputs, _, gradient| Ok(vec![Some(inputs[0].square()?.mul_scalar(3.0)?.mul(gradient)?)]));
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0], 2, &device)?.requires_grad()?;
/// let y = cube.call(&[&x])?.add_scalar(1.0)?;
/// assert_eq!(y.to_vec::<f32>()?, [2.0, 9.0]);
/// y.sum_all()?.backward()?;
/// assert_eq!(x.grad().expect("it was computed").to_vec::<f32>()?, [3.0, 12.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct WgslOp {
    name: Arc<str>,
    source: Arc<str>,
    entry: Option<String>,
    constants: BTreeMap<String, f64>,
    output: Arc<OutputRule>,
    constants_rule: Option<Arc<ConstantsRule>>,
    params: Option<Arc<ParamsRule>>,
    grid: Arc<GridRule>,
    gradient: Option<Arc<GradientRule>>,
    zeroes_output: bool,
    tolerance: f64,
}

type OutputRule = dyn Fn(&[TensorType]) -> Result<TensorType> + Send + Sync;
type ConstantsRule = dyn Fn(&[TensorType]) -> Vec<(String, f64)> + Send + Sync;
type ParamsRule = dyn Fn(&[TensorType], &TensorType) -> Vec<u32> + Send + Sync;
type GridRule = dyn Fn(&[TensorType], &TensorType) -> Grid + Send + Sync;

/// The default relative tolerance of [`Tensor::eval_checked`]: a dozen consecutive roundings to `f32`.
const DEFAULT_TOLERANCE: f64 = 1e-6;

impl WgslOp {
    /// Creates an op with this name in reports and errors. By default its output has the type of the first input, and
    /// one invocation runs per output element; the methods below change that.
    ///
    /// See [`WgslOp`] for an example.
    pub fn new(name: &str, source: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            source: source.into(),
            entry: None,
            constants: BTreeMap::new(),
            output: Arc::new(|inputs| Ok(inputs[0].clone())),
            constants_rule: None,
            params: None,
            grid: Arc::new(|_, output| Grid::over(output.shape.elem_count())),
            gradient: None,
            zeroes_output: false,
            tolerance: DEFAULT_TOLERANCE,
        }
    }

    /// Sets the entry point. Not needed if the source has only one.
    ///
    /// See [`WgslOp`] for an example.
    pub fn entry(mut self, entry: &str) -> Self {
        self.entry = Some(entry.to_string());
        self
    }

    /// Sets the rule for shape and dtype of the output. Its errors are returned by [`call`](Self::call).
    ///
    /// See [`WgslOp`] for an example.
    pub fn output(mut self, rule: impl Fn(&[TensorType]) -> Result<TensorType> + Send + Sync + 'static) -> Self {
        self.output = Arc::new(rule);
        self
    }

    /// Sets the value of an `override` constant. Booleans are 0 and 1.
    ///
    /// See [`WgslOp`] for an example.
    pub fn constant(mut self, name: &str, value: f64) -> Self {
        self.constants.insert(name.to_string(), value);
        self
    }

    /// Sets the rule for `override` constants that depend on the inputs. The kernel is compiled once for each set of
    /// values: pass values that change often as [`params`](Self::params).
    ///
    /// See [`WgslOp`] for an example.
    pub fn constants(mut self, rule: impl Fn(&[TensorType]) -> Vec<(String, f64)> + Send + Sync + 'static) -> Self {
        self.constants_rule = Some(Arc::new(rule));
        self
    }

    /// Sets the words of the kernel's `var<uniform>` as a function of inputs and output: lengths, strides, and the
    /// bits of floats (`f32::to_bits`).
    ///
    /// See [`WgslOp`] for an example.
    pub fn params(mut self, rule: impl Fn(&[TensorType], &TensorType) -> Vec<u32> + Send + Sync + 'static) -> Self {
        self.params = Some(Arc::new(rule));
        self
    }

    /// Sets the grid as a function of inputs and output. The default is one invocation per output element.
    ///
    /// See [`WgslOp`] for an example.
    pub fn grid(mut self, rule: impl Fn(&[TensorType], &TensorType) -> Grid + Send + Sync + 'static) -> Self {
        self.grid = Arc::new(rule);
        self
    }

    /// Sets the output to zeros before the kernel runs, for kernels that add to it. Otherwise its initial contents
    /// are unspecified.
    ///
    /// See [`WgslOp`] for an example.
    pub fn zeroes_output(mut self) -> Self {
        self.zeroes_output = true;
        self
    }

    /// Sets the gradient rule: the gradient of each input, computed from the inputs, the output and the gradient of
    /// the output, with tensor ops or other WGSL ops; `None` for an input without a gradient. Without a rule,
    /// `backward` returns an error.
    ///
    /// See [`WgslOp`] for an example.
    pub fn gradient(
        mut self,
        rule: impl Fn(&[Tensor], &Tensor, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> Self {
        self.gradient = Some(Arc::new(rule));
        self
    }

    /// Sets the tolerance of [`Tensor::eval_checked`], relative to the largest element of the inputs, or to 1 if that
    /// is larger. The default is 1e-6.
    ///
    /// See [`WgslOp`] for an example.
    pub fn tolerance(mut self, share: f64) -> Self {
        self.tolerance = share;
        self
    }

    /// Applies the op to tensors of one device. The kernel is compiled or loaded from the kernel cache here; it runs
    /// when elements are needed.
    ///
    /// See [`WgslOp`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if the devices differ, or if the inputs do not match the kernel's bindings (their
    /// number, dtypes, the size of the uniform), `CompileFailed` with line and column if the source has an error,
    /// `Unsupported` if the device cannot run it, and the errors of the output rule.
    pub fn call(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let in_context = |error: Error| error.context(format!("{} of {}", self.name, names(inputs)));
        let Some(first) = inputs.first() else {
            return Err(invalid(format!("{} expected at least one tensor, found none", self.name)));
        };
        check::same_device(&self.name, inputs)?;
        let types: SmallVec<[TensorType; 3]> = inputs.iter().map(|input| input.0.kind.ty.clone()).collect();
        let op = self.specialise(first.device(), &types).map_err(in_context)?;
        let tensor = Tensor::kernel(Arc::new(op), inputs)?;
        if let (Some(record), Some(rule)) = (&tensor.0.record, &self.gradient) {
            record.set_rule(&self.name, Arc::clone(rule));
        }
        Ok(tensor)
    }

    /// Specializes the op for inputs of these types.
    fn specialise(&self, device: &Device, inputs: &[TensorType]) -> Result<Specialised> {
        let output = (self.output)(inputs)?;
        let output = TensorType { shape: output.shape.checked()?, ..output };
        let most = device.target().max_operands;
        if inputs.len() > most {
            return Err(invalid(format!("expected at most {most} inputs on this device, found {}", inputs.len())));
        }
        let mut constants = self.constants.clone();
        constants.extend(self.constants_rule.iter().flat_map(|rule| rule(inputs)));
        let mut source = KernelSource::wgsl(Arc::clone(&self.source)).named(&*self.name);
        if let Some(entry) = &self.entry {
            source = source.entry(entry);
        }
        for (name, value) in &constants {
            source = source.constant(name, *value);
        }
        // Compiled now: the bindings come from its reflection, and errors in the source are returned by this call
        // instead of a later `eval`.
        let kernel = device.kernel(source)?;
        let params = self.params.as_ref().map(|rule| rule(inputs, &output)).unwrap_or_default();
        let bindings = bindings(&kernel, inputs, &output, self.params.as_ref().map(|_| &*params))?;
        let workgroups = (self.grid)(inputs, &output).resolve(kernel.reflection().workgroup_size)?;
        let rendered = WgslKernel {
            source: Arc::clone(&self.source),
            entry: self.entry.clone(),
            constants: constants.into_iter().collect(),
            bindings,
            params,
            scalars: Vec::new(),
            workgroups,
            zeroes_output: self.zeroes_output,
            guarantees: WgslGuarantees::default(),
        };
        // Stands for source, entry point and constants in the plan key.
        let identity = kernel.hash().words();
        Ok(Specialised { name: Arc::clone(&self.name), output, rendered, identity, tolerance: self.tolerance })
    }
}

impl fmt::Debug for WgslOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WgslOp").field("name", &self.name).field("constants", &self.constants).finish_non_exhaustive()
    }
}

/// Assigns inputs and output to the bindings of a kernel; returns an error if they do not match.
fn bindings(
    kernel: &Kernel,
    inputs: &[TensorType],
    output: &TensorType,
    params: Option<&[u32]>,
) -> Result<Vec<WgslBinding>> {
    let mut found = Vec::new();
    let (mut reads, mut writes, mut values) = (0, 0, 0);
    for binding in &kernel.reflection().bindings {
        let refuse =
            |wants: &str, found: String| Err(invalid(format!("binding {binding} expected {wants}, found {found}")));
        if binding.group != 0 {
            return refuse("group 0", format!("group {}", binding.group));
        }
        let (argument, ty) = match binding.kind {
            BindingKind::Read => {
                reads += 1;
                (WgslArgument::Operand(reads - 1), inputs.get(reads - 1))
            }
            BindingKind::ReadWrite => {
                writes += 1;
                (WgslArgument::Output, Some(output))
            }
            BindingKind::Value | BindingKind::Grid => {
                let found = 4 * params.map_or(0, <[u32]>::len);
                if binding.min_bytes != found as u64 {
                    let wants = format!("{} bytes from the rule for `params`", binding.min_bytes);
                    return refuse(&wants, format!("{found} bytes"));
                }
                values += 1;
                (WgslArgument::Params, None)
            }
        };
        if let (Some(ty), Some(scalar)) = (ty, binding.scalar)
            && !fits(ty.dtype, scalar)
        {
            return refuse(&format!("elements of {scalar}"), format!("a tensor of {}", ty.dtype));
        }
        // Devices bind whole words and cannot bind empty buffers.
        let bytes = ty.map(|ty| match ty.bytes().next_multiple_of(4) {
            0 => binding.min_bytes.max(4),
            bytes => bytes,
        });
        let stride = binding.stride_bytes.unwrap_or(1);
        if let (Some(ty), Some(bytes)) = (ty, bytes)
            && (bytes < binding.min_bytes || !bytes.is_multiple_of(stride))
        {
            let wants = format!("at least {} bytes, in multiples of {stride}", binding.min_bytes);
            return refuse(&wants, format!("{bytes} bytes of a tensor of {} {}", ty.dtype, ty.shape));
        }
        found.push(WgslBinding { number: binding.binding, argument, bytes });
    }
    if (reads, writes, values) == (inputs.len(), 1, usize::from(params.is_some())) {
        return Ok(found);
    }
    let bindings: Vec<String> = kernel.reflection().bindings.iter().map(ToString::to_string).collect();
    Err(invalid(format!(
        "kernel `{}` expected one `var<storage, read>` binding for each of {} inputs, one `var<storage, read_write>` \
         binding for the output, and one `var<uniform>` binding if there is a rule for `params`, found that its entry \
         point uses {}",
        kernel.name(),
        inputs.len(),
        if bindings.is_empty() { "no bindings".to_string() } else { bindings.join(", ") }
    )))
}

/// Returns whether a kernel can read the elements of a dtype as this scalar type.
fn fits(dtype: DType, scalar: Scalar) -> bool {
    match dtype {
        DType::F32 => scalar == Scalar::F32,
        // A kernel without `enable f16` reads two `f16` elements as one `u32`.
        DType::F16 => matches!(scalar, Scalar::F16 | Scalar::U32),
        DType::I32 => scalar == Scalar::I32,
        DType::U32 | DType::BF16 | DType::I8 | DType::U8 | DType::Bool => scalar == Scalar::U32,
        // Rejected earlier.
        DType::I64 | DType::F64 => false,
    }
}

/// A [`WgslOp`] specialized for input types: plain data, so that its attributes identify it completely.
#[derive(Debug)]
struct Specialised {
    name: Arc<str>,
    output: TensorType,
    rendered: WgslKernel,
    /// The hash of the compiled kernel: source, entry point and constants.
    identity: [u64; 4],
    tolerance: f64,
}

impl KernelOp for Specialised {
    fn name(&self) -> &str {
        &self.name
    }

    fn attributes(&self) -> SmallVec<[u64; 4]> {
        // What the hash of the kernel does not contain: a plan stores these values, so they are part of its key.
        let WgslKernel { params, workgroups, zeroes_output, .. } = &self.rendered;
        let words = params.iter().chain(workgroups).map(|&word| u64::from(word));
        self.identity.into_iter().chain(words).chain([u64::from(*zeroes_output)]).collect()
    }

    fn infer(&self, _: &[TensorType]) -> Result<TensorType> {
        Ok(self.output.clone())
    }

    fn takes(&self, _: usize, layout: &kiln_ir::Layout) -> bool {
        // The user's source indexes elements directly and does not know strides.
        layout.is_contiguous() && layout.offset() == 0
    }

    fn stores_any_dtype(&self) -> bool {
        true
    }

    fn error_bound(&self, _: &[TensorType], largest: &[f64]) -> f64 {
        self.tolerance * largest.iter().fold(1.0, |most: f64, &largest| most.max(largest))
    }

    /// The cost of a user's kernel is unknown.
    fn flops(&self, _: &[TensorType]) -> u64 {
        0
    }

    fn wgsl(&self, _: &WgslCall<'_>) -> Result<WgslKernel> {
        Ok(self.rendered.clone())
    }
}
