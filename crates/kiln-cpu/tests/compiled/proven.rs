//! Elided bounds checks: programs whose indices look as if they were in bounds, with guard values around the buffer.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_device::{Device, Grid, KernelOptions, KernelSource, Optimisation};

/// The guard value around the buffer that a kernel writes.
const CANARY: u32 = 0xdead_beef;
/// Words before the buffer, a multiple of its alignment.
const BEFORE: usize = 64;

/// Runs a kernel in every mode: with all checks and without proven ones, with invocations in SIMD lanes and one at a time. Its buffer
/// `y` is part of a larger one, whose rest must not change. Each mode gives `expected(index)` for each element.
#[track_caller]
fn check(body: &str, size: &str, len: usize, groups: [u32; 3], expected: impl Fn(u32) -> u32) {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @group(0) @binding(2) var<uniform> n: u32;
        var<workgroup> tile: array<u32, 64>;
        var<workgroup> after: array<u32, 64>;
        @compute @workgroup_size({size}) fn main(
            @builtin(global_invocation_id) id: vec3<u32>,
            @builtin(local_invocation_id) l: vec3<u32>,
            @builtin(local_invocation_index) i: u32,
            @builtin(workgroup_id) g: vec3<u32>,
        ) {{ {body} }}"
    );
    let expected: Vec<u32> = (0..len as u32).map(expected).collect();
    let open = |simd: Option<SimdLevel>| {
        let options = CpuOptions::new().threads(2);
        kiln_cpu::open(simd.into_iter().fold(options, CpuOptions::simd)).unwrap()
    };
    for device in [open(None), open(Some(SimdLevel::Scalar))] {
        for optimisation in [Optimisation::None, Optimisation::Full] {
            for bounds_checks in [true, false] {
                let options = KernelOptions { optimisation, bounds_checks, ..KernelOptions::default() };
                let found = run(&device, KernelSource::wgsl(&*text).options(options), len, groups);
                assert_eq!(found, expected, "{optimisation:?}, bounds_checks {bounds_checks}: {body}");
            }
        }
    }
}

fn run(device: &Device, source: KernelSource, len: usize, groups: [u32; 3]) -> Vec<u32> {
    let kernel = device.kernel(source).unwrap();
    let bindings = kernel.reflection().bindings.clone();
    let uses = |name: &str| bindings.iter().any(|binding| binding.name == name);
    let x = device.buffer_from(&(0..len as u32).map(|i| i * 3).collect::<Vec<u32>>()).unwrap();
    let all = device.buffer_from(&vec![CANARY; BEFORE + len + 64]).unwrap();
    let mut y = all.slice(BEFORE..BEFORE + len).unwrap();
    y.write(&vec![7; len]).unwrap();
    let mut launch = kernel.launch().bind("y", &mut y).grid(Grid::workgroups(groups));
    if uses("x") {
        launch = launch.bind("x", &x);
    }
    if uses("n") {
        launch = launch.value("n", 1_000_000u32);
    }
    launch.submit().unwrap();
    let found = all.read().unwrap();
    let around = found[..BEFORE].iter().chain(&found[BEFORE + len..]);
    assert!(around.copied().all(|word| word == CANARY), "memory around the buffer was written");
    found[BEFORE..][..len].to_vec()
}

/// All invocations take the same branch by varying values, so its code is emitted without masks, and leave a loop by a uniform value:
/// the code after it has no active lanes.
#[test]
fn lanes_that_leave_by_a_uniform_guard_stay_inactive() {
    let guard = "k >= arrayLength(&y)";
    let rest = "y[k] = 1u; y[i] = 2u;";
    let in_loop = |body: &str| format!("for (var r = 0u; r < 2u; r++) {{ if (x[i] < 1000u) {{ {body} {rest} }} }}");
    let bodies = [
        format!("switch (x[i] / 1000u) {{ case 0u: {{ if ({guard}) {{ break; }} {rest} }} default: {{ }} }}"),
        in_loop(&format!("if ({guard}) {{ break; }}")),
        in_loop(&format!("if ({guard}) {{ continue; }}")),
        in_loop("if (k < arrayLength(&y)) { } else { break; }"),
        in_loop(&format!("if (n > 5u) {{ if ({guard}) {{ break; }} }}")),
        in_loop(&format!("switch (n) {{ case 5u: {{ }} default: {{ if ({guard}) {{ continue; }} }} }}")),
        in_loop("switch (k / 16u) { case 0u: { } default: { continue; } }"),
    ];
    for body in bodies {
        check(&format!("let k = n - 999980u; {body}"), "8", 16, [1, 1, 1], |_| 7);
        // The same with an index in bounds.
        let inside = format!("let k = n - 999988u; {body}");
        check(&inside, "8", 16, [1, 1, 1], |at| {
            if at == 12 {
                1
            } else if at < 8 {
                2
            } else {
                7
            }
        });
    }
}

/// Functions from which all invocations return at once, between barriers, and uniform conditions returned by such functions: an invocation
/// that has returned stays inactive, and none takes a branch that was proven not taken. Code after `main` follows its end.
#[test]
fn returns_and_decisions_of_functions_with_barriers() {
    let check = |body: &str, expected: fn(u32) -> u32| check(body, "8", 8, [1, 1, 1], expected);
    check(
        "idx = 3u; tile[i] = i; f(n); tile[idx] = 9u; let q = tile[idx]; workgroupBarrier(); y[i] = q; }
        var<private> idx: u32; fn f(n: u32) { workgroupBarrier(); if (n >= 64u) { return; } idx = n;",
        |_| 9,
    );
    check(
        "y[i] = f(i); } fn f(l: u32) -> u32 { tile[l] = l; workgroupBarrier(); if (n == 1000000u) { return 5u; } return 9u;",
        |_| 5,
    );
    check(
        "y[i] = f(i); } fn f(l: u32) -> u32 { tile[l] = l; workgroupBarrier();
            for (var k = 0u; k < 8u; k++) { if (tile[k] == n - 999997u) { return k; } } return 77u;",
        |_| 3,
    );
    check(
        "tile[i] = i; workgroupBarrier(); var k = 0u; loop { if (k >= 3u) { y[i] = k + tile[7u - i]; return; } k++; }",
        |i| 3 + 7 - i,
    );
    check(
        "let k = n; var r = 0u; if (f(k)) { workgroupBarrier(); r = 1u; } else { tile[k] = 5u; r = tile[k]; } y[i] = r; }
        fn f(k: u32) -> bool { workgroupBarrier(); return k >= 64u;",
        |_| 1,
    );
    check(
        "switch (f(i)) { case 5u: { workgroupBarrier(); y[i] = 1u; } default: { y[i] = 2u; } } }
        fn f(l: u32) -> u32 { tile[l] = l; workgroupBarrier(); return workgroupUniformLoad(&tile[5]);",
        |_| 1,
    );
    check(
        "var k = 0u; loop { workgroupBarrier(); continuing { k++; break if f(k); } } y[i] = k; }
        fn f(k: u32) -> bool { workgroupBarrier(); return k >= 3u;",
        |_| 3,
    );
    check(
        "y[i] = 2u; h(f(i), i); } fn f(l: u32) -> bool { tile[l] = l; workgroupBarrier(); return tile[1] == 1u; }
        fn h(goes: bool, l: u32) { if (goes) { workgroupBarrier(); y[l] = 1u; }",
        |_| 1,
    );
}

/// Pointers created before a barrier and used after it: to nested elements, out of bounds, to buffers, workgroup and private memory,
/// and as arguments of functions with barriers.
#[test]
fn pointers_across_barriers() {
    let check = |body: &str, expected: fn(u32) -> u32| check(body, "8", 8, [1, 1, 1], expected);
    check(
        "let p = &rows[i / 4u][i % 4u]; let q = &y[i]; workgroupBarrier(); *p = i + 3u; workgroupBarrier(); *q = *p + rows[1][3]; }
        var<workgroup> rows: array<array<u32, 4>, 2>; fn nothing() {",
        |i| i + 3 + 10,
    );
    // Out-of-bounds indices are clamped to the last row and its last element.
    check(
        "let p = &rows[i * 1000u][i * 1000u]; workgroupBarrier(); if (i == 5u) { *p = 4u; } workgroupBarrier(); y[i] = rows[1][3] + rows[0][i % 3u + 1u]; }
        var<workgroup> rows: array<array<u32, 4>, 2>; fn nothing() {",
        |_| 4,
    );
    check(
        "var own: array<array<u32, 3>, 5>; let p = &own[i % 5u][i % 3u]; workgroupBarrier(); *p = i; workgroupBarrier();
        let q = &y[7u - i]; workgroupBarrier(); *q = *p + own[i % 5u][(i + 1u) % 3u];",
        |i| 7 - i,
    );
    // Members of the last element of the last row.
    for space in ["var<workgroup>", "var<private>"] {
        check(
            &format!(
                "let k = n - 999999u; let p = &rows[k][i & 3u].b; workgroupBarrier(); if (i < 4u) {{ *p = i + 1u; }} workgroupBarrier();
                y[i] = rows[1][i & 3u].b * 10u + rows[1][i & 3u].a; }}
                struct S {{ a: u32, b: u32 }} {space} rows: array<array<S, 4>, 2>; fn nothing() {{"
            ),
            if space == "var<workgroup>" { |i| ((i & 3) + 1) * 10 } else { |i| if i < 4 { (i + 1) * 10 } else { 0 } },
        );
    }
    check(
        "var own: array<vec4<u32>, 3>; f(&own, i); y[i] = own[i % 3u][i % 4u]; }
        fn f(own: ptr<function, array<vec4<u32>, 3>>, i: u32) {
            let p = &(*own)[i % 3u]; workgroupBarrier(); (*p)[i % 4u] = i + 1u; workgroupBarrier(); *p += vec4(1u);",
        |i| i + 2,
    );
}

/// A uniform switch within a loop that invocations leave at different times: a `break` leaves the switch.
#[test]
fn a_break_of_a_switch_is_not_of_the_loop_around() {
    check(
        "for (var k = 0u; k < (i & 3u); k++) { if (i != 99u) { tile[i] += 1u;
            switch (n) { case 1000000u: { if (n < 2000000u) { break; } y[i] += 1u; } default: { y[i] += 2u; } } } }
        y[i] = tile[i];",
        "8",
        8,
        [1, 1, 1],
        |i| i & 3,
    );
}

/// Lengths around those of a vector and a workgroup, with each form of guard.
#[test]
fn guards_of_lengths_that_fill_no_vector() {
    for len in [1, 3, 7, 8, 9, 15, 16, 63, 64, 65, 100] {
        let tripled = |i: u32| i * 3 + 7;
        check("if (id.x < arrayLength(&y)) { y[id.x] += x[id.x]; }", "64", len, [2, 1, 1], tripled);
        check("if (id.x >= arrayLength(&y)) { return; } y[id.x] += x[id.x];", "64", len, [2, 1, 1], tripled);
        check(
            "let k = id.x; if (k < arrayLength(&y) && k < arrayLength(&x)) { y[k] += x[k]; }",
            "20",
            len,
            [5, 1, 1],
            tripled,
        );
        // The last element of one vector is the first of another.
        check("if (id.x < arrayLength(&y)) { y[id.x] += x[id.x]; }", "12", len, [9, 1, 1], tripled);
        check("for (var k = id.x; k < arrayLength(&y); k += 16u) { y[k] += x[k]; }", "16", len, [1, 1, 1], tripled);
        check(
            "for (var k = 0u; k < arrayLength(&y); k++) { if (k == id.x) { y[k] = k; } }",
            "10",
            len,
            [10, 1, 1],
            |i| i,
        );
        // Half of a vector is out of bounds, with a nested branch.
        let odd = |i: u32| if i % 2 == 1 { 1 } else { 9 };
        check(
            "if (id.x < arrayLength(&y)) { if (id.x % 2u == 1u) { y[id.x] = 1u; } else { y[id.x] = 9u; } }",
            "32",
            len,
            [4, 1, 1],
            odd,
        );
        let returned = |i: u32| if i.is_multiple_of(3) { 1 } else { 2 };
        let body =
            "if (id.x >= arrayLength(&y)) { return; } if (id.x % 3u == 0u) { y[id.x] = 1u; return; } y[id.x] = 2u;";
        check(body, "8", len, [13, 1, 1], returned);
    }
}

/// Conditions that look like guards but are not: out-of-bounds accesses are clamped to the last element, as with all checks.
#[test]
fn out_of_bounds_accesses_are_still_clamped() {
    let last_is = |value: u32| move |i: u32| if i == 9 { value } else { 7 };
    // Wraps around: 0, then 2^32 - 1 and down.
    check("y[id.x * 4294967295u] = 1u;", "8", 10, [1, 1, 1], |i| if i == 0 || i == 9 { 1 } else { 7 });
    check("let k = id.x * 4294967295u; if (id.x < arrayLength(&y)) { y[k] = 1u; }", "8", 10, [1, 1, 1], |i| {
        if i == 0 || i == 9 { 1 } else { 7 }
    });
    // One too far.
    check("if (id.x <= arrayLength(&y)) { y[id.x] = 1u; }", "8", 10, [8, 1, 1], |_| 1);
    check("if (id.x + 9u < arrayLength(&y) * 2u) { y[id.x + 9u] = id.x * 0u + 3u; }", "8", 10, [8, 1, 1], last_is(3));
    // Below zero.
    check("let k = i32(id.x) - 8; if (k < 3) { y[k] = 4u; }", "16", 10, [1, 1, 1], |i| match i {
        0..=2 | 9 => 4,
        _ => 7,
    });
    // The length of another buffer, and a constant.
    check("if (id.x < n) { y[id.x + 9u] = 5u; }", "8", 10, [8, 1, 1], last_is(5));
    check("if (id.x < arrayLength(&x) + 40u) { y[id.x + 9u] = 5u; }", "8", 10, [8, 1, 1], last_is(5));
    // Assigned between the guard and the access, in the branch or in a nested one.
    check("var k = id.x; if (k < arrayLength(&y)) { k += 9u; y[k] = 6u; }", "8", 10, [8, 1, 1], last_is(6));
    check(
        "var k = id.x; if (k < arrayLength(&y)) { if (k < 100u) { k = 4000000000u; } y[k] = 6u; }",
        "8",
        10,
        [8, 1, 1],
        last_is(6),
    );
    // After control flow joins.
    check("var k = id.x + 9u; if (k < arrayLength(&y)) { } y[k] = 8u;", "8", 10, [8, 1, 1], last_is(8));
    check("var k = 0u; if (id.x < 100u) { k = 4000000000u; } y[k + 3u] = 8u;", "8", 10, [8, 1, 1], last_is(8));
}

#[test]
fn counters_that_leave_their_loop() {
    let last_is = |value: u32| move |i: u32| if i == 9 { value } else { 7 };
    check("for (var k = 0u; k < arrayLength(&y); k++) { k += 9u; y[k] = 1u; }", "8", 10, [1, 1, 1], last_is(1));
    check(
        "for (var k = 0u; k < 10u; k++) { let j = k; k += 20u; if (id.x == 0u) { continue; } y[j + k] = 2u; }",
        "8",
        10,
        [1, 1, 1],
        last_is(2),
    );
    // Wraps around: 0, 2^31, 0 ... until the iteration count stops it.
    let body =
        "var c = 0u; for (var k = 5u; k < 4294967295u; k += 2147483648u) { y[k] = 3u; c++; if (c > 9u) { break; } }";
    check(body, "8", 10, [1, 1, 1], |i| if i == 5 || i == 9 { 3 } else { 7 });
    check(
        "var k = 0u; loop { y[k] = 4u; if (k > 4000000000u) { break; } k += 800000000u; }",
        "8",
        10,
        [1, 1, 1],
        |i| {
            if i == 0 || i == 9 { 4 } else { 7 }
        },
    );
    check("for (var k = 9; k > -5; k--) { y[k] = 5u; }", "8", 10, [1, 1, 1], |_| 5);
    // A separate counter per invocation; some have left the loop while others continue.
    check("for (var k = id.x; k < 10u; k += 3u) { y[k] = 6u; }", "24", 10, [3, 1, 1], |_| 6);
}

/// Workgroup memory: another variable follows the end of one.
#[test]
fn tiles_of_work_groups() {
    let body = "tile[i] = i; after[i] = 1000u; workgroupBarrier();
        for (var s = 32u; s > 0u; s >>= 1u) { if (i < s) { tile[i] += tile[i + s]; } workgroupBarrier(); }
        if (i < 10u) { y[i] = tile[0] + after[i]; }";
    check(body, "64", 10, [1, 1, 1], |_| 64 * 63 / 2 + 1000);
    // The full length instead of half: the last index is out of bounds.
    let body = "tile[i] = 1u; after[i] = 1000u; workgroupBarrier();
        for (var s = 64u; s > 0u; s >>= 1u) { if (i < s) { tile[i] += tile[i + s]; } workgroupBarrier(); }
        if (i < 10u) { y[i] = after[i] + tile[63]; }";
    check(body, "64", 10, [1, 1, 1], |_| 1002);
    for size in ["8, 8", "4, 16", "16, 4", "3, 21", "61", "1, 64", "5, 5, 2"] {
        let body = "tile[i] = i; after[i] = i + 100u; workgroupBarrier();
            if (id.x >= arrayLength(&y)) { return; }
            y[i % 10u] = tile[i % 10u] + after[i % 10u];";
        check(body, size, 10, [1, 1, 1], |i| 2 * i + 100);
    }
    // Prefix sums, in a workgroup whose last vector is partial.
    let body = "tile[i] = 1u; after[i] = 1000u; workgroupBarrier();
        for (var s = 1u; s < 64u; s *= 2u) {
            var add = 0u; if (i >= s) { add = tile[i - s]; } workgroupBarrier(); tile[i] += add; workgroupBarrier();
        }
        if (i < 10u) { y[i] = tile[i] + after[i]; }";
    check(body, "61", 10, [1, 1, 1], |i| i + 1001);
}

/// A condition of one invocation that decides for the workgroup, although it differs in others.
#[test]
fn a_decision_of_another_invocation() {
    let body = "let k = x[i] * 1000u; if (k < arrayLength(&y)) { workgroupBarrier(); y[k] = 1u; }";
    let text = format!(
        "@group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {{ {body} }}"
    );
    let device = kiln_cpu::open(CpuOptions::new()).unwrap();
    // The content is unspecified, because the program is invalid. It stays within its buffer.
    run(&device, KernelSource::wgsl(&*text), 10, [1, 1, 1]);
}
