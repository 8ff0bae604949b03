//! Kernels that cannot run on the CPU device are rejected with their source line, in messages that require no knowledge of naga.

use crate::support::Workspace;
use std::fs;

/// The lines before each program, which itself starts at line 3.
const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
alias Index = vec3<u32>;
";

/// A program, the line of the fault, and the expected message.
type Row = (&'static str, &'static str, &'static str);

const TABLE: &[Row] = &[
    (
        "@compute @workgroup_size(8) fn main() {\n    y[0] = dpdx(y[1]);\n}",
        "4:12",
        "expected operations of a compute kernel, found a derivative, which only fragment shaders have",
    ),
    (
        "fn slope(x: f32) -> f32 {\n    return fwidth(x);\n}\n@compute @workgroup_size(8) fn main() { y[0] = slope(y[1]); }",
        "4:12",
        "found a derivative",
    ),
    (
        "// @workgroup_size(1) fn main\n@compute\n@workgroup_size(64, 64)\nfn main() { y[0] = 1.0; }",
        "5:1",
        "expected at most 1024 invocations in a workgroup on `cpu`, found 4096",
    ),
    ("@compute @workgroup_size(100000) fn main() { y[0] = 1.0; }", "3:10", "Workgroup size is out of range"),
    (
        "var<workgroup> a: array<f32, 5000>;\nvar<workgroup> b: array<f32, 6000>;\n\
         @compute @workgroup_size(1) fn main() { a[0] = 1.0; b[0] = a[0]; y[0] = b[0]; }",
        "4:1",
        "expected at most 32768 bytes of workgroup memory on `cpu`, found 44000, of which `b` has 24000",
    ),
    (
        "@group(0) @binding(1) var<uniform> u: array<vec4<f32>, 5000>;\n\
         @compute @workgroup_size(1) fn main() { y[0] = u[0].x; }",
        "3:23",
        "expected at most 65536 bytes in a value on `cpu`, found 80000",
    ),
    (
        "@group(0) @binding(1) var image: texture_2d<f32>;\n\
         @compute @workgroup_size(1) fn main() { y[0] = textureLoad(image, vec2(0, 0), 0).x; }",
        "3:23",
        "variable `image` expected a storage buffer, a uniform, workgroup or private memory, found a texture",
    ),
    (
        "@compute @workgroup_size(1) fn main(\n    @location(0) a: f32) { y[0] = a; }",
        "4:5",
        "argument `a` expected a builtin of a compute kernel, found `@location`",
    ),
    (
        "struct In {\n    @builtin(global_invocation_id) id: Index, @location(1) a: f32 }\n\
         @compute @workgroup_size(1) fn main(in: In) { y[0] = in.a; }",
        "4:47",
        "argument `in` expected a builtin of a compute kernel, found `@location`",
    ),
    (
        "@group(0) @binding(1) var<storage, read> x: array<f64>;\n@compute @workgroup_size(1) fn main() { y[0] = f32(x[0]); }",
        "3:23",
        "expected f32, i32 or u32, or f16 if the device supports it, found f64, which is not supported",
    ),
    (
        "fn same(x: f64) -> f64 { return x; }\n@compute @workgroup_size(1) fn main() { y[0] = f32(same(1.0lf)); }",
        "3:12",
        "found f64, which is not supported",
    ),
    ("@compute @workgroup_size(1) fn main() {\n    let a = 1.0lf;\n}", "4:13", "`f64` is not supported"),
    (
        "override SCALE: f32;\n@compute @workgroup_size(1) fn main() { y[0] = SCALE; }",
        "3:1",
        "expected a value for the constant `SCALE`, found none; set it with `--constant SCALE=NUMBER`",
    ),
    (
        "@id(7) override SCALE: f32;\n@compute @workgroup_size(1) fn main() { y[0] = SCALE; }",
        "3:8",
        "set it with `--constant SCALE=NUMBER`",
    ),
];

#[test]
fn unsupported_kernels_are_rejected_with_their_line() {
    let workspace = Workspace::new();
    let mut wrong = Vec::new();
    for (program, at, message) in TABLE {
        fs::write(workspace.path("k.wgsl"), format!("{HEAD}{program}\n")).unwrap();
        let ran = workspace.kiln("check k.wgsl");
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{program}");
        let is_there = ran.err.starts_with(&format!("error: k.wgsl:{at}: ")) && ran.err.contains(message);
        if !is_there || ran.err.contains("Capabilities") {
            wrong.push(format!("{program}\nexpected {at}: {message}, found {}", ran.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
