//! Independent branches of a graph.

use crate::claim::{Context, Evidence};
use crate::subject::{Computation, Inputs, Referee, Subject};
use crate::trial::Arm;
use kiln::buffer::TypedBuffer;
use kiln::graph::{BufferUse, Graph, GraphPlan};
use kiln::kernel::{Grid, KernelSource};
use kiln::{Device, DeviceKind};
use kiln_bench::Fault;

const BRANCHES: usize = 4;
/// Elements per branch.
const ELEMENTS: usize = 512;
/// Updates per element.
const ROUNDS: u32 = 200;

/// Its loop repeats [`ROUNDS`] times.
const SOURCE: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var v = x[id.x];
    for (var i = 0u; i < 200u; i++) { v = v * 0.999 + 0.0005; }
    out[id.x] = v;
}";

pub(super) fn parallel(context: &mut Context<'_>) -> Result<Evidence, Fault> {
    let threads = context.device.info().limits.threads.unwrap_or(2);
    if context.device.info().kind == DeviceKind::Cpu && threads < 2 {
        return Ok(Evidence::Declined("the process is limited to one core".to_string()));
    }
    let mut arms =
        [Arm::new("graph", branches(context.device, true)), Arm::new("sequential", branches(context.device, false))];
    let measured = context.measure(&mut arms, &DampedReferee)?;
    Ok(Evidence::faster(measured, |s| (s * 1e6, "µs")))
}

/// Checks elements that converge slowly towards 0.5, so that the output still depends on the input.
struct DampedReferee;

impl Referee for DampedReferee {
    fn inputs(&self, seed: u64) -> Inputs {
        (0..BRANCHES as u64).map(|branch| kiln_bench::uniform(5000 + seed * 8 + branch, ELEMENTS).collect()).collect()
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        for (index, (x, found)) in inputs.iter().flatten().zip(output).enumerate() {
            let expected = (0..ROUNDS).fold(f64::from(*x), |x, _| x * 0.999 + 0.0005);
            if (expected - f64::from(*found)).abs() > 1e-4 {
                return Err(format!("output expected {expected} at {index}, found {found}"));
            }
        }
        let (expected, found) = (BRANCHES * ELEMENTS, output.len());
        if expected == found { Ok(()) } else { Err(format!("output expected {expected} elements, found {found}")) }
    }
}

/// Builds the branches as one graph, independent or each after the previous one.
fn branches(device: &Device, is_parallel: bool) -> impl Subject {
    let prepare = move |set: &Inputs, device: &Device| -> Result<(GraphPlan, Vec<TypedBuffer<f32>>), Fault> {
        let (mut graph, mut outputs) = (Graph::new(), Vec::new());
        for (number, input) in set.iter().enumerate() {
            let (x, out) = (device.buffer_from(input)?, device.buffer_of::<f32>(ELEMENTS)?);
            branch(device, &mut graph, number, &x, &out)?;
            if number > 0 && !is_parallel {
                graph.after(&format!("branch{number}"), &format!("branch{}", number - 1))?;
            }
            outputs.push(out);
        }
        Ok((graph.compile()?, outputs))
    };
    Computation::new(
        device,
        prepare,
        |(graph, _), _, _| Ok(graph.run()?),
        |(_, outputs), _, _| Ok(outputs.iter().map(TypedBuffer::read).collect::<kiln::Result<Vec<_>>>()?.concat()),
    )
}

fn branch(
    device: &Device,
    graph: &mut Graph,
    number: usize,
    x: &TypedBuffer<f32>,
    out: &TypedBuffer<f32>,
) -> kiln::Result<()> {
    graph.buffer(format!("x{number}"), x.as_bytes())?;
    graph.buffer(format!("out{number}"), out.as_bytes())?;
    if device.info().kind != DeviceKind::Cpu {
        let kernel = device.kernel(KernelSource::wgsl(SOURCE).named("validate_branch"))?;
        let workgroups = Grid::workgroups([ELEMENTS as u32 / 64, 1, 1]);
        let launch = kernel.launch().bind("x", x).bind("out", &mut out.clone()).grid(workgroups);
        return graph.launch(format!("branch{number}"), launch);
    }
    let uses = [(x.as_bytes(), BufferUse::Read), (out.as_bytes(), BufferUse::Write)];
    graph.host(format!("branch{number}"), uses, |[x, out]| {
        let x = x.clone().typed::<f32>()?.read()?;
        // `black_box` on each value keeps the compiler from simplifying the rounds.
        let moved = |x: &f32| (0..ROUNDS).fold(*x, |x, _| std::hint::black_box(x * 0.999 + 0.0005));
        out.clone().typed::<f32>()?.write(&x.iter().map(moved).collect::<Vec<f32>>())
    })
}
