//! Limits and rules that are checked before any code is emitted: the size of the program after inlining, its
//! nesting depth, and `continuing` blocks that use values a `continue` skipped.

use crate::CompileError;
use crate::emit::MAX_EMITTED;
use crate::operands::{blocks_of, results_of, uses_of};
use crate::regions::has_outer_jump;
use naga::{Block, Expression, Function, Handle, Module, Span, Statement};
use std::collections::{HashMap, HashSet};

/// Maximum number of calls after inlining. Functions that call others twice grow exponentially with the depth
/// of the call graph.
const MAX_CALLS: u64 = 10_000;
/// Maximum nesting of blocks and calls. The compiler recurses as deeply, on a stack of unknown size.
const MAX_DEPTH: u32 = 200;

/// Size of a block after inlining.
#[derive(Clone, Copy, Default)]
struct Size {
    calls: u64,
    /// Statements and expressions.
    items: u64,
    depth: u32,
}

/// Rejects a program that is too large or too deep after inlining, or that uses a value which may not have been
/// computed. The error points at the offending statement.
pub(crate) fn check(module: &Module) -> Result<(), CompileError> {
    let mut callee_sizes: HashMap<Handle<Function>, Size> = HashMap::new();
    // naga orders functions so that callees come before their callers, so one pass suffices.
    for (handle, function) in module.functions.iter() {
        let size = Checker { function, callee_sizes: &callee_sizes }.size_of(&function.body, 0)?;
        callee_sizes.insert(handle, size);
    }
    for point in &module.entry_points {
        Checker { function: &point.function, callee_sizes: &callee_sizes }.size_of(&point.function.body, 0)?;
    }
    Ok(())
}

struct Checker<'a> {
    function: &'a Function,
    /// Sizes of the functions before this one.
    callee_sizes: &'a HashMap<Handle<Function>, Size>,
}

impl Checker<'_> {
    /// Returns the size of a block, or the error of the first statement that exceeds a limit.
    fn size_of(&self, block: &Block, depth: u32) -> Result<Size, CompileError> {
        let mut size = Size { depth: 1, ..Size::default() };
        for (statement, span) in block.span_iter() {
            if depth >= MAX_DEPTH {
                return Err(limit_error("nested blocks and calls", MAX_DEPTH.into(), *span));
            }
            // Saturating: 60 nested doublings exceed `u64`.
            let mut add = |inner: Size| {
                size.calls = size.calls.saturating_add(inner.calls);
                size.items = size.items.saturating_add(inner.items).saturating_add(1);
                size.depth = size.depth.max(inner.depth.saturating_add(1));
            };
            match statement {
                Statement::Emit(range) => add(Size { items: range.clone().count() as u64, ..Size::default() }),
                Statement::Call { function, .. } => {
                    // A call costs what its body costs: functions are inlined.
                    let callee = self.callee_sizes.get(function).copied().unwrap_or_default();
                    add(Size { calls: callee.calls.saturating_add(1), ..callee });
                }
                _ if blocks_of(statement).is_empty() => add(Size::default()),
                _ => {
                    for block in blocks_of(statement) {
                        add(self.size_of(block, depth + 1)?);
                    }
                }
            }
            self.check_continuing(statement, *span)?;
            if depth.saturating_add(size.depth) > MAX_DEPTH {
                return Err(limit_error("nested blocks and calls", MAX_DEPTH.into(), *span));
            }
            if size.calls > MAX_CALLS {
                return Err(limit_error("calls after inlining", MAX_CALLS, *span));
            }
            if size.items > MAX_EMITTED as u64 {
                let what = "statements and expressions after inlining";
                return Err(limit_error(what, MAX_EMITTED as u64, *span));
            }
        }
        Ok(size)
    }

    /// Rejects a `continuing` block that uses a value declared after a `continue` in the body. WGSL forbids it
    /// but naga accepts it. The emitted code would read a value of no iteration, and proofs about it would not
    /// hold.
    fn check_continuing(&self, statement: &Statement, span: Span) -> Result<(), CompileError> {
        let Statement::Loop { body, continuing, break_if } = statement else { return Ok(()) };
        // `in_switch` is true because a `break` does not reach the `continuing` block.
        let is_continue = |statement: &Statement| has_outer_jump(statement, false, true);
        let Some(first) = body.iter().position(is_continue) else { return Ok(()) };
        let skipped: HashSet<_> = body.iter().skip(first + 1).flat_map(results_of).collect();
        if self.uses(continuing, &skipped) || break_if.is_some_and(|condition| skipped.contains(&condition)) {
            let message =
                "expected a `continuing` block that uses no value declared after a `continue`, found one that does";
            return Err(CompileError::new(span, message));
        }
        Ok(())
    }

    /// Whether a block uses any of the skipped values.
    fn uses(&self, block: &Block, skipped: &HashSet<Handle<Expression>>) -> bool {
        block.iter().any(|statement| {
            uses_of(self.function, statement).iter().any(|used| skipped.contains(used))
                || blocks_of(statement).into_iter().any(|block| self.uses(block, skipped))
        })
    }
}

/// The error for an exceeded limit.
fn limit_error(what: &str, most: u64, span: Span) -> CompileError {
    CompileError::new(span, format!("expected at most {most} {what}, found more"))
}

#[cfg(test)]
mod tests {
    use crate::{CompileError, CompiledKernel, Compiler, Options};
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    fn compile(text: &str) -> Result<CompiledKernel, CompileError> {
        let module = naga::front::wgsl::parse_str(text).unwrap();
        let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module).unwrap();
        Compiler::new().unwrap().compile(&module, &info, &Options::default())
    }

    fn line(text: &str, error: &CompileError) -> u32 {
        error.span.location(text).line_number
    }

    /// A chain of functions that each call the previous one `calls` times.
    fn chain(functions: usize, calls: usize) -> String {
        let calls = |callee: usize| format!("f{callee}();").repeat(calls);
        let bodies = (1..functions).map(|number| format!("fn f{number}() {{\n{}\n}}\n", calls(number - 1)));
        let last = calls(functions - 1);
        format!("fn f0() {{ }}\n{}@compute @workgroup_size(8) fn main() {{ {last} }}", bodies.collect::<String>())
    }

    #[test]
    fn exponential_calls_are_rejected_before_inlining() {
        compile(&chain(10, 2)).unwrap();
        let text = chain(60, 2);
        let error = compile(&text).unwrap_err();
        assert_eq!(error.message, "expected at most 10000 calls after inlining, found more");
        // A function takes three lines. f13 is the first to exceed the limit, with 2^14 - 2 calls.
        assert_eq!(line(&text, &error), 13 * 3);
    }

    #[test]
    fn deep_calls_are_rejected() {
        compile(&chain(150, 1)).unwrap();
        let error = compile(&chain(2_000, 1)).unwrap_err();
        assert_eq!(error.message, "expected at most 200 nested blocks and calls, found more");
    }

    /// The deepest accepted program compiles on the stack of a test thread, with every branch divergent.
    #[test]
    fn deep_conditions_are_compiled_or_rejected() {
        let chain = |length: usize| {
            let conditions = (0..length).map(|level| format!("if (y[id.x] > {level}.0) {{ y[id.x] = 0.0; }} else "));
            format!(
                "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
                @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                    {} {{ }}
                }}",
                conditions.collect::<String>()
            )
        };
        compile(&chain(190)).unwrap();
        let text = chain(400);
        let error = compile(&text).unwrap_err();
        assert_eq!(error.message, "expected at most 200 nested blocks and calls, found more");
        assert_eq!(line(&text, &error), 3);
    }

    #[test]
    fn calls_of_long_functions_are_rejected_before_inlining() {
        let text = format!(
            "fn f(x: f32) -> f32 {{ var a = x; {} return a; }}
            @compute @workgroup_size(8) fn main() {{ var a = 1.0; {} }}",
            "a += 1.0;".repeat(5_000),
            "a = f(a);".repeat(5_000)
        );
        let error = compile(&text).unwrap_err();
        let what = "statements and expressions after inlining";
        assert_eq!(error.message, format!("expected at most 200000 {what}, found more"));
        assert_eq!(line(&text, &error), 2);
    }

    /// `v = f(v, v)` repeated 60 times has 2^60 paths; each analysis must visit a value once or stop at a
    /// depth.
    #[test]
    fn shared_subexpressions_are_not_visited_exponentially_often() {
        let chain = |first: &str, next: &str, last: &str| {
            let steps = (1..60).map(|step| format!("let v{step} = {};", next.replace('_', &format!("v{}", step - 1))));
            format!(
                "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
                @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
                    let v0 = {first}; {} {last}
                }}",
                steps.collect::<String>()
            )
        };
        for (first, next, last) in [
            ("y[id.x]", "min(_, _)", "y[v59] = 1u;"),
            ("y[id.x] < 4u", "_ & _", "if (v59) { y[y[0]] = 1u; }"),
            ("min(y[0], 7u)", "min(_, _)", "if (id.x < v59) { y[id.x] = 1u; }"),
            ("y[0]", "_ + _", "let w = y[0]; if (v59 == w + w) { y[0] = 1u; }"),
        ] {
            compile(&chain(first, next, last)).unwrap();
        }
        let long = (0..20_000).map(|_| "c = !c;").collect::<String>();
        compile(&chain("true", "!_", &format!("var c = v59; {long} if (c) {{ y[0] = 1u; }}"))).unwrap();
    }

    /// Facts on an unreachable path can contradict each other; intervals must stay valid (`low <= high`).
    #[test]
    fn contradictory_conditions_are_compiled() {
        let kernel = |place: &str| {
            format!(
                "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
                @compute @workgroup_size(8) fn main() {{
                    let a = y[0];
                    if (7u <= (a & 3u)) {{ let d = (a & 3u) - 7u; y[{place}] = 1u; }}
                }}"
            )
        };
        for place in ["1u >> d", "1u << d", "d | d", "d ^ 1u", "d % 4u", "d / 3u"] {
            compile(&kernel(place)).unwrap();
        }
    }

    #[test]
    fn continuing_must_not_use_values_after_a_continue() {
        let kernel = |before: &str, after: &str, used: &str| {
            format!(
                "@group(0) @binding(0) var<storage, read> x: array<u32>;
                var<workgroup> part: array<u32, 16>;
                @compute @workgroup_size(8) fn main() {{
                    var k = 0u;
                    loop {{
                        let i = x[k];
                        {before}
                        if (i >= 16u) {{ continue; }}
                        {after}
                        continuing {{ {used} k += 1u; break if k >= 64u; }}
                    }}
                }}"
            )
        };
        for (after, used) in [
            ("let p = &part[i];", "*p = 1u;"),
            ("let j = i & 15u;", "part[j] = 1u;"),
            ("let j = i & 15u;", "if (k == 3u) { part[j] = 1u; }"),
        ] {
            let text = kernel("", after, used);
            let error = compile(&text).unwrap_err();
            assert!(error.message.starts_with("expected a `continuing` block"), "{error}");
            assert_eq!(line(&text, &error), 5);
            compile(&kernel(after, "", used)).unwrap();
        }
        compile(&kernel("", "part[i] = 2u;", "part[k % 16u] = 1u;")).unwrap();
    }
}
