//! Reads of uninitialized memory.

use super::{X_Y, Y, expect, found, found_with};
use kiln_cpu::FindingKind;
use kiln_device::{KernelFlag, KernelOptions};

#[test]
fn memory_of_a_work_group_that_nothing_was_written_to() {
    let kernel = format!(
        "{Y}var<workgroup> part: array<vec4<u32>, 4>;
        @compute @workgroup_size(2) fn main(@builtin(global_invocation_id) id: Id, @builtin(local_invocation_index) l: u32) {{
            part[l].x = l;
            workgroupBarrier();
            let first = part[0].xy;
            y[id.x] = first.x + part[3].y;
        }}"
    );
    // All of them are uninitialized again in each workgroup. A partially written vector is not reported.
    let found = found(&kernel, 4, 2);
    expect(&found, &[(FindingKind::Uninitialised, 8, Some("part"), Some(3), 0, None)]);
    assert_eq!(found[0].count, 4);
}

#[test]
fn atomics_begin_as_zeros_unless_the_kernel_does_without() {
    let kernel = format!(
        "{Y}var<workgroup> count: atomic<u32>;
        @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) l: u32) {{
            y[l] = atomicAdd(&count, 1u);
        }}"
    );
    expect(&found(&kernel, 4, 1), &[]);
    let options = KernelOptions { flags: [KernelFlag::UninitialisedWorkgroup].into(), ..KernelOptions::default() };
    let found = found_with(&kernel, 4, 1, options);
    expect(&found, &[(FindingKind::Uninitialised, 5, Some("count"), None, 0, None)]);
}

#[test]
fn a_variable_that_nothing_was_written_to() {
    let kernel = format!(
        "{X_Y}var<private> last: u32;
        @compute @workgroup_size(2) fn main(@builtin(global_invocation_id) id: Id) {{
            var sums: array<u32, 4>;
            var found: u32;
            for (var i = 0u; i < 3u; i++) {{ sums[i] = x[i]; }}
            if (id.x == 0u) {{ found = 7u; last = 1u; }}
            y[id.x] = sums[2] + sums[3 * id.x];
            y[id.x] += found;
            y[id.x] += last;
        }}"
    );
    let kind = FindingKind::Uninitialised;
    expect(
        &found(&kernel, 4, 1),
        &[
            (kind, 9, Some("sums"), Some(3), 1, None),
            (kind, 10, Some("found"), None, 1, None),
            (kind, 11, Some("last"), None, 1, None),
        ],
    );
    // A variable of a loop body is uninitialized in each iteration.
    let kernel = format!(
        "{Y}@compute @workgroup_size(2) fn main(@builtin(global_invocation_id) id: Id) {{
            for (var i = 0u; i < 2u; i++) {{
                var sum: u32;
                var zero = u32();
                if (i == id.x) {{ sum = 5u; }}
                y[id.x] = zero;
                y[id.x] += sum;
            }}
        }}"
    );
    let found = found(&kernel, 4, 1);
    expect(&found, &[(kind, 9, Some("sum"), None, 0, None)]);
    assert_eq!(found[0].count, 2);
}
