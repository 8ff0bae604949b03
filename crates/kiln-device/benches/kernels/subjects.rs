//! The kernels that are compiled and launched.

use kiln_device::{Device, KernelSource};
use std::fmt::Write;

const BINDINGS: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
";

/// A minimal kernel.
pub(crate) fn double() -> KernelSource {
    let text = format!(
        "{BINDINGS}@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            if (id.x < arrayLength(&y)) {{ y[id.x] = 2.0 * x[id.x]; }} }}"
    );
    KernelSource::wgsl(text).named("double")
}

/// A chain of `length` operations on each element, one line each.
pub(crate) fn chain(length: usize, number: usize) -> KernelSource {
    let mut body = String::new();
    for step in 0..length {
        let line = match step % 4 {
            0 => format!("v = v * {}.5 + 0.25;", step % 7 + 1),
            1 => "v = select(v, -v, v < 0.0);".to_string(),
            2 => format!("v = min(v, {}.0);", 1000 + step),
            _ => "v = v / (1.0 + abs(v));".to_string(),
        };
        let _ = writeln!(body, "    {line}");
    }
    let text = format!(
        "// {number}\n{BINDINGS}@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    if (id.x >= arrayLength(&y)) {{ return; }}
    var v = x[id.x] + {number}.0;
{body}    y[id.x] = v;
}}"
    );
    KernelSource::wgsl(text).named(format!("chain of {length}, number {number}"))
}

/// A matrix product of 64 by 64 through workgroup memory.
pub(crate) fn matmul() -> KernelSource {
    let text = format!(
        "{BINDINGS}@group(0) @binding(2) var<storage, read> z: array<f32>;
var<workgroup> tile_x: array<f32, 64>;
var<workgroup> tile_z: array<f32, 64>;
@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) at: vec3<u32>) {{
    var sum = 0.0;
    for (var tile = 0u; tile < 8u; tile++) {{
        tile_x[at.y * 8u + at.x] = x[id.y * 64u + tile * 8u + at.x];
        tile_z[at.y * 8u + at.x] = z[(tile * 8u + at.y) * 64u + id.x];
        workgroupBarrier();
        for (var k = 0u; k < 8u; k++) {{ sum += tile_x[at.y * 8u + k] * tile_z[k * 8u + at.x]; }}
        workgroupBarrier();
    }}
    y[id.y * 64u + id.x] = sum;
}}"
    );
    KernelSource::wgsl(text).named("matmul")
}

/// A kernel that includes a library of 120 functions and uses two of them.
pub(crate) fn with_library() -> KernelSource {
    let mut text = BINDINGS.to_string();
    for number in 0..120 {
        let _ = writeln!(
            text,
            "fn activation_{number}(value: f32, scale: vec2<f32>) -> f32 {{
    let inner = {number}.5 * (value + 0.044715 * value * value * value);
    if (inner > scale.x) {{ return min(value * scale.y, {number}.0); }}
    return select(value * 0.5, value / (1.0 + abs(inner)), inner < 0.0);
}}"
        );
    }
    text.push_str(
        "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = activation_3(x[id.x], vec2(1.0, 2.0)) + activation_77(x[id.x], vec2(0.5, 1.0)); }
}",
    );
    KernelSource::wgsl(text).named("two functions of a library of 120")
}

/// Runs [`double`] and returns whether every element is right.
pub(crate) fn doubles(device: &Device, source: KernelSource) -> bool {
    let kernel = device.kernel(source).unwrap();
    let input: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let (x, mut y) = (device.buffer_from(&input).unwrap(), device.buffer_of::<f32>(1000).unwrap());
    kernel.launch().bind("x", &x).bind("y", &mut y).over(1000).unwrap();
    y.read().unwrap().iter().zip(&input).all(|(y, x)| *y == 2.0 * x)
}

/// Returns the output of a kernel on 4096 elements, for comparing two ways to run it.
pub(crate) fn output(device: &Device, source: KernelSource) -> Vec<f32> {
    let kernel = device.kernel(source).unwrap();
    let input: Vec<f32> = (0..4096).map(|i| (i % 97) as f32 * 0.25 - 10.0).collect();
    let (x, mut y) = (device.buffer_from(&input).unwrap(), device.buffer_of::<f32>(4096).unwrap());
    let launch = kernel.launch().bind("x", &x).bind("y", &mut y);
    let launch = if kernel.reflection().bindings.len() == 3 { launch.bind("z", &x) } else { launch };
    launch.over(if kernel.reflection().workgroup_size[1] > 1 { (64, 64) } else { (4096, 1) }).unwrap();
    y.read().unwrap()
}
