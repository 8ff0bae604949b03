//! Barriers and subgroup operations.

use super::{X_Y, Y, expect, found};
use kiln_cpu::{Finding, FindingKind};

#[test]
fn a_barrier_that_not_all_reach() {
    let kernel = |body: &str| {
        format!(
            "{X_Y}var<workgroup> part: array<u32, 8>;
            @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {{
                part[l] = x[l];
                {body}
                y[l] = part[7u - l];
            }}"
        )
    };
    let kind = FindingKind::DivergentBarrier;
    let found_if = found(&kernel("if (l < 4u) { workgroupBarrier(); }"), 8, 2);
    expect(&found_if, &[(kind, 6, None, None, 4, Some(3))]);
    assert!(found_if[0].message.contains("which is false for invocation (4, 0, 0)"), "{}", found_if[0]);
    assert_eq!((found_if[0].column, found_if[0].count), (21, 2));

    let found_return = found(&kernel("if (l == 5u) { return; }\n workgroupBarrier();"), 8, 1);
    expect(&found_return, &[(kind, 7, None, None, 0, Some(5))]);
    assert!(
        found_return[0]
            .message
            .ends_with("waits at a barrier, and invocation (5, 0, 0) of workgroup (0, 0, 0) has returned")
    );

    let found_loop = found(&kernel("for (var i = 0u; i < 4u + l / 7u; i++) { workgroupBarrier(); }"), 8, 1);
    expect(&found_loop, &[(kind, 6, None, None, 7, Some(6))]);

    let clean = "for (var i = 0u; i < 4u; i++) { if (x[0] == 0u) { workgroupBarrier(); } }\nif (l == 9u) { return; }";
    expect(&found(&kernel(&format!("{clean}\nworkgroupBarrier();")), 8, 1), &[]);
}

/// Also if a condition around a barrier differs between invocations, or is the result of a function with barriers.
#[test]
fn a_barrier_in_non_uniform_control_flow() {
    let kernel = |body: &str| {
        format!(
            "{Y}fn f(l: u32) -> bool {{ workgroupBarrier(); return l < 3u; }}
            @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {{ {body} }}"
        )
    };
    for body in [
        "switch (l) { case 0u: { workgroupBarrier(); y[l] = 1u; } default: { y[l] = 2u; } }",
        "if (f(l)) { workgroupBarrier(); y[l] = 1u; }",
    ] {
        let found = found(&kernel(body), 8, 1);
        assert!(found.iter().any(|finding| finding.kind == FindingKind::DivergentBarrier), "{body}: {found:?}");
    }
}

/// Subgroups have eight invocations, so code that relies on that is correct. A subgroup barrier orders accesses within the subgroup only.
#[test]
fn subgroups_while_they_are_watched() {
    let sums = format!(
        "{X_Y}var<workgroup> sums: array<u32, 3>;
        @compute @workgroup_size(20) fn main(@builtin(local_invocation_index) l: u32, @builtin(subgroup_id) id: u32,
            @builtin(subgroup_invocation_id) lane: u32, @builtin(num_subgroups) count: u32) {{
            let sum = subgroupAdd(x[l]);
            if (lane == 0u) {{ sums[id] = sum; }}
            workgroupBarrier();
            if (id == 0u) {{
                var part = 0u;
                if (lane < count) {{ part = sums[lane]; }}
                let total = subgroupAdd(part);
                if (lane == 0u) {{ y[0] = total; }}
            }}
        }}"
    );
    expect(&found(&sums, 20, 1), &[]);
    let wrong = sums.replace("array<u32, 3>", "array<u32, 2>");
    expect(&found(&wrong, 20, 1)[..1], &[(FindingKind::OutOfBounds, 7, Some("sums"), Some(2), 16, None)]);

    let exchange = |barrier: &str, from: &str| {
        format!(
            "{Y}var<workgroup> tile: array<u32, 16>;
            @compute @workgroup_size(16) fn main(@builtin(local_invocation_index) l: u32) {{
                tile[l] = l;
                {barrier}
                y[l] = tile[{from}];
            }}"
        )
    };
    expect(&found(&exchange("subgroupBarrier();", "l ^ 1u"), 16, 1), &[]);
    let race = |found: &[Finding]| found.iter().any(|finding| finding.kind == FindingKind::Race);
    assert!(race(&found(&exchange("", "l ^ 1u"), 16, 1)));
    assert!(race(&found(&exchange("subgroupBarrier();", "l ^ 8u"), 16, 1)), "it is of another subgroup");
    assert!(race(&found(&exchange("if (l < 8u) { subgroupBarrier(); }", "l ^ 1u"), 16, 1)), "others pass none");
}
