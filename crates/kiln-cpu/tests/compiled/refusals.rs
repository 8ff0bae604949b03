//! Programs that the CPU device cannot compile are rejected with a source location.

use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_device::KernelSource;
use kiln_ir::ErrorKind::{self, CompileFailed, Unsupported};

/// The prefix of each program, whose lines begin at 10.
const HEAD: &str = "enable f16; enable wgpu_cooperative_matrix;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
struct Large { scale: f32, table: array<f32, 5000> }
@group(0) @binding(1) var<storage, read_write> large: Large;
fn five_thousand() -> array<f32, 5000> { var table: array<f32, 5000>; return table; }
fn first(table: array<f32, 5000>) -> f32 { return table[0]; }



";

/// A program, the line of the error, its kind and its message.
type Row = (&'static str, u32, ErrorKind, &'static str);

const TABLE: &[Row] = &[
    // Values that do not fit in registers.
    (
        "@compute @workgroup_size(1) fn main() {
            let table = five_thousand();
            y[0] = table[1];
        }",
        11,
        Unsupported,
        "expected a result of at most 4096 scalars, found 5000",
    ),
    (
        "@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            var copy = Large(y[i],
                large.table);
            y[i] = copy.table[i];
        }",
        12,
        Unsupported,
        "expected a value of at most 4096 scalars, found 5000",
    ),
    (
        "@compute @workgroup_size(1) fn main() {
            y[0] =
                first(array<f32, 5000>());
        }",
        12,
        Unsupported,
        "expected a value of at most 4096 scalars, found 5000",
    ),
    // The same in programs with barriers, and in functions that they call, with and without barriers.
    (
        "@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            y[i] = 1.0;
            storageBarrier();
            if (y[0] > 0.5) {
                let table = five_thousand();
                y[i] = table[i];
            }
        }",
        14,
        Unsupported,
        "expected a result of at most 4096 scalars, found 5000",
    ),
    (
        "fn both(i: u32) -> array<f32, 5000> {
            storageBarrier();
            var table: array<f32, 5000>;
            return table;
        }
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            y[i] = 1.0;
            let table = both(i);
            y[i] = table[i];
        }",
        17,
        Unsupported,
        "expected a result of at most 4096 scalars, found 5000",
    ),
    (
        "fn inner(i: u32) -> f32 {
            storageBarrier();
            let table = five_thousand();
            return table[i];
        }
        @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
            for (var round = 0; round < 3; round++) {
                y[i] = 2.0 * inner(i);
            }
        }",
        12,
        Unsupported,
        "expected a result of at most 4096 scalars, found 5000",
    ),
    // Variables too large for the memory of a thread.
    (
        "@compute @workgroup_size(1) fn main() {
            var table: array<f32, 70000>;
            table[u32(y[0])] = 1.0;
            y[1] = table[u32(y[2])];
        }",
        11,
        Unsupported,
        "expected a variable of at most 65536 scalars, found 70000",
    ),
    (
        "var<private> one: array<f32, 65536>;
        var<private> two: array<f32, 65536>;
        @compute @workgroup_size(256) fn main(@builtin(local_invocation_index) i: u32) {
            one[i] = y[i];
            two[i] = y[i];
            workgroupBarrier();
            y[i] = one[i] + two[i];
        }",
        11,
        Unsupported,
        "expected at most 67108864 bytes of variables for the invocations of a workgroup, found 134217728",
    ),
    // Arguments and variables that compute kernels cannot have.
    (
        "@compute @workgroup_size(8) fn main(@location(0) i: u32) {
            y[0] = 1.0;
            storageBarrier();
            y[i] = 2.0;
        }",
        10,
        Unsupported,
        "argument `i` expected a builtin of a compute kernel, found `@location`",
    ),
    (
        "
        @group(0) @binding(2) var image: texture_2d<f32>;
        @compute @workgroup_size(1) fn main() { y[0] = textureLoad(image, vec2(0), 0).x; }",
        11,
        Unsupported,
        "variable `image` expected a storage buffer, a uniform, workgroup or private memory, found a texture",
    ),
    (
        "@group(0) @binding(2) var image: texture_storage_2d<r32float, write>;
        @compute @workgroup_size(1) fn main() { workgroupBarrier(); textureStore(image, vec2(0), vec4(0.0)); }",
        10,
        Unsupported,
        "variable `image` expected a storage buffer",
    ),
    (
        "@compute @workgroup_size(8) fn main() {
            workgroupBarrier();
            let tile = coopLoad<coop_mat8x8<f32, A>>(&y[0]);
        }",
        12,
        Unsupported,
        "expected an expression that the CPU device supports, found `CooperativeLoad`",
    ),
    // Features that the device does not list, so naga rejects them.
    ("@compute @workgroup_size(1) fn main() {\n y[0] = f32(f64(y[0]));\n}", 11, CompileFailed, "f64(y[0])"),
    ("@compute @workgroup_size(1) fn main() {\n y[0] = f32(i64(y[0]));\n}", 11, CompileFailed, "i64(y[0])"),
    (
        "@compute @workgroup_size(1) fn main() {
            let halves = vec2<f16>(1.0h);
            y[0] = f32(bitcast<u32>(halves));
        }",
        12,
        CompileFailed,
        "u16",
    ),
    (
        "@group(0) @binding(2) var<storage, read_write> sum: atomic<f32>;
        @compute @workgroup_size(1) fn main() { }",
        10,
        CompileFailed,
        "SHADER_FLOAT32_ATOMIC",
    ),
    (
        "struct Sums { count: u32, sums: array<atomic<u64>> }
        @group(0) @binding(2) var<storage, read_write> sums: Sums;
        @compute @workgroup_size(1) fn main() { }",
        11,
        CompileFailed,
        "SHADER_INT64_ATOMIC_ALL_OPS",
    ),
];

#[test]
fn unsupported_programs_are_rejected_with_their_line() {
    for simd in [SimdLevel::detect(), SimdLevel::Scalar] {
        let device = kiln_cpu::open(CpuOptions::new().threads(1).simd(simd)).unwrap();
        for (program, line, kind, message) in TABLE {
            let error = device.kernel(KernelSource::wgsl(format!("{HEAD}{program}")).named("no.wgsl")).unwrap_err();
            assert_eq!(error.kind(), *kind, "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("no.wgsl:{line}:")), "expected line {line} of\n{program}\nfound {text}");
            assert!(text.contains(message), "{text}");
        }
    }
}

/// Deeply nested programs are compiled or rejected without a stack overflow, on a thread with a default stack.
#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let main = |value: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
            @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32) {{
                {value}
            }}"
        )
    };
    // The largest depth that is accepted, and a statement of a given depth.
    type Form = (usize, fn(usize) -> String);
    let forms: [Form; 8] = [
        (990, |count| format!("var v = vec4(l); y[l] = v{};", ".xyzw".repeat(count))),
        (1, |count| format!("var v = array<u32, 2>(); y[l] = v{};", "[0]".repeat(count))),
        (990, |count| format!("y[l] = {} l;", "l + ".repeat(count))),
        (990, |count| format!("y[l] = {} l;", "~".repeat(count))),
        (480, |count| format!("y[l] = u32({} l == 3u);", "l < 5u && ".repeat(count / 4))),
        (240, |count| format!("y[l] = {} l {};", "(".repeat(count), ")".repeat(count))),
        (120, |count| format!("if (l == 0u) {{ }} {}", "else if (l == 1u) { y[l] = 1u; } ".repeat(count))),
        (240, |count| format!("{} y[l] = 1u; {}", "if (l < 5u) { ".repeat(count), "} ".repeat(count))),
    ];
    let device = kiln_cpu::open(CpuOptions::new().threads(1)).unwrap();
    for (count, form) in forms {
        let kernel = |count| device.kernel(KernelSource::wgsl(main(&form(count))).named("deep.wgsl"));
        if let Err(error) = kernel(count) {
            let is_told = matches!(error.kind(), Unsupported | CompileFailed);
            assert!(is_told && error.to_string().contains("deep.wgsl:3:"), "{error}");
        }
        let error = kernel(40_000).unwrap_err().to_string();
        assert!(error.contains("deep.wgsl:3:") && error.contains("nested at most about 1000 deep"), "{error}");
    }
}

/// Each region between barriers loads all variables, so the product of both counts is limited. It is checked before compilation.
#[test]
fn variables_times_barriers_are_counted() {
    let device = kiln_cpu::open(CpuOptions::new().threads(1)).unwrap();
    let kernel = |variables: usize, barriers: usize| {
        let declared: String = (0..variables).map(|v| format!("var v{v} = l; ")).collect();
        let used: String = (0..variables).map(|v| format!("y[l] += f32(v{v}); ")).collect();
        let body = format!("{declared}\n{}\n{used}", "workgroupBarrier(); v0 += 1u; ".repeat(barriers));
        let main = "@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32)";
        device.kernel(KernelSource::wgsl(format!("{HEAD}{main} {{\n{body} }}")).named("many.wgsl"))
    };
    kernel(1000, 2).unwrap();
    kernel(2, 1000).unwrap();
    let error = kernel(1000, 1000).unwrap_err();
    assert_eq!(error.kind(), Unsupported, "{error}");
    assert!(error.to_string().contains("many.wgsl:12:"), "{error}");
    assert!(error.to_string().contains("at most 200000 statements"), "{error}");
}

/// Programs with many instructions: compile time is linear, up to a limit, and values that are live at the same time and do not fit in
/// registers are spilled to the stack of a thread, which is limited.
#[test]
fn programs_of_many_instructions() {
    let device = kiln_cpu::open(CpuOptions::new().threads(1)).unwrap();
    let kernel = |made: &str, used: &str, count: usize| {
        let made: String = (0..count).map(|v| made.replace('#', &v.to_string())).collect();
        let used: String = (0..count).rev().map(|v| used.replace('#', &v.to_string())).collect();
        let bound = "@group(0) @binding(1) var<storage, read_write> all: array<mat4x4<f32>>;";
        let main = "@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) l: u32)";
        device.kernel(
            KernelSource::wgsl(format!("{bound}\n{main} {{\n{made}\nvar sum = vec4(0.0); {used} all[l][0] += sum; }}"))
                .named("wide.wgsl"),
        )
    };
    // About ten thousand instructions separate the two compilation modes.
    for count in [5, 40] {
        let kernel = kernel("let m# = all[l]; all[l][0][0] += 1.0; ", "all[l] += m#; ", count).unwrap();
        let mut all = device.buffer_from(&[1f32; 16 * 8]).unwrap();
        kernel.launch().bind("all", &mut all).over(8).unwrap();
        let (found, count) = (all.read().unwrap(), count as f32);
        // The sum of 1, 2, 3 and so on, with the increments in between.
        for matrix in found.chunks(16) {
            assert_eq!(matrix[..2], [(count + 1.0) * (count + 2.0) / 2.0, count + 1.0]);
        }
    }
    let refused = |made: &str, used: &str, count: usize, line: &str, message: &str| {
        let error = kernel(made, used, count).unwrap_err();
        assert_eq!(error.kind(), Unsupported, "{error}");
        assert!(error.to_string().contains(line) && error.to_string().contains(message), "{error}");
    };
    refused("let m# = all[l + #u]; ", "all[l] += m#; ", 3000, "wide.wgsl:3:", "at most 1000000 instructions");
    refused("let m# = max(vec4(f32(l)), vec4(#.5)); ", "sum += m#; ", 6000, "wide.wgsl:3:", "524288 bytes of stack");
}

/// Each struct contains the previous one twice, so every line doubles the number of nested members.
#[test]
fn types_of_types_have_an_end() {
    let device = kiln_cpu::open(CpuOptions::new().threads(1)).unwrap();
    let kernel = |depth: usize| {
        let structs: String = (1..=depth).map(|k| format!("struct S{k} {{ a: S{0}, b: S{0} }}\n", k - 1)).collect();
        let bound = format!("@group(0) @binding(0) var<storage, read_write> s: S{depth};");
        let main = "@compute @workgroup_size(1) fn main()";
        let text =
            format!("struct S0 {{ a: u32, b: u32 }}\n{structs}{bound}\n{main} {{ s.a{} = 1u; }}", ".b".repeat(depth));
        device.kernel(KernelSource::wgsl(text).named("types.wgsl"))
    };
    assert!(kernel(8).unwrap().reflection().bindings[0].layout.is_some());
    for depth in [12, 26] {
        let error = kernel(depth).unwrap_err();
        assert_eq!(error.kind(), Unsupported, "{error}");
        let wanted = "types.wgsl:12:1: type `S11` expected at most 4096 nested members, 32 deep, found 8191, 13 deep";
        assert!(error.to_string().contains(wanted), "{error}");
    }
    // Nested, without doubling.
    let kernel = |depth: usize| {
        let structs: String = (1..depth).map(|k| format!("struct S{k} {{ a: S{} }}\n", k - 1)).collect();
        let bound = format!("@group(0) @binding(0) var<storage, read_write> s: S{};", depth - 1);
        let main = "@compute @workgroup_size(1) fn main() { let all = s; s = all; }";
        device
            .kernel(KernelSource::wgsl(format!("struct S0 {{ a: u32 }}\n{structs}{bound}\n{main}")).named("deep.wgsl"))
    };
    kernel(31).unwrap();
    for depth in [32, 1900] {
        let error = kernel(depth).unwrap_err().to_string();
        assert!(error.contains("deep.wgsl:32:1: type `S31` expected at most 4096"), "{error}");
    }
}

/// Constant indices and strides whose byte offsets overflow the compiler's integers.
#[test]
fn large_numbers_of_the_compiler() {
    for simd in [SimdLevel::detect(), SimdLevel::Scalar] {
        let device = kiln_cpu::open(CpuOptions::new().threads(1).simd(simd)).unwrap();
        let main = "@compute @workgroup_size(16) fn main(@builtin(global_invocation_id) id: vec3<u32>)";
        for body in ["y[1073741825u] = 1.0;", "y[0] = y[2147483647u];", "z[id.x * 16u][0] = 1.0;"] {
            let bound = "@group(0) @binding(3) var<storage, read_write> z: array<array<f32, 67108864>>;";
            device.kernel(KernelSource::wgsl(format!("{HEAD}{bound} {main} {{ {body} }}"))).unwrap();
        }
        let kernel = device.kernel(KernelSource::wgsl(format!("{HEAD}{main} {{ y[1073741825u] = f32(id.x) + 1.0; }}")));
        let mut y = device.buffer_from(&[0f32; 5]).unwrap();
        kernel.unwrap().launch().bind("y", &mut y).over(1).unwrap();
        let found = y.read().unwrap();
        assert!(found[..4] == [0.0; 4] && found[4] > 0.0, "{found:?}");
    }
}
