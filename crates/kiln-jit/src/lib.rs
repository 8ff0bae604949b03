//! WGSL programs as machine code of this processor.
//!
//! Owns the way from naga's IR to code that runs a range of work-groups: eight invocations at a time in two registers of four,
//! or one at a time. A work-group runs on one thread, so a barrier is the end of a loop over its invocations. Refuses devices,
//! threads and memory, which are `kiln-cpu`'s, and everything that is not compute.
//!
//! Types to know: [`Compiler`] with its [`Options`], [`Compiled`] which can be stored, [`Code`] which runs, [`Sanitizer`] which watches it.

mod abi;
mod analysis;
mod code;
mod emit;
mod functions;
mod ranges;
mod refuse;
mod regions;
mod sanitize;
mod types;

pub use abi::{Bound, Call, MAX_BOUND_BYTES};
pub use code::{Code, Compiled, Outcome, Run, Scratch};
pub use emit::LANES;
pub use sanitize::{Finding, FindingKind, Invocation, Sanitizer, Watched};

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{Function, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use naga::valid::ModuleInfo;
use naga::{Module, Span};
use std::fmt;

/// How a program is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Options {
    /// Takes longer to compile what runs faster.
    pub optimise: bool,
    /// Leaves out checks of indices that are proven to be inside of their arrays. All others stay in any case. Off by default: a check
    /// costs little, and then no proof stands between a kernel and memory of the process.
    pub trust_proofs: bool,
    /// Looks at those indices all the same, and ends the run where one is outside: [`Outcome::Fault`]. On in debug builds, so that
    /// every test of a kernel is one of the proofs too.
    pub audit: bool,
    /// Joins a product and a sum into one rounding.
    pub fast_math: bool,
    /// Lets loops end when their time is over.
    pub bounded_loops: bool,
    /// Clears the memory of a work-group before it runs.
    pub zero_workgroup: bool,
    /// Runs one invocation after the other instead of eight together.
    pub one_by_one: bool,
    /// Watches the run: see [`Code::run_watched`]. Then invocations run one by one, each operation rounds, and all indices are checked.
    pub sanitize: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            optimise: true,
            trust_proofs: false,
            audit: cfg!(debug_assertions),
            fast_math: true,
            bounded_loops: true,
            zero_workgroup: true,
            one_by_one: false,
            sanitize: false,
        }
    }
}

/// Why a program cannot be compiled, and where in its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The place in the source; undefined where it is the program as a whole.
    pub span: Span,
    /// What was expected, and what was found.
    pub message: String,
}

impl Refusal {
    fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    /// With this place where it has none: not every expression knows where it is, its statement does.
    fn or_at(self, span: Span) -> Self {
        if self.span.is_defined() { self } else { Self { span, ..self } }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// The version of Cranelift, which changes the code that it writes. A test compares it with the lock file.
const CRANELIFT_VERSION: &str = "0.135.8";
/// Counts changes of this crate that change the code it writes, or what the code expects.
const REVISION: u32 = 13;

/// Instructions of Cranelift beyond which registers are given out in one pass: what finds better ones takes quadratic time where many
/// values live long, some seconds at this number. Most kernels have a tenth of it.
const MAX_OPTIMISED_INSTRUCTIONS: usize = 30_000;
/// The most memory that a program has on the stack of the thread that runs it, which may be any thread of the user. Pages are touched in
/// order, so that a stack which is too short all the same ends at the page that guards it.
const MAX_STACK_BYTES: u32 = 512 << 10;

/// The compiler for this processor.
pub struct Compiler {
    /// With optimisation, and without.
    optimising: OwnedTargetIsa,
    plain: OwnedTargetIsa,
    /// For large programs.
    in_one_pass: OwnedTargetIsa,
    name: String,
}

impl Compiler {
    /// Looks at the processor.
    ///
    /// # Errors
    /// Where Cranelift has no code for it.
    pub fn new() -> Result<Self, Refusal> {
        let (optimising, plain) = (processor("speed", "backtracking")?, processor("none", "backtracking")?);
        let in_one_pass = processor("none", "single_pass")?;
        let flags = optimising.isa_flags();
        let features: Vec<&str> =
            flags.iter().filter(|flag| flag.as_bool() == Some(true)).map(|flag| flag.name).collect();
        let name = format!("cranelift {CRANELIFT_VERSION}, {}, revision {REVISION}", features.join(" "));
        Ok(Self { optimising, plain, in_one_pass, name })
    }

    /// What the compiler is, with everything of it and of the processor that changes its code.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Compiles the only entry point of a program whose bindings are numbered: buffers in group 0, values in group 1.
    ///
    /// # Errors
    /// Where the program wants what a processor cannot do here, with the place in its source.
    pub fn compile(&self, module: &Module, info: &ModuleInfo, options: &Options) -> Result<Compiled, Refusal> {
        self.compile_by(module, info, options, ranges::proven)
    }

    /// As [`compile`](Self::compile), with what is to be proven as given: a test has wrong proofs.
    fn compile_by(
        &self,
        module: &Module,
        info: &ModuleInfo,
        options: &Options,
        prove: ranges::Prove,
    ) -> Result<Compiled, Refusal> {
        let mut options = options.clone();
        if options.sanitize {
            options = Options { optimise: false, trust_proofs: false, fast_math: false, one_by_one: true, ..options };
        }
        refuse::check(module)?;
        let isa = if options.optimise { &*self.optimising } else { &*self.plain };
        let signature = emit::signature(isa.default_call_conv(), isa.pointer_type());
        let mut context = Context::for_function(Function::with_name_signature(UserFuncName::user(0, 0), signature));
        let mut builders = FunctionBuilderContext::new();
        let builder = FunctionBuilder::new(&mut context.func, &mut builders);
        let emitted = emit::emit(builder, (module, info), &options, prove, isa)?;
        // What is wrong with the program as a whole is told where it begins.
        let spans = module.entry_points[0].function.body.span_iter().map(|(_, span)| *span);
        let begin = spans.into_iter().find(Span::is_defined).unwrap_or_default();
        let is_large = context.func.dfg.num_insts() > MAX_OPTIMISED_INSTRUCTIONS;
        let isa = if is_large { &*self.in_one_pass } else { isa };
        let compiled = context
            .compile(isa, &mut ControlPlane::default())
            .map_err(|error| Refusal::new(begin, format!("expected code of Cranelift, found: {}", error.inner)))?;
        let stack_bytes = compiled.buffer.frame_layout().map_or(0, |layout| layout.frame_to_fp_offset);
        if stack_bytes > MAX_STACK_BYTES {
            let wanted = format!("expected values that fit into registers and {MAX_STACK_BYTES} bytes of stack");
            return Err(Refusal::new(begin, format!("{wanted}, found {stack_bytes} bytes")));
        }
        if !compiled.buffer.relocs().is_empty() {
            return Err(Refusal::new(begin, "expected code without relocations, found some"));
        }
        Ok(Compiled::new(compiled.code_buffer(), emitted))
    }
}

/// This processor, as Cranelift writes code for it.
fn processor(opt_level: &str, registers: &str) -> Result<OwnedTargetIsa, Refusal> {
    let refuse = |error: &dyn fmt::Display| {
        Refusal::new(Span::UNDEFINED, format!("expected a processor that Cranelift knows, found: {error}"))
    };
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", opt_level),
        ("is_pic", "true"),
        ("regalloc_algorithm", registers),
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
    ] {
        flags.set(name, value).map_err(|error| refuse(&error))?;
    }
    let isa = cranelift_native::builder().map_err(|error| refuse(&error))?;
    isa.finish(settings::Flags::new(flags)).map_err(|error| refuse(&error))
}

impl fmt::Debug for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiler").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version in the key is the one that is built in.
    #[test]
    fn the_version_is_that_of_the_lock_file() {
        let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        for name in ["cranelift-codegen", "cranelift-frontend", "cranelift-native"] {
            let entry = format!("name = \"{name}\"\nversion = \"{CRANELIFT_VERSION}\"\n");
            assert!(lock.contains(&entry), "{name} {CRANELIFT_VERSION}");
        }
    }
}
