//! The sanitizer locates each kind of planted fault, and reports nothing for correct kernels.
#![cfg(all(not(loom), feature = "wgsl"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod nan;
mod races;
mod sound;
mod together;
mod unwritten;

use kiln_cpu::{CpuOptions, Finding, FindingKind};
use kiln_device::{Device, Grid, KernelOptions, KernelSource};

fn open() -> Device {
    kiln_cpu::open(CpuOptions::new().sanitized(true)).unwrap()
}

/// Returns the findings of a kernel that writes `y`, of `len` words, and may read `x`.
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

/// One line, so that a test's source begins in line 2.
const DECLARED: &str = "alias Id = vec3<u32>;\n";
const Y: &str = "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n";
const X_Y: &str = "@group(0) @binding(0) var<storage, read> x: array<u32>; @group(0) @binding(1) var<storage, read_write> y: array<u32>;\n";

/// Kind, line, variable, index, and the x coordinates of both invocations.
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
