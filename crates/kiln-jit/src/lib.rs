//! Compiles WGSL compute kernels to machine code of the host processor with Cranelift.
//!
//! Owns the path from naga IR to executable code that runs a range of workgroups. Invocations run in gangs of
//! eight lanes (two 128-bit vectors), or one at a time. A workgroup runs on one thread, so a barrier is the end
//! of a loop over its gangs. Refuses devices, threads and memory, which belong to `kiln-cpu`, and everything
//! that is not compute.
//!
//! The pipeline, in order: `validate` rejects modules that are too large, `uniformity` finds values and control
//! flow that are the same for all lanes, `ranges` proves indices in bounds, `regions` splits the program at
//! barriers, `emit` writes Cranelift IR, `code` maps the result. `abi` and `libcalls` are the interface between
//! compiled code and its caller; `sanitizer` is the runtime of instrumented code.
//!
//! Types to know: [`Compiler`] with its [`Options`], [`CompiledKernel`] (storable bytes), [`ExecutableKernel`]
//! (mapped and runnable), [`Sanitizer`] (checks a run).
//!
//! ```
//! use kiln_jit::{BoundBuffer, Compiler, ExecutableKernel, LaunchArgs, Options, Outcome, Scratch};
//! use naga::valid::{Capabilities, ValidationFlags, Validator};
//!
//! let source = "
//!     @group(0) @binding(0) var<storage, read_write> x: array<u32>;
//!     @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) { x[id.x] += id.x; }";
//! let module = naga::front::wgsl::parse_str(source)?;
//! let info = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module)?;
//! let compiled = Compiler::new()?.compile(&module, &info, &Options::default())?;
//! let kernel = ExecutableKernel::new(compiled)?;
//!
//! let mut x = [10u32; 8];
//! let buffer = BoundBuffer { data: x.as_mut_ptr().cast(), bytes: 32 };
//! let args = LaunchArgs { bindings: &[buffer], workgroups: [1, 1, 1], deadline: None };
//! // SAFETY: the kernel has one buffer, which nothing else accesses.
//! let outcome = unsafe { kernel.run(&args, 0..1, &mut Scratch::default()) };
//! assert_eq!((outcome, x[3]), (Outcome::Done, 13));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod abi;
mod code;
mod emit;
mod libcalls;
mod operands;
mod ranges;
mod regions;
mod sanitizer;
mod types;
mod uniformity;
mod validate;

pub use abi::{BoundBuffer, MAX_BINDING_BYTES};
pub use code::{CompiledKernel, ExecutableKernel, LaunchArgs, Outcome, Scratch};
pub use emit::LANES;
pub use sanitizer::{Finding, FindingKind, Invocation, LaunchInfo, Sanitizer};

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use naga::valid::ModuleInfo;
use naga::{Module, Span};
use std::fmt;

/// Compilation options.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Options {
    /// Optimises the generated code, at the cost of compile time.
    pub optimise: bool,
    /// Omits bounds checks of indices that are proven in bounds. All other checks stay. Off by default: a check
    /// is cheap, and without elision a bug in the prover cannot expose memory of the process.
    pub elide_bounds_checks: bool,
    /// Checks the elided indices anyway and ends the run with [`Outcome::Fault`] when one is out of bounds. On
    /// in debug builds, so that every kernel test also tests the prover.
    pub verify_elided_checks: bool,
    /// Contracts `a * b + c` into a fused multiply-add (one rounding instead of two).
    pub fast_math: bool,
    /// Makes loops check the deadline of [`LaunchArgs`], so that endless loops end.
    pub bounded_loops: bool,
    /// Zeroes workgroup memory before each workgroup.
    pub zero_workgroup: bool,
    /// Runs one invocation at a time instead of gangs of [`LANES`].
    pub single_lane: bool,
    /// Instruments the code for [`ExecutableKernel::run_sanitized`]. Implies `single_lane`, and disables
    /// `optimise`, `fast_math` and `elide_bounds_checks`.
    pub sanitize: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            optimise: true,
            elide_bounds_checks: false,
            verify_elided_checks: cfg!(debug_assertions),
            fast_math: true,
            bounded_loops: true,
            zero_workgroup: true,
            single_lane: false,
            sanitize: false,
        }
    }
}

/// An error of [`Compiler::compile`], with its location in the source.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq)]
pub struct CompileError {
    /// Location in the source; undefined when the error concerns the whole program.
    pub span: Span,
    /// What was expected and what was found.
    pub message: String,
}

impl CompileError {
    fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    /// Sets the span if the error has none: naga does not give every expression a span, but its statement has
    /// one.
    fn with_default_span(self, span: Span) -> Self {
        if self.span.is_defined() { self } else { Self { span, ..self } }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CompileError {}

/// Version of Cranelift. It is part of [`Compiler::name`] because it changes the generated code. A test
/// compares it with the lock file.
const CRANELIFT_VERSION: &str = "0.135.8";
/// Revision of this crate's code generation. Increment it with every change to the generated code or to the
/// ABI, so that caches do not load stale code.
const REVISION: u32 = 13;

/// Number of Cranelift instructions above which the single-pass register allocator is used. The backtracking
/// allocator takes quadratic time when many values have long live ranges: some seconds at this size. Most
/// kernels have a tenth of it.
const MAX_BACKTRACKING_INSTRUCTIONS: usize = 30_000;
/// Largest stack frame of a kernel. It runs on any thread of the user, whose stack may be small. Stack probes
/// touch each page in order, so an overflow still hits the guard page.
const MAX_STACK_BYTES: u32 = 512 << 10;

/// A compiler for the host processor.
///
/// See the [crate documentation](crate) for an example.
pub struct Compiler {
    /// Target with and without optimisation.
    optimised: OwnedTargetIsa,
    unoptimised: OwnedTargetIsa,
    /// Target for large programs: single-pass register allocation.
    single_pass: OwnedTargetIsa,
    name: String,
}

impl Compiler {
    /// Detects the host processor and its features.
    ///
    /// # Errors
    /// Cranelift has no backend for the processor.
    pub fn new() -> Result<Self, CompileError> {
        let (optimised, unoptimised) = (host_isa("speed", "backtracking")?, host_isa("none", "backtracking")?);
        let single_pass = host_isa("none", "single_pass")?;
        let flags = optimised.isa_flags();
        let features: Vec<&str> =
            flags.iter().filter(|flag| flag.as_bool() == Some(true)).map(|flag| flag.name).collect();
        let name = format!("cranelift {CRANELIFT_VERSION}, {}, revision {REVISION}", features.join(" "));
        Ok(Self { optimised, unoptimised, single_pass, name })
    }

    /// Identifies the compiler: version, revision and processor features. Two compilers with the same name
    /// generate the same code, so the name is a cache key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compiles the only entry point of a module. Bindings must be numbered from 0: buffers in group 0, uniform
    /// values in group 1.
    ///
    /// # Errors
    /// The module uses a feature that is not supported, or exceeds a limit. The error has a location in the
    /// source.
    pub fn compile(
        &self,
        module: &Module,
        info: &ModuleInfo,
        options: &Options,
    ) -> Result<CompiledKernel, CompileError> {
        self.compile_with_prover(module, info, options, ranges::proven)
    }

    /// [`compile`](Self::compile) with a given bounds prover, so that a test can inject wrong proofs.
    fn compile_with_prover(
        &self,
        module: &Module,
        info: &ModuleInfo,
        options: &Options,
        prove: ranges::BoundsProver,
    ) -> Result<CompiledKernel, CompileError> {
        let mut options = options.clone();
        // Instrumentation is per invocation, and findings must not depend on contraction or elided checks.
        if options.sanitize {
            options =
                Options { optimise: false, elide_bounds_checks: false, fast_math: false, single_lane: true, ..options };
        }
        validate::check(module)?;
        let isa = if options.optimise { &*self.optimised } else { &*self.unoptimised };
        let signature = emit::signature(isa.default_call_conv(), isa.pointer_type());
        let mut context = Context::for_function(Function::with_name_signature(UserFuncName::user(0, 0), signature));
        let mut builder_context = FunctionBuilderContext::new();
        let builder = FunctionBuilder::new(&mut context.func, &mut builder_context);
        let emitted = emit::emit(builder, (module, info), &options, prove, isa)?;
        // Errors of the whole program are reported at its first statement.
        let spans = module.entry_points[0].function.body.span_iter().map(|(_, span)| *span);
        let first_span = spans.into_iter().find(Span::is_defined).unwrap_or_default();
        // Known only after emission. The targets differ in compiler settings, not in features, so the emitted
        // IR is valid for all of them.
        let is_large = context.func.dfg.num_insts() > MAX_BACKTRACKING_INSTRUCTIONS;
        let isa = if is_large { &*self.single_pass } else { isa };
        let compiled = context.compile(isa, &mut ControlPlane::default()).map_err(|error| {
            CompileError::new(first_span, format!("expected Cranelift to generate code, found: {}", error.inner))
        })?;
        // Spilled registers are on the stack of the calling thread.
        let stack_bytes = compiled.buffer.frame_layout().map_or(0, |layout| layout.frame_to_fp_offset);
        if stack_bytes > MAX_STACK_BYTES {
            let wanted = format!("expected values that fit into registers and {MAX_STACK_BYTES} bytes of stack");
            return Err(CompileError::new(first_span, format!("{wanted}, found {stack_bytes} bytes")));
        }
        // Libcalls go through a table in the call context. A relocation would be an address of this process,
        // which is wrong when the code is loaded from disk.
        if !compiled.buffer.relocs().is_empty() {
            return Err(CompileError::new(first_span, "expected code without relocations, found some"));
        }
        Ok(CompiledKernel::new(compiled.code_buffer(), emitted))
    }
}

/// Builds the Cranelift target of the host processor.
fn host_isa(opt_level: &str, registers: &str) -> Result<OwnedTargetIsa, CompileError> {
    let unsupported = |error: &dyn fmt::Display| {
        CompileError::new(Span::UNDEFINED, format!("expected a processor that Cranelift supports, found: {error}"))
    };
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", opt_level),
        // The code is stored and mapped anywhere, so it must be position-independent.
        ("is_pic", "true"),
        ("regalloc_algorithm", registers),
        // Off by default in Cranelift. Without probes a frame larger than the guard page could write past it
        // into another mapping.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
    ] {
        flags.set(name, value).map_err(|error| unsupported(&error))?;
    }
    let isa = cranelift_native::builder().map_err(|error| unsupported(&error))?;
    isa.finish(settings::Flags::new(flags)).map_err(|error| unsupported(&error))
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version in the cache key must be the version that is linked.
    #[test]
    fn the_cranelift_version_matches_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        for name in ["cranelift-codegen", "cranelift-frontend", "cranelift-native"] {
            let entry = format!("name = \"{name}\"\nversion = \"{CRANELIFT_VERSION}\"\n");
            assert!(lock.contains(&entry), "{name} {CRANELIFT_VERSION}");
        }
    }
}
