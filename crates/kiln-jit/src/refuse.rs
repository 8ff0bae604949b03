//! What is wrong with a program before anything is made of it: how large it becomes with functions put in their place, and uses of what was
//! never computed.

use crate::Refusal;
use crate::analysis::{blocks_of, results_of, uses_of};
use crate::emit::MAX_EMITTED;
use crate::regions::leaves;
use naga::{Block, Expression, Function, Handle, Module, Span, Statement};
use std::collections::{HashMap, HashSet};

/// Calls of functions that a program may become: where one calls another twice, and so on, they double each time.
const MAX_CALLS: u64 = 10_000;
/// Blocks and calls that may be inside of each other. The compiler is as deep in itself, and a thread's stack is short.
const MAX_DEPTH: u32 = 200;

/// What a block becomes.
#[derive(Clone, Copy, Default)]
struct Size {
    calls: u64,
    /// Statements and expressions.
    items: u64,
    depth: u32,
}

/// Refuses a program that would become too large or too deep, or that uses what it may not have computed, at the statement that makes it so.
pub(crate) fn check(module: &Module) -> Result<(), Refusal> {
    let mut known: HashMap<Handle<Function>, Size> = HashMap::new();
    // Callees come before their callers.
    for (handle, function) in module.functions.iter() {
        let size = Checker { function, known: &known }.size_of(&function.body, 0)?;
        known.insert(handle, size);
    }
    for point in &module.entry_points {
        Checker { function: &point.function, known: &known }.size_of(&point.function.body, 0)?;
    }
    Ok(())
}

struct Checker<'a> {
    function: &'a Function,
    /// What the functions before this one become.
    known: &'a HashMap<Handle<Function>, Size>,
}

impl Checker<'_> {
    fn size_of(&self, block: &Block, depth: u32) -> Result<Size, Refusal> {
        let mut size = Size { depth: 1, ..Size::default() };
        for (statement, span) in block.span_iter() {
            if depth >= MAX_DEPTH {
                return Err(refusal("blocks and calls inside of each other", MAX_DEPTH.into(), *span));
            }
            let mut add = |inner: Size| {
                size.calls = size.calls.saturating_add(inner.calls);
                size.items = size.items.saturating_add(inner.items).saturating_add(1);
                size.depth = size.depth.max(inner.depth.saturating_add(1));
            };
            match statement {
                Statement::Emit(range) => add(Size { items: range.clone().count() as u64, ..Size::default() }),
                Statement::Call { function, .. } => {
                    let callee = self.known.get(function).copied().unwrap_or_default();
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
                return Err(refusal("blocks and calls inside of each other", MAX_DEPTH.into(), *span));
            }
            if size.calls > MAX_CALLS {
                return Err(refusal("calls with functions put in their place", MAX_CALLS, *span));
            }
            if size.items > MAX_EMITTED as u64 {
                let what = "statements and expressions with functions put in their place";
                return Err(refusal(what, MAX_EMITTED as u64, *span));
            }
        }
        Ok(size)
    }

    /// WGSL has no `continue` past a declaration that the `continuing` block uses; naga lets it through. The value would be that of no
    /// round, and what is known about it in the body would not hold.
    fn check_continuing(&self, statement: &Statement, span: Span) -> Result<(), Refusal> {
        let Statement::Loop { body, continuing, break_if } = statement else { return Ok(()) };
        let is_continue = |statement: &Statement| leaves(statement, false, true);
        let Some(first) = body.iter().position(is_continue) else { return Ok(()) };
        let skipped: HashSet<_> = body.iter().skip(first + 1).flat_map(results_of).collect();
        if self.uses(continuing, &skipped) || break_if.is_some_and(|condition| skipped.contains(&condition)) {
            let message = "expected a `continuing` block that uses nothing behind a `continue`, found that it does";
            return Err(Refusal::new(span, message));
        }
        Ok(())
    }

    /// Whether a block uses any of these.
    fn uses(&self, block: &Block, skipped: &HashSet<Handle<Expression>>) -> bool {
        block.iter().any(|statement| {
            uses_of(self.function, statement).iter().any(|used| skipped.contains(used))
                || blocks_of(statement).into_iter().any(|block| self.uses(block, skipped))
        })
    }
}

fn refusal(what: &str, most: u64, span: Span) -> Refusal {
    Refusal::new(span, format!("expected at most {most} {what}, found more"))
}

#[cfg(test)]
mod tests {
    use crate::{Compiled, Compiler, Options, Refusal};
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    fn compile(text: &str) -> Result<Compiled, Refusal> {
        let module = naga::front::wgsl::parse_str(text).unwrap();
        let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module).unwrap();
        Compiler::new().unwrap().compile(&module, &info, &Options::default())
    }

    fn line(text: &str, refusal: &Refusal) -> u32 {
        refusal.span.location(text).line_number
    }

    /// Functions of which each calls the next one so often.
    fn chain(functions: usize, calls: usize) -> String {
        let calls = |callee: usize| format!("f{callee}();").repeat(calls);
        let bodies = (1..functions).map(|number| format!("fn f{number}() {{\n{}\n}}\n", calls(number - 1)));
        let last = calls(functions - 1);
        format!("fn f0() {{ }}\n{}@compute @workgroup_size(8) fn main() {{ {last} }}", bodies.collect::<String>())
    }

    #[test]
    fn calls_that_double_are_refused_before_they_are_followed() {
        compile(&chain(10, 2)).unwrap();
        let text = chain(60, 2);
        let refusal = compile(&text).unwrap_err();
        assert_eq!(refusal.message, "expected at most 10000 calls with functions put in their place, found more");
        // Of three lines each, f13 is the first that makes more: 2^14 - 2.
        assert_eq!(line(&text, &refusal), 13 * 3);
    }

    #[test]
    fn calls_inside_of_calls_are_refused_before_the_stack_ends() {
        compile(&chain(150, 1)).unwrap();
        let refusal = compile(&chain(2_000, 1)).unwrap_err();
        assert_eq!(refusal.message, "expected at most 200 blocks and calls inside of each other, found more");
    }

    /// The deepest that is taken fits on the stack of a thread, also where all ways part.
    #[test]
    fn conditions_inside_of_conditions_are_compiled_or_refused() {
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
        let refusal = compile(&text).unwrap_err();
        assert_eq!(refusal.message, "expected at most 200 blocks and calls inside of each other, found more");
        assert_eq!(line(&text, &refusal), 3);
    }

    #[test]
    fn calls_of_long_functions_are_refused_before_they_are_followed() {
        let text = format!(
            "fn f(x: f32) -> f32 {{ var a = x; {} return a; }}
            @compute @workgroup_size(8) fn main() {{ var a = 1.0; {} }}",
            "a += 1.0;".repeat(5_000),
            "a = f(a);".repeat(5_000)
        );
        let refusal = compile(&text).unwrap_err();
        let what = "statements and expressions with functions put in their place";
        assert_eq!(refusal.message, format!("expected at most 200000 {what}, found more"));
        assert_eq!(line(&text, &refusal), 2);
    }

    /// Values that are made of the same one twice, again and again, are not followed twice.
    #[test]
    fn values_of_values_take_no_time() {
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

    /// An interval of what cannot be is one all the same.
    #[test]
    fn what_contradicts_itself_is_compiled() {
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
    fn what_a_continue_leaves_out_is_not_used_behind_it() {
        let kernel = |before: &str, behind: &str, used: &str| {
            format!(
                "@group(0) @binding(0) var<storage, read> x: array<u32>;
                var<workgroup> part: array<u32, 16>;
                @compute @workgroup_size(8) fn main() {{
                    var k = 0u;
                    loop {{
                        let i = x[k];
                        {before}
                        if (i >= 16u) {{ continue; }}
                        {behind}
                        continuing {{ {used} k += 1u; break if k >= 64u; }}
                    }}
                }}"
            )
        };
        for (behind, used) in [
            ("let p = &part[i];", "*p = 1u;"),
            ("let j = i & 15u;", "part[j] = 1u;"),
            ("let j = i & 15u;", "if (k == 3u) { part[j] = 1u; }"),
        ] {
            let text = kernel("", behind, used);
            let refusal = compile(&text).unwrap_err();
            assert!(refusal.message.starts_with("expected a `continuing` block"), "{refusal}");
            assert_eq!(line(&text, &refusal), 5);
            compile(&kernel(behind, "", used)).unwrap();
        }
        compile(&kernel("", "part[i] = 2u;", "part[k % 16u] = 1u;")).unwrap();
    }
}
