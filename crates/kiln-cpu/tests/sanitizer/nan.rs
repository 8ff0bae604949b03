//! NaN computed from numbers that are not NaN.

use super::{expect, found};
use kiln_cpu::FindingKind;

#[test]
fn nan_made_of_numbers_that_reaches_memory() {
    let kernel = |value: &str| {
        format!(
            "@group(0) @binding(1) var<storage, read_write> y: array<f32>;
            @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: Id) {{
                let f = f32(id.x);
                let value = {value};
                y[id.x] = value + 1.0;
            }}"
        )
    };
    let kind = FindingKind::NotANumber;
    let found_sqrt = found(&kernel("sqrt(1.0 - f)"), 4, 1);
    expect(&found_sqrt, &[(kind, 5, Some("y"), Some(2), 2, None)]);
    assert_eq!(
        found_sqrt[0].message,
        "invocation (2, 0, 0) of workgroup (0, 0, 0) computes NaN from -1; line 6 writes it to `y[2]`"
    );
    assert_eq!(found_sqrt[0].count, 2);
    let found_quotient = found(&kernel("exp(f * 1000.0) / exp(f * 1000.0)"), 4, 1);
    expect(&found_quotient, &[(kind, 5, Some("y"), Some(1), 1, None)]);
    assert!(found_quotient[0].message.contains("computes NaN from inf and inf"), "{}", found_quotient[0]);
    // A number on this processor, and NaN on most GPUs.
    expect(&found(&kernel("pow(1.0 - f, 2.0)"), 4, 1), &[(kind, 5, Some("y"), Some(2), 2, None)]);
    // A value that is not selected is unused, and a NaN that was read was not computed here.
    expect(&found(&kernel("select(f / f, 0.0, f == 0.0)"), 4, 1), &[]);
    expect(&found(&kernel("bitcast<f32>(0x7fc00001u + id.x) * 2.0"), 4, 1), &[]);
}

/// All invocations compute NaN and one writes its own: the finding names that invocation, not the last.
#[test]
fn nan_is_attributed_to_the_invocation_that_stored_it() {
    let kernel = "@group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {
            let root = sqrt(-1.0 - f32(l));
            workgroupBarrier();
            if (l == 3u) { y[l] = root; }
        }";
    let found = found(kernel, 8, 1);
    expect(&found, &[(FindingKind::NotANumber, 4, Some("y"), Some(3), 3, None)]);
    assert!(found[0].message.ends_with("computes NaN from -4; line 6 writes it to `y[3]`"), "{}", found[0]);
}

/// A subgroup sum or product of numbers that is NaN is reported for every invocation; one of operands that are NaN is not.
#[test]
fn nan_made_by_a_subgroup() {
    let kernel = |value: &str| {
        format!(
            "@group(0) @binding(1) var<storage, read_write> y: array<f32>;
            @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {{
                let huge = select(-1.0, 1.0, l < 4u) * exp(f32(l) * 1000.0 + 100.0);
                var value = 1.0;
                {value}
                y[l] = value;
            }}"
        )
    };
    let made = [(FindingKind::NotANumber, 6, Some("y"), Some(0), 0, None)];
    let all = found(&kernel("value = subgroupAdd(huge);"), 8, 1);
    expect(&all, &made);
    assert_eq!(all[0].count, 8);
    expect(&found(&kernel("value = subgroupAdd(vec2(1.0, huge)).y;"), 8, 1), &made);
    expect(&found(&kernel("value = subgroupMul(select(huge, 0.0, l == 5u));"), 8, 1), &made);
    // The first invocation that has seen both infinities.
    let scanned = found(&kernel("value = subgroupInclusiveAdd(huge);"), 8, 1);
    expect(&scanned, &[(FindingKind::NotANumber, 6, Some("y"), Some(4), 4, None)]);
    expect(&found(&kernel("value = subgroupAdd(abs(huge));"), 8, 1), &[]);
    expect(&found(&kernel("if (l < 4u) { value = subgroupAdd(huge); }"), 8, 1), &[]);
    expect(&found(&kernel("value = subgroupAdd(bitcast<f32>(0x7fc00001u + l));"), 8, 1), &[]);
}

/// A kernel with the invocation's index as a float, so that `f / f` is NaN only in the first invocation.
fn on_floats(body: &str) -> String {
    format!(
        "@group(0) @binding(1) var<storage, read_write> y: array<u32>; var<workgroup> tile: array<f32, 4>;
        fn share(part: f32) -> u32 {{ return u32(part * 2.0); }}
        fn is_much(part: f32) -> bool {{ if (part > 0.5) {{ return true; }} return false; }}
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) l: u32) {{
            let f = f32(l); let both = vec2(f, 1.0);
            {body}
            if (l == 9u) {{ y[l] = 0u; }}
        }}"
    )
}

#[test]
fn nan_made_of_numbers_that_decides_something() {
    let table = [
        // A branch, alone or with other conditions.
        ("if (f / f > 0.5) { y[l] = 1u; }", None),
        ("let part = f / f; if (l < 4u && part > 0.5) { y[l] = 1u; }", None),
        ("if (any(both / f < vec2(2.0))) { y[l] = 1u; }", None),
        ("let part = f / f; if (!(part > 0.5) & (l < 4u)) { y[l] = 1u; }", None),
        ("for (var x = 0.0; x < f / f; x += 1.0) { y[l] = 1u; }", None),
        ("switch (i32(f / f)) { case 1: { y[l] = 1u; } default: { } }", None),
        ("loop { y[l] = 1u; continuing { break if f / f <= 2.0 || true; } }", None),
        ("if (f / f > 0.5) { workgroupBarrier(); }", None),
        // An index.
        ("y[u32(f / f)] = 1u;", Some("y")),
        ("tile[l] = f; let one = tile[u32(f / f) / 2u]; if (one > 9.0) { y[l] = 1u; }", Some("tile")),
        // A stored value that was selected, clamped or converted.
        ("y[l] = u32(f / f);", Some("y")),
        ("y[l] = select(1u, 2u, f / f > 0.5);", Some("y")),
        ("tile[l] = clamp(f / f, 0.0, 1.0);", Some("tile")),
        ("tile[l] = max(f / f, 0.0) * 2.0;", Some("tile")),
        ("tile[l] = (min(both / f, vec2(1.0)) + 1.0).x;", Some("tile")),
        // Through variables and functions.
        ("var most = 0.0; most = max(most, f / f); tile[l] = most;", Some("tile")),
        ("var is_more = false; is_more = f / f > 0.5; if (is_more) { y[l] = 1u; }", None),
        ("y[l] = share(f / f);", Some("y")),
        ("if (is_much(f / f)) { y[l] = 1u; }", None),
    ];
    for (body, variable) in table {
        let found = found(&on_floats(body), 4, 1);
        let found: Vec<_> = found.iter().filter(|finding| finding.kind == FindingKind::NotANumber).collect();
        let [finding, ..] = found[..] else { panic!("nothing was found: {body}") };
        assert_eq!((finding.line, finding.variable.as_deref()), (7, variable), "{body}\n{finding}");
        assert_eq!((finding.invocation.local_index, finding.count), (0, 1), "{body}\n{finding}");
    }
    let messages = [
        ("if (part > 0.5) { y[l] = 1u; }", "it decides the branch in line 8"),
        ("y[u32(part) * l] = 1u;", "it decides the index of `y` in line 8"),
        ("y[l] = u32(part);", "it decides the value that line 8 writes to `y[0]`"),
    ];
    for (body, message) in messages {
        let found = found(&on_floats(&format!("let part = f / f;\n{body}")), 4, 1);
        let expected = format!("invocation (0, 0, 0) of workgroup (0, 0, 0) computes NaN from 0 and 0; {message}");
        assert_eq!(
            found.iter().map(|finding| (&finding.message, finding.other_line)).collect::<Vec<_>>(),
            [(&expected, Some(8))]
        );
    }
}

/// NaN that the kernel tests for, or that is unused.
#[test]
fn nan_that_decides_nothing_is_silent() {
    let table = [
        "let part = f / f; if (part != part) { y[l] = 1u; }",
        "var part = f / f; if (!(part == part)) { part = 0.0; } y[l] = u32(part);",
        "var parts = array<f32, 2>(f / f, 1.0); if (parts[l / 4u] != parts[l / 4u]) { y[l] = 1u; }",
        "let part = f / f; y[l] = select(u32(part), 0u, part != part);",
        "let part = f / f; if ((bitcast<u32>(part) & 0x7fffffffu) > 0x7f800000u) { y[l] = 1u; }",
        // Guards.
        "y[l] = u32(select(log(f - 1.0), 0.0, f - 1.0 <= 0.0));",
        "y[l] = select(u32(f / f), 0u, l == 0u);",
        "tile[l] = select(clamp(f / f, 0.0, 1.0), 0.0, f == 0.0);",
        "let parts = select(clamp(both / f, vec2(0.0), vec2(1.0)), vec2(0.0), vec2(true, f == 0.0)); tile[l] = parts.y;",
        "let part = f / f; if (f != 0.0 && part > 0.5) { y[l] = 1u; }",
        "let part = f / f; if ((f != 0.0) & (part > 0.5)) { y[l] = 1u; }",
        "let part = f / f; if ((part > 0.5) | (f == 0.0)) { y[l] = 1u; }",
        "let part = u32(f / f); if (f != 0.0) { y[part] = part; }",
        "var part = f / f; var is_more = part > 0.5; if (f == 0.0) { is_more = false; } if (is_more) { y[l] = 1u; }",
        // A value of another invocation, after a barrier.
        "var is_more = (f - 3.0) / (f - 3.0) > 0.5; workgroupBarrier(); if (l == 3u) { is_more = false; } if (is_more) { y[l] = 1u; }",
        // One component of a vector; the other is a number.
        "let parts = vec2(f / f, 1.0); if (parts.y > 0.5) { y[u32(parts.y)] = 0u; }",
        "let parts = vec2<u32>(vec2(f / f, 1.0)); if (l == 0u) { y[parts.y] = parts.y; }",
        // A NaN that was read was not computed here.
        "let part = bitcast<f32>(0x7fc00001u + l); if (part > 0.5) { y[l] = 1u; }",
    ];
    for body in table {
        let found = found(&on_floats(body), 4, 1);
        let found: Vec<String> =
            (found.iter()).filter(|finding| finding.kind == FindingKind::NotANumber).map(ToString::to_string).collect();
        assert!(found.is_empty(), "{body}\n{}", found.join("\n"));
    }
}
