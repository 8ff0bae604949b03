//! Grids of every size compute every item exactly once.

use super::{numbers, saxpy, targets};
use kiln_device::{Grid, KernelSource};

/// Every item is computed, whatever the length. (A grid once computed only 0.4 % of a matrix.)
#[test]
fn a_grid_from_the_problem_computes_every_item() {
    for device in targets() {
        let kernel = device.kernel(saxpy()).unwrap();
        for count in [1usize, 63, 64, 65, 1000, 4096, 100_003] {
            let (x, mut y) = (device.buffer_from(&numbers(count)).unwrap(), device.buffer_of::<f32>(count).unwrap());
            y.zero().unwrap();
            kernel.launch().bind("x", &x).bind("y", &mut y).value("n", count as u32).over(count).unwrap();
            let expected: Vec<f32> = numbers(count).iter().map(|x| 2.0 * x).collect();
            assert!(y.read().unwrap() == expected, "{count}");
        }
    }
}

#[test]
fn an_empty_grid_runs_nothing() {
    for device in targets() {
        let kernel = device.kernel(saxpy()).unwrap();
        let (x, mut y) = (device.buffer_of::<f32>(1).unwrap(), device.buffer_from(&[3.0f32]).unwrap());
        kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 1u32).over(0).unwrap();
        kernel
            .launch()
            .bind("x", &x)
            .bind("y", &mut y)
            .value("n", 1u32)
            .grid(Grid::workgroups([5, 0, 1]))
            .submit()
            .unwrap();
        assert_eq!(y.read().unwrap(), [3.0]);
    }
}

/// Every invocation counts itself and writes its ids.
const PLACES: &str = "
    struct Place { @builtin(global_invocation_id) global: vec3<u32>, @builtin(local_invocation_index) local: u32 }
    @group(0) @binding(0) var<storage, read_write> counts: array<atomic<u32>>;
    @group(0) @binding(1) var<storage, read_write> wrong: atomic<u32>;
    @group(0) @binding(2) var<uniform> size: vec3<u32>;
    @compute @workgroup_size(2, 1, 1)
    fn main(place: Place, @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
        let global = place.global;
        let expected = group * vec3<u32>(2, 1, 1) + vec3<u32>(place.local, 0, 0);
        if (any(expected != global) || any(groups * vec3<u32>(2, 1, 1) != size)) { atomicAdd(&wrong, 1u); }
        atomicAdd(&counts[(global.z * size.y + global.y) * size.x + global.x], 1u);
    }";

/// A grid above the per-axis limit is split, which is invisible to the kernel.
#[test]
fn a_grid_above_the_limit_is_split_transparently() {
    for device in targets() {
        let limit = device.info().limits.max_workgroups_per_axis;
        let kernel = device.kernel(KernelSource::wgsl(PLACES).named("places.wgsl")).unwrap();
        for workgroups in [[limit + 3, 1, 1], [1, limit + 2, 1], [1, 2, limit + 1], [3, 2, 1]] {
            let size = [workgroups[0] * 2, workgroups[1], workgroups[2]];
            let total = size.iter().product::<u32>() as usize;
            let mut counts = device.buffer_of::<u32>(total).unwrap();
            let mut wrong = device.buffer_from(&[0u32]).unwrap();
            counts.zero().unwrap();
            let launch = kernel.launch().bind("counts", &mut counts).bind("wrong", &mut wrong).value("size", size);
            launch.grid(Grid::workgroups(workgroups)).submit().unwrap();
            assert_eq!(wrong.read().unwrap(), [0], "{workgroups:?}");
            assert!(counts.read().unwrap().iter().all(|count| *count == 1), "{workgroups:?}");
        }
    }
}
