//! Many dispatches in one submission, host writes between them, captured sequences.

use super::{numbers, saxpy, targets};
use crate::support;
use kiln_device::{Graph, Grid, KernelSource};
use kiln_gpu::GpuOptions;

const ADD: &str = "
    @group(0) @binding(0) var<storage, read> amount: array<u32>;
    @group(0) @binding(1) var<storage, read_write> sum: array<u32>;
    @group(0) @binding(2) var<uniform> factor: u32;
    @compute @workgroup_size(1) fn main() { sum[0] = sum[0] * 10u + amount[0] * factor; }";

/// A host write recorded between two dispatches takes effect between them.
#[test]
fn a_host_write_lands_between_the_dispatches_around_it() {
    for device in support::both().chain(support::cpus()) {
        let kernel = device.kernel(KernelSource::wgsl(ADD)).unwrap();
        let (amount, mut sum) = (device.buffer_from(&[1u32]).unwrap(), device.buffer_from(&[0u32]).unwrap());
        let mut commands = device.commands();
        for round in 1..=4u32 {
            commands.write(amount.as_bytes(), &round.to_le_bytes()).unwrap();
            let launch = kernel.launch().bind("amount", &amount).bind("sum", &mut sum).value("factor", 1u32);
            launch.grid(Grid::over(1)).record(&mut commands).unwrap();
        }
        device.submit(commands).unwrap();
        assert_eq!(sum.read().unwrap(), [1234]);
    }
}

/// Each dispatch has its own values, also in one submission with many others.
#[test]
fn every_dispatch_sees_its_own_values() {
    for device in targets() {
        let kernel = device.kernel(KernelSource::wgsl(ADD)).unwrap();
        let (amount, mut sum) = (device.buffer_from(&[1u32]).unwrap(), device.buffer_from(&[0u32]).unwrap());
        let mut commands = device.commands();
        for factor in [3u32, 1, 4, 1, 5, 9, 2, 6] {
            let launch = kernel.launch().bind("amount", &amount).bind("sum", &mut sum).value("factor", factor);
            launch.grid(Grid::over(1)).record(&mut commands).unwrap();
        }
        device.submit(commands).unwrap();
        assert_eq!(sum.read().unwrap(), [31_415_926]);
    }
}

/// Submissions that overlap in time do not overwrite each other's values.
#[test]
fn values_of_many_submissions_are_separate() {
    for device in targets() {
        let kernel = device.kernel(KernelSource::wgsl(ADD)).unwrap();
        let (amount, mut sum) = (device.buffer_from(&[1u32]).unwrap(), device.buffer_from(&[0u32]).unwrap());
        let mut expected = 0u32;
        for round in 0..300u32 {
            kernel.launch().bind("amount", &amount).bind("sum", &mut sum).value("factor", round).over(1).unwrap();
            expected = expected.wrapping_mul(10).wrapping_add(round);
        }
        assert_eq!(sum.read().unwrap(), [expected]);
    }
}

#[test]
fn a_captured_sequence_replays_with_new_inputs() {
    for device in targets() {
        let kernel = device.kernel(saxpy()).unwrap();
        let (x, mut y) = (device.buffer_from(&numbers(100)).unwrap(), device.buffer_from(&[0.0f32; 100]).unwrap());
        let captured = device.capture(|commands| {
            for _ in 0..3 {
                let launch = kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 100u32);
                launch.grid(Grid::over(100)).record(commands)?;
            }
            Ok(())
        });
        let captured = captured.unwrap();
        let times = |factor: f32| numbers(100).iter().map(|x| factor * x).collect::<Vec<_>>();
        captured.replay().unwrap();
        assert_eq!(y.read().unwrap(), times(6.0));
        captured.replay().unwrap();
        assert_eq!(y.read().unwrap(), times(12.0));
        let other = device.buffer_from(&times(10.0)).unwrap();
        captured.replay_with(&[(x.as_bytes(), other.as_bytes())]).unwrap();
        assert_eq!(y.read().unwrap(), times(72.0));
        let error = captured.replay_with(&[(x.as_bytes(), y.as_bytes())]).unwrap_err();
        assert!(error.to_string().contains("expected buffers of their own"), "{error}");
    }
}

/// Launches are counted, including replays; copies and fills are not.
#[test]
fn launches_are_counted() {
    if support::in_place().is_none() {
        return;
    }
    // No other test launches on this device.
    let device = kiln_gpu::open(0, GpuOptions::new()).unwrap();
    let kernel = device.kernel(saxpy()).unwrap();
    let (x, mut y) = (device.buffer_from(&numbers(100)).unwrap(), device.buffer_from(&[0.0f32; 100]).unwrap());
    let captured = device.capture(|commands| {
        commands.zero(y.as_bytes())?;
        let launch = kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 100u32);
        launch.grid(Grid::over(100)).record(commands)
    });
    let captured = captured.unwrap();
    assert_eq!(device.launches(), 0, "recording launches nothing");
    captured.replay().unwrap();
    captured.replay().unwrap();
    let mut commands = device.commands();
    let launch = kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 100u32);
    launch.grid(Grid::over(100)).record(&mut commands).unwrap();
    device.submit(commands).unwrap();
    assert_eq!(device.launches(), 3);
}

/// Launches as graph nodes run in the order of their buffer dependencies, and again with other inputs.
#[test]
fn a_graph_of_launches_runs_and_replays() {
    for device in targets() {
        let kernel = device.kernel(saxpy()).unwrap();
        let x = device.buffer_from(&numbers(100)).unwrap();
        let mut sums: Vec<_> = (0..3).map(|_| device.buffer_of::<f32>(100).unwrap()).collect();
        let mut graph = Graph::new();
        graph.buffer("x", x.as_bytes()).unwrap();
        for (index, sum) in sums.iter().enumerate() {
            graph.buffer(format!("sum {index}"), sum.as_bytes()).unwrap();
            let mut commands = device.commands();
            commands.zero(sum.as_bytes()).unwrap();
            graph.commands(format!("clear {index}"), commands).unwrap();
        }
        // Two branches from x, then both into the third sum.
        for (from, to) in [(None, 0), (None, 1), (Some(0), 2), (Some(1), 2)] {
            let from = from.map_or(x.clone(), |from: usize| sums[from].clone());
            let launch = kernel.launch().bind("x", &from).bind("y", &mut sums[to]).value("n", 100u32);
            let name = format!("add {} to {to}", graph.node_names().count());
            graph.launch(name, launch.grid(Grid::over(100))).unwrap();
        }
        let plan = graph.compile().unwrap();
        let times = |factor: f32| numbers(100).iter().map(|x| factor * x).collect::<Vec<_>>();
        for _ in 0..2 {
            plan.run().unwrap();
            assert_eq!(sums[2].read().unwrap(), times(8.0));
        }
        let other = device.buffer_from(&times(3.0)).unwrap();
        plan.run_with(&[("x", other.as_bytes())]).unwrap();
        assert_eq!(sums[2].read().unwrap(), times(24.0));

        let error = graph.launch("no grid", kernel.launch().bind("x", &x)).unwrap_err();
        assert!(
            error.to_string().starts_with("node `no grid`: launch of kernel `saxpy.wgsl`: expected a grid"),
            "{error}"
        );
        let mut stranger = device.buffer_of::<f32>(100).unwrap();
        let launch = kernel.launch().bind("x", &x).bind("y", &mut stranger).value("n", 100u32).grid(Grid::over(100));
        let error = graph.launch("stranger", launch).unwrap_err();
        assert!(error.to_string().contains("node `stranger` expected buffers that the graph declares"), "{error}");
    }
}
