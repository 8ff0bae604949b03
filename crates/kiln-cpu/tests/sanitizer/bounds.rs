//! Indices out of bounds.

use super::{X_Y, Y, expect, found};
use kiln_cpu::FindingKind;

#[test]
fn an_index_beyond_a_buffer() {
    let kernel = format!(
        "{X_Y}@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: Id) {{
            let value = x[id.x * 2u];
            if (id.x == 1u) {{
                y[i32(id.x) - 2] = value;
            }}
        }}"
    );
    let found = found(&kernel, 10, 2);
    expect(
        &found,
        &[
            (FindingKind::OutOfBounds, 6, Some("y"), Some(u64::from(u32::MAX)), 1, None),
            (FindingKind::OutOfBounds, 4, Some("x"), Some(10), 5, None),
        ],
    );
    assert_eq!(
        found.iter().map(|finding| (finding.length, finding.count)).collect::<Vec<_>>(),
        [(Some(10), 1), (Some(10), 3)]
    );
    assert_eq!(found[1].column, 25);
    assert_eq!(
        found[0].to_string(),
        "k.wgsl:6:17: out-of-bounds: invocation (1, 0, 0) of workgroup (0, 0, 0) writes index 4294967295 (-1) of `y`, which has 10 \
         elements"
    );
    let second = found[1].invocation;
    assert_eq!((second.global_id, second.local_index, second.workgroup_id), ([5, 0, 0], 1, [1, 0, 0]));
}

/// Two faults in one line are two findings.
#[test]
fn two_indices_of_one_line() {
    let kernel = format!(
        "{Y}var<workgroup> tile: array<u32, 8>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {{
            tile[l] = l;
            workgroupBarrier();
            y[l] = tile[l + 1u] + tile[i32(l) - 1];
        }}"
    );
    let kind = FindingKind::OutOfBounds;
    let minus_one = Some(u64::from(u32::MAX));
    expect(
        &found(&kernel, 8, 1),
        &[(kind, 7, Some("tile"), minus_one, 0, None), (kind, 7, Some("tile"), Some(8), 7, None)],
    );
}

#[test]
fn an_index_beyond_arrays_of_known_lengths() {
    let kernel = format!(
        "{Y}var<workgroup> tile: array<array<u32, 3>, 2>;
        @compute @workgroup_size(1) fn main(@builtin(num_workgroups) n: Id, @builtin(workgroup_id) g: Id) {{
            var own = array<u32, 4>(1, 2, 3, 4);
            tile[n.x][0] = 5u;
            tile[1][n.x + 1u] = own[n.x + 2u];
            let value = array<u32, 2>(1, 2);
            y[g.x] = value[n.x];
            atomicAdd(&counts[n.x], 1u);
        }}
        var<workgroup> counts: array<atomic<u32>, 2>;"
    );
    let found = found(&kernel, 2, 2);
    let kind = FindingKind::OutOfBounds;
    expect(
        &found,
        &[
            (kind, 6, Some("tile"), Some(2), 0, None),
            (kind, 7, Some("own"), Some(4), 0, None),
            (kind, 7, Some("tile"), Some(3), 0, None),
            (kind, 9, None, Some(2), 0, None),
            (kind, 10, Some("counts"), Some(2), 0, None),
        ],
    );
    assert_eq!(found.iter().map(|finding| finding.length.unwrap()).collect::<Vec<_>>(), [2, 4, 3, 2, 2]);
}
