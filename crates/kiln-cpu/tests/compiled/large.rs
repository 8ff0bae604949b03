//! Values and variables of more scalars than there are registers for, on the CPU device.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_device::KernelSource;

const INVOCATIONS: usize = 24;
const LEN: usize = 5000;

/// Runs a program on `LEN` words of input, with eight invocations in SIMD lanes and one at a time, sanitized and not.
fn run(program: &str) -> Vec<Vec<u32>> {
    let source = format!(
        "struct Row {{ scale: u32, table: array<u32, {LEN}> }}
        @group(0) @binding(0) var<storage, read> x: Row;
        @group(0) @binding(1) var<storage, read_write> y: array<u32>;
        {program}"
    );
    let options = || CpuOptions::new().threads(2);
    let devices = [options(), options().simd(SimdLevel::Scalar), options().sanitized(true)];
    let words: Vec<u32> = (0..=LEN as u32).map(|word| word * 3 + 1).collect();
    let run = |options: CpuOptions| {
        let device = kiln_cpu::open(options).unwrap();
        let kernel = device.kernel(KernelSource::wgsl(source.as_str())).unwrap();
        let (x, mut y) = (device.buffer_from(&words).unwrap(), device.buffer_of::<u32>(INVOCATIONS).unwrap());
        kernel.launch().bind("x", &x).bind("y", &mut y).over(INVOCATIONS as u32).unwrap();
        assert_eq!(kiln_cpu::take_findings(&device), []);
        y.read().unwrap()
    };
    devices.map(run).to_vec()
}

/// Element `i` of the table in `x`.
fn table(i: usize) -> u32 {
    (i as u32 + 1) * 3 + 1
}

fn check(program: &str, expected: impl Fn(usize) -> u32) {
    let expected: Vec<u32> = (0..INVOCATIONS).map(expected).collect();
    for found in run(program) {
        assert_eq!(found, expected, "{program}");
    }
}

/// A copy keeps its value when the original changes, separately in each invocation.
/// Values in registers with a dynamic index: loaded, constructed, returned by a function, and selected from two.
#[test]
fn an_element_of_a_value_by_a_computed_index() {
    let numbers: Vec<String> = (0..200).map(|i| format!("{}u", i * i)).collect();
    let program = format!(
        "fn squares() -> array<u32, 200> {{ return array<u32, 200>({}); }}
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            var part: array<u32, 1000>;
            for (var i = 0u; i < 1000u; i++) {{ part[i] = x.table[i]; }}
            let all = part;
            part[id.x * 40u] = 0u;
            let some = squares();
            y[id.x] = all[id.x * 40u] + some[id.x * 3u] + squares()[199u - id.x] + all[id.x + 900u];
        }}",
        numbers.join(", ")
    );
    let square = |i: usize| (i * i) as u32;
    check(&program, |id| table(id * 40) + square(id * 3) + square(199 - id) + table(id + 900));
}

#[test]
fn copies_are_of_their_moment() {
    check(
        "@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var mine = x.table;
            mine[id.x] = 7u;
            let then = mine;
            mine[id.x + 1u] = 1000u;
            var other: array<u32, 5000>;
            other = mine;
            y[id.x] = then[id.x] + then[id.x + 1u] + other[id.x + 1u] + other[4999u - id.x] + then[4999];
        }",
        |i| 7 + table(i + 1) + 1000 + table(4999 - i) + table(4999),
    );
}

/// Inactive lanes keep their values in an assignment.
#[test]
fn inactive_lanes_keep_their_values_in_an_assignment() {
    check(
        "@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var mine: array<u32, 5000>;
            mine[17] = id.x;
            if (id.x % 3u == 0u) { mine = x.table; }
            if (id.x % 3u == 1u) { mine = array<u32, 5000>(); }
            y[id.x] = mine[17];
        }",
        |i| [table(17), 0, i as u32][i % 3],
    );
}

/// Variables are initialized, to zero or to a value, in each iteration of a loop.
#[test]
fn variables_begin_as_zeros() {
    check(
        "var<private> shared_by_calls: array<u32, 9000> = array<u32, 9000>();
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var sum = 0u;
            var said: array<u32, 9000> = array<u32, 9000>();
            for (var round = 0u; round < 3u; round++) {
                var fresh = array<u32, 9000>();
                fresh[id.x * 300u] += 1u + round;
                said[id.x * 300u] += 10u;
                shared_by_calls[id.x * 300u + round] = 100u;
                sum += fresh[id.x * 300u] + said[id.x * 300u] + shared_by_calls[id.x * 300u];
            }
            y[id.x] = sum * x.scale;
        }",
        |_| 1 + 2 + 3 + 10 + 20 + 30 + 300,
    );
}

/// Constant indices only: unused elements take no registers.
#[test]
fn variables_that_are_never_indexed_by_a_number_that_is_computed() {
    check(
        "@compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var table: array<vec2<u32>, 20000>;
            table[3].x = 4u * x.scale;
            table[19999].y = id.x;
            y[id.x] = table[19999].y + table[3].x;
        }",
        |i| i as u32 + 4,
    );
}

/// As function arguments, also within a struct, and parts of them as values.
#[test]
fn functions_take_them() {
    check(
        "fn pick(row: Row, i: u32) -> u32 { return row.scale * row.table[i] + pick_of(row.table, i); }
        fn pick_of(table: array<u32, 5000>, i: u32) -> u32 { return table[4999u - i]; }
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let row = x;
            var mine = x.table;
            mine[4999u - id.x] = 5u;
            y[id.x] = pick(row, id.x) + pick_of(mine, id.x);
        }",
        |i| table(i) + table(4999 - i) + 5,
    );
}

/// Across barriers, and in workgroup memory.
#[test]
fn they_outlive_barriers() {
    check(
        "var<workgroup> ours: array<u32, 5000>;
        @compute @workgroup_size(8) fn main(
            @builtin(global_invocation_id) id: vec3<u32>,
            @builtin(local_invocation_index) l: u32,
        ) {
            var mine = x.table;
            mine[l] = 1000u * id.x;
            let before = mine;
            if (l == 3u) { ours = mine; }
            workgroupBarrier();
            mine[l] = 1u;
            let all = workgroupUniformLoad(&ours);
            if (l == 0u) { ours = array<u32, 5000>(); }
            workgroupBarrier();
            y[id.x] = before[l] + mine[l] + all[3] + all[l + 8u] + ours[l];
        }",
        |i| {
            let (id, l) = (i as u32, i % 8);
            1000 * id + 1 + 1000 * (id - l as u32 + 3) + table(l + 8)
        },
    );
}

/// Without barriers, vectors of invocations run one after the other in the same memory. All of them together would need a quarter of a
/// gigabyte, which the compiler rejects.
#[test]
fn a_large_private_variable_takes_little_memory() {
    let program = "
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        var<private> table: array<u32, 65536>;
        @compute @workgroup_size(1024) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            table[id.x] = id.x;
            y[id.x] = table[id.x] + table[(id.x + 1u) % 65536u];
        }";
    let device = kiln_cpu::open(CpuOptions::new().threads(1)).unwrap();
    let kernel = device.kernel(KernelSource::wgsl(program)).unwrap();
    let mut y = device.buffer_of::<u32>(1024).unwrap();
    kernel.launch().bind("y", &mut y).over(1024).unwrap();
    assert_eq!(y.read().unwrap(), (0..1024).collect::<Vec<u32>>());
}

/// A chain of variables, each assigned from the next, longer than the iterations of the uniformity analysis: loops, branches, returns
/// and functions that depend on them are still correct.
#[test]
fn a_chain_of_many_variables() {
    const LINKS: usize = 200;
    let declared: String = (0..=LINKS).map(|v| format!("var v{v} = 1u; ")).collect();
    let moved: String = (0..LINKS).map(|v| format!("v{v} = v{}; ", v + 1)).collect();
    let program = format!(
        "fn limit(a: u32) -> u32 {{ if (a > 20u) {{ return 20u; }} return a; }}
        @compute @workgroup_size(8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            {declared}
            v{LINKS} = id.x;
            var rounds = 0u;
            for (var k = 0u; k < {LINKS}u; k++) {{ {moved} rounds++; }}
            loop {{
                if (v0 == 3u) {{ break; }}
                if (rounds > 200u + limit(v0)) {{ break; }}
                rounds++;
                if (v0 % 2u == 0u) {{ continue; }}
                v1++;
            }}
            switch (v0 % 4u) {{ case 1u: {{ rounds += 1000u; }} case 2u: {{ if (v0 > 9u) {{ break; }} rounds += 2000u; }} default: {{ }} }}
            y[id.x] = rounds * 100u + v1;
            if (v0 == 5u) {{ return; }}
            y[id.x] += x.scale;
        }}"
    );
    check(&program, |i| {
        let mut rounds = if i == 3 { 200 } else { 201 + i.min(20) };
        let added = if i == 3 || i % 2 == 0 { 0 } else { rounds - 200 };
        rounds += match i % 4 {
            1 => 1000,
            2 if i <= 9 => 2000,
            _ => 0,
        };
        (rounds * 100 + i + added) as u32 + u32::from(i != 5)
    });
}
