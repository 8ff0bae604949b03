//! Kernels, and which of their accesses keep a bounds check.

use super::*;
use crate::uniformity::Scope;
use crate::{BoundBuffer, Compiler, ExecutableKernel, LaunchArgs, Options, Outcome, Scratch};
use naga::ArraySize;
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

/// A kernel of 256 invocations with this body.
fn kernel(body: &str) -> String {
    format!(
        "struct Tail {{ count: u32, items: array<u32> }}
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @group(0) @binding(2) var<storage, read_write> tail: Tail;
        @group(1) @binding(0) var<uniform> n: u32;
        var<workgroup> tile: array<u32, 256>;
        var<workgroup> grid: array<array<u32, 16>, 16>;
        var<workgroup> counts: array<atomic<u32>, 64>;
        var<private> own: u32;
        fn wrapped(a: u32) -> u32 {{ if (a > 255u) {{ return 255u; }} return a; }}
        fn advance(a: ptr<function, u32>) {{ *a += 200u; }}
        @compute @workgroup_size(16, 16) fn main(
            @builtin(global_invocation_id) id: vec3<u32>,
            @builtin(local_invocation_id) l: vec3<u32>,
            @builtin(local_invocation_index) i: u32,
            @builtin(workgroup_id) g: vec3<u32>,
        ) {{ {body} }}"
    )
}

fn parse(text: &str) -> (Module, ModuleInfo) {
    let module = naga::front::wgsl::parse_str(text).unwrap_or_else(|error| panic!("{}", error.emit_to_string(text)));
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module);
    let info = info.unwrap_or_else(|error| panic!("{}", error.emit_to_string(text)));
    (module, info)
}

/// Returns the source text of accesses with computed indices that are not proven in bounds.
fn checked(body: &str) -> Vec<String> {
    let text = kernel(body);
    let (module, info) = parse(&text);
    let [uniformity, workgroup_uniformity] =
        [Scope::Gang(8), Scope::WorkGroup].map(|together| Uniformity::new(&module, &info, together));
    let proven = proven(&module, &uniformity, &workgroup_uniformity);
    let mut checked = Vec::new();
    for (id, activation) in uniformity.activations.iter().enumerate() {
        for (handle, expression) in activation.function.expressions.iter() {
            let (base, is_constant) = match expression {
                Expression::Access { base, .. } => (base, false),
                Expression::AccessIndex { base, index } if *index > 0 => (base, true),
                _ => continue,
            };
            let inner = pointee(&module, activation.info[*base].ty.inner_with(&module.types));
            let is_dynamic = matches!(inner, Some(TypeInner::Array { size: ArraySize::Dynamic, .. }));
            if inner.is_some() && (is_dynamic || !is_constant) && !proven.contains(&(id, handle)) {
                let range = activation.function.expressions.get_span(handle).to_range().unwrap_or_default();
                checked.push(text[range].to_string());
            }
        }
    }
    checked
}

#[track_caller]
fn check(cases: &[(&str, &[&str])]) {
    for (body, expected) in cases {
        assert_eq!(checked(body), *expected, "{body}");
    }
}

#[test]
fn builtins_constants_and_arithmetic() {
    check(&[
        ("tile[i] = 1u;", &[]),
        ("grid[l.y][l.x] = tile[l.y * 16u + l.x];", &[]),
        ("tile[l.y * 16u + l.x + 1u] = 1u;", &["tile[l.y * 16u + l.x + 1u]"]),
        ("tile[l.y * 17u + l.x] = 1u;", &["tile[l.y * 17u + l.x]"]),
        ("tile[l.z] = tile[(i + 1u) % 256u] + tile[(i + 1u) & 255u] + tile[i ^ 255u] + tile[i >> 3u];", &[]),
        ("tile[i ^ 256u] = tile[(i + 1u) % 257u];", &["tile[i ^ 256u]", "tile[(i + 1u) % 257u]"]),
        ("tile[min(id.x, 255u)] = tile[clamp(id.x, 3u, 7u)] + tile[select(i, 255u, id.x > 3u)];", &[]),
        (
            "tile[max(id.x, 255u)] = tile[select(i, id.x, true)];",
            &["tile[max(id.x, 255u)]", "tile[select(i, id.x, true)]"],
        ),
        ("let p = l.yx; tile[p.x * 16u + p.y] = 1u; let q = vec2(i); tile[q.y] = 1u;", &[]),
        ("let p = vec2<i32>(l.xy); tile[p.y * 16 + p.x] = tile[255 - p.x] + tile[u32(p.x)];", &[]),
        ("let p = i32(l.x) - 1; tile[p] = tile[u32(p)];", &["tile[p]", "tile[u32(p)]"]),
        ("tile[id.x] = tile[g.x];", &["tile[id.x]", "tile[g.x]"]),
        ("let v = vec4(1u); tile[v[l.x]] = 1u;", &["tile[v[l.x]]"]),
        ("tile[u32(f32(i))] = 1u;", &["tile[u32(f32(i))]"]),
        // Arithmetic that wraps.
        ("tile[i * 4294967295u] = tile[i - 1u];", &["tile[i * 4294967295u]", "tile[i - 1u]"]),
        ("tile[(i << 28u) >> 28u] = tile[(i << 24u) >> 24u];", &[]),
        ("tile[(i << 28u) >> 23u] = 1u;", &["tile[(i << 28u) >> 23u]"]),
        ("tile[(4294967295u + i) / 16777216u] = tile[(4294967295u + i) >> 23u];", &["tile[(4294967295u + i) >> 23u]"]),
    ]);
}

#[test]
fn guards() {
    check(&[
        ("if (id.x < 256u) { tile[id.x] = 1u; }", &[]),
        ("if (id.x <= 256u) { tile[id.x] = 1u; }", &["tile[id.x]"]),
        ("if (id.x < 257u) { tile[id.x] = 1u; }", &["tile[id.x]"]),
        ("if (id.x < 256u) { } else { tile[id.x] = 1u; }", &["tile[id.x]"]),
        ("if (!(id.x >= 256u)) { tile[id.x] = 1u; }", &[]),
        ("if (256u > id.x) { tile[id.x] = 1u; } tile[id.x] = 2u;", &["tile[id.x]"]),
        ("if (id.x < 256u && id.y < 16u) { tile[id.x] = grid[id.y][l.x]; }", &[]),
        ("if (id.x < 256u || id.y < 16u) { tile[id.x] = 1u; }", &["tile[id.x]"]),
        ("if (id.x > 255u || id.y > 15u) { return; } tile[id.x] = grid[id.y][l.x];", &[]),
        ("if (id.x > 255u && id.y > 15u) { return; } tile[id.x] = 1u;", &["tile[id.x]"]),
        ("if (all(id.xy < vec2(16u))) { grid[id.y][id.x] = 1u; }", &[]),
        ("if (any(id.xy < vec2(16u))) { grid[id.y][l.x] = 1u; }", &["grid[id.y]"]),
        ("if (id.x == 9u) { tile[id.x] = 1u; }", &[]),
        ("if (id.x != 9u) { tile[id.x] = 1u; }", &["tile[id.x]"]),
        // Signed values may be negative.
        ("let k = i32(id.x); if (k < 256) { tile[k] = 1u; }", &["tile[k]"]),
        ("let k = i32(id.x); if (k >= 0 && k < 256) { tile[k] = tile[u32(k)]; }", &[]),
        // Merged paths and variables.
        ("var k = id.x; if (k > 255u) { k = 255u; } tile[k] = 1u;", &[]),
        ("var k = id.x; if (k > 255u) { k = 256u; } tile[k] = 1u;", &["tile[k]"]),
        ("var k = id.x; if (k < 256u) { k += 1u; tile[k] = 1u; }", &["tile[k]"]),
        ("var k = id.x; if (k < 256u) { tile[k] = 1u; k = n; } tile[k] = 2u;", &["tile[k]"]),
        ("var k = 3u; if (id.x < 9u) { k = id.x; } tile[k] = 1u;", &[]),
        ("var k: u32; if (id.x < 9u) { k = 3u; } else { k = 256u; } tile[k] = 1u;", &["tile[k]"]),
        ("var k: u32; if (id.x < 9u) { k = id.x + 1u; } else { k = id.x + 1u; } tile[k] = 1u;", &["tile[k]"]),
        ("var k = 3u; if (id.x < 9u) { advance(&k); } tile[k] = tile[k + 52u];", &[]),
        ("var k = 3u; if (id.x < 9u) { advance(&k); } tile[k + 53u] = 1u;", &["tile[k + 53u]"]),
        ("own = id.x; if (own < 256u) { tile[own] = 1u; own = id.y; tile[own] = 1u; }", &["tile[own]"]),
        (
            "var v = id; if (v.x < 256u) { v.y = 7u; tile[v.x] = tile[v.y]; v.x = id.y; tile[v.x] = 1u; }",
            &["tile[v.x]"],
        ),
        ("var k = 0u; switch id.x { case 1u: { k = 255u; } case 2u: { k = 9u; } default: {} } tile[k] = 1u;", &[]),
        ("var k = 0u; switch id.x { case 1u: { k = 256u; } default: { k = 2u; } } tile[k] = 1u;", &["tile[k]"]),
        ("tile[wrapped(id.x)] = 1u;", &[]),
        ("let old = atomicAdd(&counts[i & 63u], 1u); if (old < 256u) { tile[old] = 1u; }", &[]),
        ("var v: array<u32, 4>; v[i & 3u] = 1u; tile[v[1]] = 1u;", &["tile[v[1]]"]),
    ]);
}

#[test]
fn lengths_of_buffers() {
    check(&[
        ("if (id.x < arrayLength(&y)) { y[id.x] = x[id.x]; }", &["x[id.x]"]),
        ("if (id.x >= arrayLength(&y)) { return; } y[id.x] += 1u;", &[]),
        (
            "let k = id.x * 4u + 1u; if (arrayLength(&y) > k) { y[k] = 1u; y[id.x * 4u + 1u] = 2u; y[k + 1u] = 1u; }",
            &["y[k + 1u]"],
        ),
        ("if (id.x <= arrayLength(&y)) { y[id.x] = 1u; }", &["y[id.x]"]),
        ("if (id.x < arrayLength(&x)) { y[id.x] = 1u; }", &["y[id.x]"]),
        ("if (id.x < n) { y[id.x] = 1u; }", &["y[id.x]"]),
        ("if (id.x < min(arrayLength(&x), arrayLength(&y))) { y[id.x] = x[id.x]; }", &[]),
        ("if (id.x < max(arrayLength(&x), arrayLength(&y))) { y[id.x] = 1u; }", &["y[id.x]"]),
        ("y[min(id.x, arrayLength(&y) - 1u)] = y[id.x % arrayLength(&y)];", &[]),
        ("y[min(id.x, arrayLength(&y) - 2u)] = y[arrayLength(&y) - 1u];", &["y[min(id.x, arrayLength(&y) - 2u)]"]),
        (
            "y[min(id.x, arrayLength(&x) - 1u)] = y[id.x % arrayLength(&x)];",
            &["y[min(id.x, arrayLength(&x) - 1u)]", "y[id.x % arrayLength(&x)]"],
        ),
        ("if (id.x < arrayLength(&tail.items)) { tail.items[id.x] = 1u; }", &[]),
        ("if (id.x < tail.count) { tail.items[id.x] = 1u; }", &["tail.items[id.x]"]),
        ("let k = i32(id.x); if (k < i32(arrayLength(&y))) { y[k] = 1u; }", &["y[k]"]),
        ("let k = i32(id.x); if (k >= 0 && k < i32(arrayLength(&y))) { y[k] = 1u; }", &[]),
        ("if (arrayLength(&y) > 9u) { y[9] = y[i & 7u]; y[10] = 1u; }", &["y[10]"]),
        ("var k = id.x; if (k < arrayLength(&y)) { y[k] = 1u; k += 8u; y[k] = 2u; }", &["y[k]"]),
        ("var k = x[0]; if (x[0] < arrayLength(&y)) { y[x[0]] = k; }", &["y[x[0]]"]),
    ]);
}

#[test]
fn loops() {
    check(&[
        ("for (var k = 0u; k < 16u; k++) { tile[l.y * 16u + k] = tile[k * 16u + l.x]; }", &[]),
        ("for (var k = 0; k < 16; k++) { tile[k] = tile[15 - k]; }", &[]),
        ("for (var k = 0u; k <= 16u; k++) { grid[k][0] = 1u; }", &["grid[k]"]),
        ("for (var k = 15; k >= 0; k--) { tile[k] = 1u; }", &[]),
        ("for (var k = 15u; k >= 0u; k--) { tile[k] = 1u; }", &["tile[k]"]),
        ("for (var k = i; k < 256u; k += 64u) { tile[k] = 1u; }", &[]),
        ("for (var s = 128u; s > 0u; s >>= 1u) { if (i < s) { tile[i] += tile[i + s]; } workgroupBarrier(); }", &[]),
        ("for (var s = 128u; s > 0u; s /= 2u) { if (i < s) { tile[i] += tile[i + s]; } }", &[]),
        ("for (var s = 1u; s < 256u; s *= 2u) { if (i >= s) { tile[i] += tile[i - s]; } }", &[]),
        ("for (var s = 1u; s < 256u; s *= 2u) { if (i < s) { continue; } tile[i] += tile[i - s]; }", &[]),
        ("for (var s = 1u; s < 256u; s *= 2u) { if (i < s) { tile[i] += tile[i - s]; } }", &["tile[i - s]"]),
        ("for (var s = 128u; s > 0u; s >>= 1u) { if (i <= s) { tile[i] += tile[i + s]; } }", &["tile[i + s]"]),
        ("for (var s = 128u; s > 0u; s >>= 1u) { tile[i] += tile[i + s]; }", &["tile[i + s]"]),
        ("var k = 0u; while (k < 256u) { tile[k] = 1u; k += 7u; }", &[]),
        ("var k = 0u; loop { tile[k] = 1u; if (k == 255u) { break; } k++; }", &["tile[k]"]),
        ("var k = 0u; loop { if (k > 255u) { break; } tile[k] = 1u; k++; } tile[k] = 2u;", &["tile[k]"]),
        // The counter changes in the body, before a `continue`, or in a function.
        ("for (var k = 0u; k < 16u; k++) { k += id.x; tile[k] = 1u; }", &["tile[k]"]),
        ("for (var k = 0u; k < 256u; k++) { if (x[0] == k) { k = n; continue; } tile[k] = 1u; }", &[]),
        ("for (var k = 0u; k < 256u; k++) { if (x[0] == k) { k = n; } tile[k] = 1u; }", &["tile[k]"]),
        ("for (var k = 0u; k < 16u; k++) { advance(&k); tile[k] = 1u; }", &[]),
        ("for (var k = 0u; k < 99u; k++) { advance(&k); tile[k] = 1u; }", &["tile[k]"]),
        // The counter steps beyond the end, which only the next iteration's condition sees.
        ("for (var k = 0u; k < 250u; k += 300u) { tile[k] = 1u; } ", &[]),
        ("var j = 0u; for (var k = 0u; k < 16u; k++) { tile[j] = 1u; j += 16u; }", &["tile[j]"]),
        ("var j = 0u; for (var k = 0u; k < 16u; k++) { tile[j] = 1u; j = (j + 16u) & 255u; }", &["tile[j]"]),
        ("var j = 0u; for (var k = 0u; k < 16u; k++) { tile[j & 255u] = 1u; j += 16u; }", &[]),
        ("for (var a = 0u; a < 16u; a++) { for (var b = 0u; b < 16u; b++) { grid[a][b] = tile[a * 16u + b]; } }", &[]),
        ("for (var a = 0u; a < 16u; a++) { for (var b = a; b < 17u; b++) { grid[a][b] = 1u; } }", &["grid[a][b]"]),
        ("for (var k = id.x; k < arrayLength(&y); k += 64u) { y[k] = x[k]; }", &["x[k]"]),
        ("var m = 0u; for (var k = 0u; k < n; k++) { if (k < arrayLength(&y)) { m = k; } y[m] = 1u; }", &["y[m]"]),
    ]);
}

/// A condition that one invocation evaluates for the workgroup says nothing about the index of another one.
#[test]
fn uniform_conditions_of_the_workgroup() {
    check(&[
        ("for (var k = 0u; k < 256u; k++) { tile[k] = 1u; workgroupBarrier(); }", &[]),
        ("for (var k = 0u; k < n; k++) { workgroupBarrier(); if (k < 256u) { tile[k] = 1u; } }", &[]),
        ("if (n < 256u) { workgroupBarrier(); tile[n] = 1u; }", &["tile[n]"]),
        ("let m = n; if (m < 256u) { workgroupBarrier(); tile[m] = 1u; }", &[]),
        ("let m = x[0]; if (m < 256u) { workgroupBarrier(); tile[m] = 1u; }", &["tile[m]"]),
        ("let m = workgroupUniformLoad(&tile[3]); if (m < 256u) { workgroupBarrier(); tile[m] = 1u; }", &[]),
    ]);
}

/// Many variables or many branches alone are analysed. Their product exceeds the budget, and everything stays
/// checked.
#[test]
fn variables_times_branches_are_bounded() {
    let body = |variables: usize, branches: usize| {
        let declared: String = (0..variables).map(|v| format!("var v{v} = {v}u; v{v} += 1u; ")).collect();
        format!("{declared} {} tile[i & 15u] = 1u;", "if (n == 3u) { own = 2u; } ".repeat(branches))
    };
    assert_eq!(checked(&body(1000, 10)), Vec::<String>::new());
    assert_eq!(checked(&body(10, 1000)), Vec::<String>::new());
    assert_eq!(checked(&body(1000, 1000)), ["tile[i & 15u]"]);
}

/// Elision shrinks the code if the mask is full, changes nothing in a workgroup with a partial gang, and is off
/// by default.
#[test]
fn checks_are_elided_only_with_a_full_mask() {
    let compiler = Compiler::new().unwrap();
    let codes = |size: &str, body: &str| {
        let (module, info) = parse(&kernel(body).replace("@workgroup_size(16, 16)", size));
        [false, true].map(|elide_bounds_checks| {
            let options = Options { elide_bounds_checks, verify_elided_checks: false, ..Options::default() };
            compiler.compile(&module, &info, &options).unwrap().code().to_vec()
        })
    };
    assert!(!Options::default().elide_bounds_checks);
    let bodies = [
        "tile[i] = tile[i ^ 1u];",
        "for (var k = 0u; k < 16u; k++) { tile[l.y * 16u + l.x] += grid[k][l.x]; }",
        "atomicAdd(&counts[i & 63u], 1u);",
        "var v: array<u32, 4>; v[i & 3u] = 1u; tile[id.x] = v[n & 3u];",
    ];
    for body in bodies {
        let [with, without] = codes("@workgroup_size(16, 16)", body);
        assert!(without.len() < with.len(), "{} {} {body}", without.len(), with.len());
        let [with, without] = codes("@workgroup_size(15, 15)", body);
        assert!(with == without, "{body}");
    }
}

/// A wrong proof ends the run before anything out of bounds is accessed; a correct one does not.
#[test]
fn wrong_proofs_fault_when_verified() {
    fn prove_everything(module: &Module, uniformity: &Uniformity<'_>, _: &Uniformity<'_>) -> HashSet<ValueId> {
        let mut all = HashSet::new();
        for (id, activation) in uniformity.activations.iter().enumerate() {
            let pointers =
                activation.function.expressions.iter().filter(|(handle, _)| {
                    pointee(module, activation.info[*handle].ty.inner_with(&module.types)).is_some()
                });
            all.extend(pointers.map(|(handle, _)| (id, handle)));
        }
        all
    }
    const CANARY: u32 = 0xdead_beef;
    let compiler = Compiler::new().unwrap();
    let ends = |body: &str, prove: BoundsProver| {
        let (module, info) = parse(&kernel(body));
        let options = Options { elide_bounds_checks: true, verify_elided_checks: true, ..Options::default() };
        let code =
            ExecutableKernel::new(compiler.compile_with_prover(&module, &info, &options, prove).unwrap()).unwrap();
        let mut memory = vec![CANARY; 3 * 256];
        memory[256..512].fill(0);
        let buffer = BoundBuffer { data: memory[256..].as_mut_ptr().cast(), bytes: 4 * 256 };
        let run = LaunchArgs { bindings: &[buffer], workgroups: [1, 1, 1], deadline: None };
        // SAFETY: the kernel has one buffer, which nothing else accesses.
        let outcome = unsafe { code.run(&run, 0..1, &mut Scratch::default()) };
        assert!(memory[..256].iter().chain(&memory[512..]).all(|word| *word == CANARY), "{body}");
        outcome
    };
    let wrong = [
        "y[i + 1u] = 1u;",
        "y[i * 4294967295u] = 1u;",
        "y[(i * 7919u) & 511u] = 1u;",
        "y[256] = 1u;",
        "let k = y[3] + 400u; y[k] = 1u;",
        "tile[i + 9u] = 1u; y[i] = tile[i];",
        "grid[l.y + 1u][l.x] = 1u; y[i] = 1u;",
        "var v: array<u32, 4>; v[i & 7u] = 1u; y[i] = v[1];",
    ];
    for body in wrong {
        assert_eq!(ends(body, prove_everything), Outcome::Fault, "{body}");
        // Without a proof the index is clamped.
        assert_eq!(ends(body, proven), Outcome::Done, "{body}");
    }
    assert_eq!(ends("y[i] = tile[i ^ 1u];", prove_everything), Outcome::Done);
}
