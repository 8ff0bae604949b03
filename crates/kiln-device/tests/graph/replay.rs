//! Runs with replaced buffers.

use crate::fixture::{cpu, device, graph_of, invalid, part, storage};
use kiln_device::{BufferUse, CommandList, Device, Graph, NullDevice, TypedBuffer};

/// y = 2 * x through `t`, z = the first half of x twice; with all kinds of nodes, and slices.
fn doubling(device: &Device) -> (Graph, [TypedBuffer<u32>; 4]) {
    let buffers = [0; 4].map(|_| device.buffer_from(&[0_u32; 4]).unwrap());
    let [x, t, y, z] = buffers.each_ref().map(TypedBuffer::as_bytes);
    let mut graph = graph_of([("x", x), ("t", t), ("y", y), ("z", z)]);
    graph.copy("stage", x, t).unwrap();
    graph
        .host("double", [(t, BufferUse::Read), (y, BufferUse::Write)], |[t, y]| {
            let doubled: Vec<u32> = t.clone().typed::<u32>()?.read()?.iter().map(|t| 2 * t).collect();
            y.clone().typed()?.write(&doubled)
        })
        .unwrap();
    let mut halves = CommandList::new();
    halves.copy(&part(x, 0..8), &part(z, 0..8)).unwrap();
    halves.copy(&part(x, 0..8), &part(z, 8..16)).unwrap();
    graph.commands("halves", halves).unwrap();
    (graph, buffers)
}

/// A plan runs repeatedly with its buffers, and with other buffers by name for one run each.
#[test]
fn a_plan_runs_with_other_buffers() {
    for device in [cpu(), device(&NullDevice::new()), device(&NullDevice::new().manual_completion())] {
        let (graph, [x, _, y, z]) = doubling(&device);
        let plan = graph.compile().unwrap();
        let (other_x, other_y) =
            (device.buffer_from(&[10_u32, 20, 30, 40]).unwrap(), device.buffer_from(&[0_u32; 4]).unwrap());
        // A slice can be a replacement as well.
        let large = device.buffer_from(&[0_u32; 8]).unwrap();
        for round in 1..4 {
            x.write(&[round, 2, 3, 4]).unwrap();
            plan.run().unwrap();
            assert_eq!(y.read().unwrap(), [2 * round, 4, 6, 8]);
            assert_eq!(z.read().unwrap(), [round, 2, round, 2]);
            plan.run_with(&[("x", other_x.as_bytes())]).unwrap();
            assert_eq!(y.read().unwrap(), [20, 40, 60, 80]);
            assert_eq!(z.read().unwrap(), [10, 20, 10, 20]);
            y.zero().unwrap();
            plan.run_with(&[("y", other_y.as_bytes()), ("z", large.slice(4..).unwrap().as_bytes())]).unwrap();
            assert_eq!(y.read().unwrap(), [0; 4], "another was written");
            assert_eq!(other_y.read().unwrap(), [2 * round, 4, 6, 8]);
            assert_eq!(large.read().unwrap(), [0, 0, 0, 0, round, 2, round, 2]);
        }
    }
}

/// Invalid replacements are rejected by name before anything runs.
#[test]
fn replacements_are_checked() {
    let (device, other) = (device(&NullDevice::new()), cpu());
    let (graph, [x, t, _, z]) = doubling(&device);
    let plan = graph.compile().unwrap();
    let fresh = || device.buffer_from(&[9_u32; 4]).unwrap().into_bytes();
    let (a, b, long) = (fresh(), fresh(), device.buffer(64).unwrap());
    let foreign = other.buffer(16).unwrap();
    z.write(&[5; 4]).unwrap();
    let refusals = [
        invalid(plan.run_with(&[("w", &a)])),
        invalid(plan.run_with(&[("x", &a), ("x", &b)])),
        invalid(plan.run_with(&[("x", &foreign)])),
        invalid(plan.run_with(&[("x", &long)])),
        invalid(plan.run_with(&[("x", t.as_bytes())])),
        invalid(plan.run_with(&[("z", x.as_bytes())])),
        invalid(plan.run_with(&[("y", &part(&long, 0..16)), ("z", &part(&long, 12..28))])),
        invalid(plan.run_with(&[("x", &part(&long, 1..17))])),
        invalid(plan.run_with(&[("x", &part(&long, 0..16)), ("t", &part(&long, 16..32))])),
    ];
    insta::assert_snapshot!(refusals.join("\n"));
    assert_eq!(z.read().unwrap(), [5; 4], "nothing has run");
}

/// Two names for the same bytes are allowed if nothing writes to them; so is a swap.
#[test]
fn harmless_aliases_are_allowed() {
    let device = device(&NullDevice::new());
    let [a, b, c, d] = [1_u8, 2, 0, 0].map(|byte| {
        let buffer = device.buffer(64).unwrap();
        buffer.write(&[byte; 64]).unwrap();
        buffer
    });
    let mut graph = graph_of([("a", &a), ("b", &b), ("c", &c), ("d", &d)]);
    graph.copy("left", &a, &c).unwrap();
    graph.copy("right", &b, &d).unwrap();
    let plan = graph.compile().unwrap();
    let results = || [&c, &d].map(|buffer| buffer.read().unwrap()[0]);
    plan.run_with(&[("a", &b)]).unwrap();
    assert_eq!(results(), [2, 2]);
    plan.run_with(&[("a", &b), ("b", &a)]).unwrap();
    assert_eq!(results(), [2, 1]);
    plan.run_with(&[("c", &d), ("d", &c)]).unwrap();
    assert_eq!(results(), [2, 1]);
    plan.run_with(&[("a", &a)]).unwrap();
    assert_eq!(results(), [1, 2]);
}

/// A replacement may have another usage if every node supports it.
#[test]
fn another_usage_can_take_the_place() {
    let device = device(&NullDevice::new());
    let (graph, [x, _, y, _]) = doubling(&device);
    let staged = storage(&device, 16).typed::<u32>().unwrap();
    x.write(&[1, 2, 3, 4]).unwrap();
    graph.compile().unwrap().run_with(&[("y", staged.as_bytes())]).unwrap();
    assert_eq!((staged.read().unwrap(), y.read().unwrap()), (vec![2, 4, 6, 8], vec![0; 4]));
}
