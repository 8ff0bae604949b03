//! Races within and between workgroups, and accesses that are not races.

use super::{DECLARED, X_Y, Y, expect, found, open};
use kiln_cpu::FindingKind;
use kiln_device::{Grid, KernelSource};

#[test]
fn a_race_inside_of_a_work_group() {
    let kernel = |barrier: &str| {
        format!(
            "{Y}var<workgroup> part: array<u32, 8>;
            @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {{
                part[l] = l;
                {barrier}
                y[l] = part[(l + 1u) % 8u];
            }}"
        )
    };
    let found_without = found(&kernel(""), 8, 1);
    // The first invocation reads before the second writes, so it also reads uninitialized memory.
    let (race, unwritten) = (FindingKind::Race, FindingKind::Uninitialised);
    expect(
        &found_without,
        &[(unwritten, 7, Some("part"), Some(1), 0, None), (race, 5, Some("part"), Some(1), 1, Some(0))],
    );
    assert_eq!(
        found_without[1].message,
        "invocation (1, 0, 0) of workgroup (0, 0, 0) writes `part[1]`, which invocation (0, 0, 0) of workgroup (0, 0, 0) read in \
         line 7, and no `workgroupBarrier` is in between"
    );
    assert_eq!((found_without[1].other_line, found_without[1].count), (Some(7), 8));
    expect(&found(&kernel("workgroupBarrier();"), 8, 1), &[]);
    // It orders accesses to buffers, not to workgroup memory.
    assert!(found(&kernel("storageBarrier();"), 8, 1).iter().any(|finding| finding.kind == race));
}

#[test]
fn a_race_in_a_buffer_needs_the_barrier_of_buffers() {
    let kernel = |barrier: &str| {
        format!(
            "{Y}@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {{
                y[l] = l;
                {barrier}();
                y[l + 8u] = y[7u - l];
            }}"
        )
    };
    let found_other = found(&kernel("workgroupBarrier"), 16, 1);
    expect(&found_other, &[(FindingKind::Race, 6, Some("y"), Some(7), 0, Some(7))]);
    assert!(
        found_other[0].message.ends_with("wrote in line 4, and no `storageBarrier` is in between"),
        "{}",
        found_other[0]
    );
    expect(&found(&kernel("storageBarrier"), 16, 1), &[]);
}

#[test]
fn a_race_between_work_groups() {
    let kernel = format!(
        "{X_Y}@compute @workgroup_size(2) fn main(@builtin(global_invocation_id) id: Id) {{
            y[id.x / 2u] += x[id.x];
        }}"
    );
    let found_inside = found(&kernel, 4, 2);
    expect(&found_inside, &[(FindingKind::Race, 4, Some("y"), Some(0), 1, Some(0))]);
    let kernel = format!(
        "{Y}@compute @workgroup_size(2) fn main(@builtin(global_invocation_id) id: Id) {{
            y[id.x % 2u] = 1u;
        }}"
    );
    let found_between = found(&kernel, 4, 2);
    expect(&found_between, &[(FindingKind::Race, 4, Some("y"), Some(0), 2, Some(0))]);
    assert!(
        found_between[0]
            .message
            .ends_with("and workgroups of a dispatch run in no defined order, nor are these accesses atomic"),
        "{}",
        found_between[0]
    );
    assert_eq!(found_between[0].count, 2);
}

/// A grid above the limit of a dispatch runs in parts of one launch, which are not ordered for the kernel.
#[test]
fn a_race_between_parts_of_a_wide_grid() {
    let device = open();
    let last = device.info().limits.max_workgroups_per_axis + 2;
    let run = |place: &str, workgroups: [u32; 3]| {
        let text = format!(
            "{DECLARED}{Y}var<workgroup> own: u32;
            @compute @workgroup_size(1) fn main(@builtin(workgroup_id) g: Id) {{
                own = g.x + g.y;
                y[{place}] = own;
            }}"
        );
        let kernel = device.kernel(KernelSource::wgsl(text).named("k.wgsl")).unwrap();
        let mut y = device.buffer_of::<u32>(last as usize + 1).unwrap();
        // A second launch follows the first, so writes to the same words are not a race.
        for _ in 0..2 {
            kernel.launch().bind("y", &mut y).grid(Grid::workgroups(workgroups)).submit().unwrap();
        }
        kiln_cpu::take_findings(&device)
    };
    for workgroups in [[last + 1, 1, 1], [1, last + 1, 1]] {
        expect(&run("own", workgroups), &[]);
        let found = run(&format!("select(own, 2u, own == {last}u)"), workgroups);
        let at = |number: u32| workgroups.map(|count| if count == 1 { 0 } else { number });
        let [race] = &found[..] else { panic!("{found:?}") };
        assert_eq!((race.kind, race.line, race.index, race.count), (FindingKind::Race, 6, Some(2), 2));
        assert_eq!((race.invocation.workgroup_id, race.invocation.global_id), (at(last), at(last)));
        assert_eq!(race.other.unwrap().workgroup_id, at(2));
    }
}

#[test]
fn members_of_structs_and_halves_of_words_are_memory_of_their_own() {
    let kernel = "enable f16;
        struct All { total: u32, pairs: array<vec2<f16>> }
        @group(0) @binding(1) var<storage, read_write> y: All;
        @compute @workgroup_size(2) fn main(@builtin(local_invocation_index) l: u32) {
            y.pairs[0][l] = f16(l);
            if (l == 0u) { y.total = 1u; }
        }";
    let device = open();
    let run = |text: &str| {
        let kernel = device.kernel(KernelSource::wgsl(text)).unwrap();
        let mut y = device.buffer_from(&[0u32; 4]).unwrap();
        kernel.launch().bind("y", &mut y).grid(Grid::workgroups([1, 1, 1])).submit().unwrap();
        kiln_cpu::take_findings(&device)
    };
    expect(&run(kernel), &[]);
    let found = run(&kernel.replace("pairs[0][l]", "pairs[2][0]"));
    expect(&found, &[(FindingKind::Race, 5, Some("y"), Some(2), 1, Some(0))]);
    expect(&run(&kernel.replace("if (l == 0u) ", "")), &[(FindingKind::Race, 6, Some("y"), None, 1, Some(0))]);
}
