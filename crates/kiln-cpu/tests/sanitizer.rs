//! R2: the sanitizer finds each kind of planted fault where it is, and nothing in kernels that are sound.
#![cfg(all(not(loom), feature = "wgsl"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use kiln_cpu::{CpuOptions, Finding, FindingKind};
use kiln_runtime::{Device, Grid, KernelFlag, KernelOptions, KernelSource};

fn open() -> Device {
    kiln_cpu::open(CpuOptions::new().sanitized(true)).unwrap()
}

/// What is found in a kernel that writes `y`, of `len` words, with a read-only `x` beside it where it has one.
fn found(text: &str, len: u32, workgroups: u32) -> Vec<Finding> {
    found_with(text, len, workgroups, KernelOptions::default())
}

fn found_with(text: &str, len: u32, workgroups: u32, options: KernelOptions) -> Vec<Finding> {
    let device = open();
    let source = KernelSource::wgsl(format!("{DECLARED}{text}")).named("k.wgsl").options(options);
    let kernel = device.kernel(source).unwrap();
    let x = device.buffer_from(&(0..len).collect::<Vec<u32>>()).unwrap();
    let mut y = device.buffer(4 * u64::from(len)).unwrap();
    y.zero().unwrap();
    let mut launch = kernel.launch().bind("y", &mut y).grid(Grid::workgroups([workgroups, 1, 1]));
    if kernel.reflection().bindings.iter().any(|binding| binding.name == "x") {
        launch = launch.bind("x", &x);
    }
    launch.submit().unwrap();
    kiln_cpu::take_findings(&device)
}

/// One line, so that line 2 is the first of a test.
const DECLARED: &str = "alias Id = vec3<u32>;\n";
const Y: &str = "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n";
const X_Y: &str = "@group(0) @binding(0) var<storage, read> x: array<u32>; @group(0) @binding(1) var<storage, read_write> y: array<u32>;\n";

/// Kind, line, variable, index, and the first numbers of both invocations.
type Row<'a> = (FindingKind, u32, Option<&'a str>, Option<u64>, u32, Option<u32>);

fn row(finding: &Finding) -> Row<'_> {
    let Finding { kind, line, variable, index, invocation, other, .. } = finding;
    (*kind, *line, variable.as_deref(), *index, invocation.global_id[0], other.map(|other| other.global_id[0]))
}

#[track_caller]
fn expect(found: &[Finding], expected: &[Row<'_>]) {
    let all: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.iter().map(row).collect::<Vec<_>>(), expected, "{}", all.join("\n"));
}

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
        "k.wgsl:6:17: out-of-bounds: invocation (1, 0, 0) of work-group (0, 0, 0) writes index 4294967295 (-1) of `y`, which has 10 \
         elements"
    );
    let second = found[1].invocation;
    assert_eq!((second.global_id, second.local_index, second.workgroup_id), ([5, 0, 0], 1, [1, 0, 0]));
}

/// Two faults in one line are two.
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
    // The first one reads before the second one writes, which nothing was written to then.
    let (race, unwritten) = (FindingKind::Race, FindingKind::Uninitialised);
    expect(
        &found_without,
        &[(unwritten, 7, Some("part"), Some(1), 0, None), (race, 5, Some("part"), Some(1), 1, Some(0))],
    );
    assert_eq!(
        found_without[1].message,
        "invocation (1, 0, 0) of work-group (0, 0, 0) writes `part[1]`, which invocation (0, 0, 0) of work-group (0, 0, 0) read in \
         line 7, and no `workgroupBarrier` is in between"
    );
    assert_eq!((found_without[1].other_line, found_without[1].count), (Some(7), 8));
    expect(&found(&kernel("workgroupBarrier();"), 8, 1), &[]);
    // It orders buffers, and not the memory of the work-group.
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
            .ends_with("and work-groups of a dispatch run in no order, nor are these accesses atomic"),
        "{}",
        found_between[0]
    );
    assert_eq!(found_between[0].count, 2);
}

/// A grid above the limit of a dispatch runs in parts, which are one launch: nothing orders them for the kernel.
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
        // A second launch comes behind the first one: that it writes the same words is no race.
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
    // All of them begin anew with each work-group. A vector of which a part was written is no fault.
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
    // In a loop it begins anew with each round.
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
            .ends_with("waits at a barrier, and invocation (5, 0, 0) of work-group (0, 0, 0) has returned")
    );

    let found_loop = found(&kernel("for (var i = 0u; i < 4u + l / 7u; i++) { workgroupBarrier(); }"), 8, 1);
    expect(&found_loop, &[(kind, 6, None, None, 7, Some(6))]);

    let clean = "for (var i = 0u; i < 4u; i++) { if (x[0] == 0u) { workgroupBarrier(); } }\nif (l == 9u) { return; }";
    expect(&found(&kernel(&format!("{clean}\nworkgroupBarrier();")), 8, 1), &[]);
}

/// Subgroups are of eight, so that what relies on it is sound; a barrier of theirs orders what they do, and nothing else.
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
}

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
        "invocation (2, 0, 0) of work-group (0, 0, 0) makes NaN of -1, which line 6 writes to `y[2]`"
    );
    assert_eq!(found_sqrt[0].count, 2);
    let found_quotient = found(&kernel("exp(f * 1000.0) / exp(f * 1000.0)"), 4, 1);
    expect(&found_quotient, &[(kind, 5, Some("y"), Some(1), 1, None)]);
    assert!(found_quotient[0].message.contains("makes NaN of inf and inf"), "{}", found_quotient[0]);
    // A number on this processor, and NaN on most GPUs.
    expect(&found(&kernel("pow(1.0 - f, 2.0)"), 4, 1), &[(kind, 5, Some("y"), Some(2), 2, None)]);
    // Nobody sees the one that is not selected, and what comes in as NaN was not made here.
    expect(&found(&kernel("select(f / f, 0.0, f == 0.0)"), 4, 1), &[]);
    expect(&found(&kernel("bitcast<f32>(0x7fc00001u + id.x) * 2.0"), 4, 1), &[]);
}

/// All make NaN, and one of them writes: its own, not that of who came last.
#[test]
fn nan_is_of_who_made_it() {
    let kernel = "@group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {
            let root = sqrt(-1.0 - f32(l));
            workgroupBarrier();
            if (l == 3u) { y[l] = root; }
        }";
    let found = found(kernel, 8, 1);
    expect(&found, &[(FindingKind::NotANumber, 4, Some("y"), Some(3), 3, None)]);
    assert!(found[0].message.ends_with("makes NaN of -4, which line 6 writes to `y[3]`"), "{}", found[0]);
}

/// A kernel with the number of each invocation as a float, 0 first, so that `f / f` is NaN for the first one alone.
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
        // A branch, also behind what else it takes.
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
        // What is written: a number that was chosen, cut off or converted.
        ("y[l] = u32(f / f);", Some("y")),
        ("y[l] = select(1u, 2u, f / f > 0.5);", Some("y")),
        ("tile[l] = clamp(f / f, 0.0, 1.0);", Some("tile")),
        ("tile[l] = max(f / f, 0.0) * 2.0;", Some("tile")),
        ("tile[l] = (min(both / f, vec2(1.0)) + 1.0).x;", Some("tile")),
        // On the way: variables, functions.
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
        ("if (part > 0.5) { y[l] = 1u; }", "decides the way that line 8 goes"),
        ("y[u32(part) * l] = 1u;", "decides the index of `y` in line 8"),
        ("y[l] = u32(part);", "decides what line 8 writes to `y[0]`"),
    ];
    for (body, message) in messages {
        let found = found(&on_floats(&format!("let part = f / f;\n{body}")), 4, 1);
        let expected = format!("invocation (0, 0, 0) of work-group (0, 0, 0) makes NaN of 0 and 0, which {message}");
        assert_eq!(
            found.iter().map(|finding| (&finding.message, finding.other_line)).collect::<Vec<_>>(),
            [(&expected, Some(8))]
        );
    }
}

/// NaN that was looked for, or that nobody uses.
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
        // One of another invocation, behind a barrier.
        "var is_more = (f - 3.0) / (f - 3.0) > 0.5; workgroupBarrier(); if (l == 3u) { is_more = false; } if (is_more) { y[l] = 1u; }",
        // One of a vector, which is not the other.
        "let parts = vec2(f / f, 1.0); if (parts.y > 0.5) { y[u32(parts.y)] = 0u; }",
        "let parts = vec2<u32>(vec2(f / f, 1.0)); if (l == 0u) { y[parts.y] = parts.y; }",
        // What came in as NaN was not made here.
        "let part = bitcast<f32>(0x7fc00001u + l); if (part > 0.5) { y[l] = 1u; }",
    ];
    for body in table {
        let found = found(&on_floats(body), 4, 1);
        let found: Vec<String> =
            (found.iter()).filter(|finding| finding.kind == FindingKind::NotANumber).map(ToString::to_string).collect();
        assert!(found.is_empty(), "{body}\n{}", found.join("\n"));
    }
}

/// Kernels as people write them, without a fault: nothing is found.
#[test]
fn sound_kernels_are_silent() {
    let saxpy = "y[id.x] = y[id.x] + 3u * x[id.x];";
    let reduce = "part[l] = x[id.x]; workgroupBarrier();
        for (var step = 32u; step > 0u; step >>= 1u) { if (l < step) { part[l] += part[l + step]; } workgroupBarrier(); }
        if (l == 0u) { y[g.x] = part[0]; }";
    let scan = "part[l] = x[id.x]; workgroupBarrier();
        for (var step = 1u; step < 64u; step <<= 1u) {
            var value = part[l]; if (l >= step) { value += part[l - step]; }
            workgroupBarrier(); part[l] = value; workgroupBarrier();
        }
        y[id.x] = part[l];";
    let uniform = "if (l == 0u) { part[0] = x[g.x]; } let value = workgroupUniformLoad(&part[0]);
        if (value > 0u) { workgroupBarrier(); } part[l] = value; y[id.x] = part[l];";
    let neighbours = "var sum = x[id.x]; if (id.x > 0u) { sum += x[id.x - 1u]; } y[id.x] = sum;";
    for body in [saxpy, reduce, scan, uniform, neighbours] {
        let kernel = format!(
            "{X_Y}var<workgroup> part: array<u32, 64>;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: Id, @builtin(workgroup_id) g: Id,
                @builtin(local_invocation_index) l: u32) {{ {body} }}"
        );
        expect(&found(&kernel, 256, 4), &[]);
    }
    let histogram = "@group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<atomic<u32>>;
        var<workgroup> bins: array<atomic<u32>, 16>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: Id, @builtin(local_invocation_index) l: u32) {
            if (l < 16u) { atomicStore(&bins[l], 0u); }
            workgroupBarrier();
            atomicAdd(&bins[x[id.x] % 16u], 1u);
            workgroupBarrier();
            if (l < 16u) { atomicAdd(&y[l], atomicLoad(&bins[l])); }
        }";
    expect(&found(histogram, 256, 4), &[]);
    let options = KernelOptions { flags: [KernelFlag::UninitialisedWorkgroup].into(), ..KernelOptions::default() };
    expect(&found_with(histogram, 256, 4, options), &[]);
    let mailbox = "@group(0) @binding(1) var<storage, read_write> y: array<atomic<u32>>;
        @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: Id) {
            if (id.x % 2u == 0u) { atomicStore(&y[0], id.x); } else { atomicMax(&y[1], atomicLoad(&y[0])); }
        }";
    expect(&found(mailbox, 4, 2), &[]);
}

/// The tiled product of the README of many a library, on sizes that are no multiple of the tile.
#[test]
fn a_tiled_product_is_silent() {
    const MATMUL: &str = "
        @group(0) @binding(0) var<storage, read> a: array<f32>;
        @group(0) @binding(1) var<storage, read> b: array<f32>;
        @group(0) @binding(2) var<storage, read_write> c: array<f32>;
        @group(0) @binding(3) var<uniform> n: u32;
        var<workgroup> ta: array<array<f32, 8>, 8>;
        var<workgroup> tb: array<array<f32, 8>, 8>;
        fn at(row: u32, column: u32, wants_a: bool) -> f32 {
            if (row >= n || column >= n) { return 0.0; }
            if (wants_a) { return a[row * n + column]; }
            return b[row * n + column];
        }
        @compute @workgroup_size(8, 8)
        fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) l: vec3<u32>) {
            var sum = 0.0;
            for (var k = 0u; k < n; k += 8u) {
                ta[l.y][l.x] = at(id.y, k + l.x, true);
                tb[l.y][l.x] = at(k + l.y, id.x, false);
                workgroupBarrier();
                for (var i = 0u; i < 8u; i++) { sum += ta[l.y][i] * tb[i][l.x]; }
                workgroupBarrier();
            }
            if (id.x < n && id.y < n) { c[id.y * n + id.x] = sum; }
        }";
    let device = open();
    let run = |text: &str| {
        let kernel = device.kernel(KernelSource::wgsl(text)).unwrap();
        let n = 20usize;
        let (a, b) =
            (device.buffer_from(&vec![2.0f32; n * n]).unwrap(), device.buffer_from(&vec![0.5f32; n * n]).unwrap());
        let mut c = device.buffer_of::<f32>(n * n).unwrap();
        let launch = kernel.launch().bind("a", &a).bind("b", &b).bind("c", &mut c).value("n", n as u32);
        launch.grid(Grid::workgroups([3, 3, 1])).submit().unwrap();
        assert_eq!(c.read().unwrap(), vec![n as f32; n * n]);
        kiln_cpu::take_findings(&device)
    };
    expect(&run(MATMUL), &[]);
    // Without the second barrier, the next round's tiles are written while others still read.
    let second = MATMUL.rfind("workgroupBarrier();").unwrap();
    let without = format!("{}{}", &MATMUL[..second], &MATMUL[second + "workgroupBarrier();".len()..]);
    let found = run(&without);
    assert!(!found.is_empty() && found.iter().all(|finding| finding.kind == FindingKind::Race), "{found:?}");
}

/// R4.6: what it takes to watch a kernel is bounded.
#[test]
fn buffers_that_are_too_large_to_watch_are_refused() {
    let device = open();
    let source = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4) fn main() { y[0] = 1u; }";
    let kernel = device.kernel(KernelSource::wgsl(source)).unwrap();
    let mut y = device.buffer((128 << 20) + 4).unwrap();
    let error = kernel.launch().bind("y", &mut y).grid(Grid::workgroups([1, 1, 1])).submit().unwrap_err();
    assert_eq!(error.kind(), kiln_ir::ErrorKind::TooLarge);
    assert!(error.to_string().contains("at most 134217728 bytes, found 134217732"), "{error}");
}

/// R7: a device that is not sanitized finds nothing, and one that is runs what others compiled with other code.
#[test]
fn only_a_sanitized_device_finds_anything() {
    let plain = kiln_cpu::open(CpuOptions::new()).unwrap();
    assert_ne!(plain.info().compiler, open().info().compiler);
    let source = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(4) fn main() { y[9] = 1u; }";
    let kernel = plain.kernel(KernelSource::wgsl(source)).unwrap();
    let mut y = plain.buffer_of::<u32>(4).unwrap();
    kernel.launch().bind("y", &mut y).over(4).unwrap();
    assert!(kiln_cpu::take_findings(&plain).is_empty());
}
