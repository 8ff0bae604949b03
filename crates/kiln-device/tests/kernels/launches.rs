//! Launches on the null device: which dispatches they become.

use crate::{SCALE, scale};
use kiln_device::{Grid, KernelSource, NullArguments, NullDevice, Record};

fn dispatches(null: &NullDevice) -> Vec<[u32; 3]> {
    let records = null.records();
    let dispatches = records
        .iter()
        .filter_map(|record| if let Record::Dispatch { workgroups, .. } = record { Some(*workgroups) } else { None });
    dispatches.collect()
}

fn submissions(null: &NullDevice) -> usize {
    null.records().iter().filter(|record| matches!(record, Record::Submit { .. })).count()
}

/// The host implementation of [`SCALE`].
fn run_scale(arguments: &mut NullArguments) {
    let n = u32::from_le_bytes(arguments.values[&2][..4].try_into().unwrap()) as usize;
    let x = arguments.buffers[&0].clone();
    let y = arguments.buffers.get_mut(&1).unwrap();
    y[..4 * n].copy_from_slice(&x[..4 * n]);
}

#[test]
fn one_launch_is_one_dispatch_of_the_needed_size() {
    let null = NullDevice::new().with_kernel("scale.wgsl", run_scale);
    let device = null.clone().into_device().unwrap();
    let kernel = device.kernel(scale()).unwrap();
    let (x, mut y) = (device.buffer_from(&[1.0f32; 100]).unwrap(), device.buffer_from(&[0.0f32; 100]).unwrap());
    kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 60u32).over(100).unwrap();
    assert_eq!(dispatches(&null), [[2, 1, 1]]);
    let read = y.read().unwrap();
    assert!(read[..60].iter().all(|y| *y == 1.0) && read[60..].iter().all(|y| *y == 0.0));
}

/// Many dispatches in one submission, in order with copies; nothing waits.
#[test]
fn a_list_of_launches_is_one_submission() {
    let null = NullDevice::new().with_kernel("scale.wgsl", run_scale).manual_completion();
    let device = null.clone().into_device().unwrap();
    let kernel = device.kernel(scale()).unwrap();
    let buffers: Vec<_> = (0..4).map(|i| device.buffer_from(&[i as f32; 8]).unwrap()).collect();
    null.clear_records();
    let mut commands = device.commands();
    for pair in buffers.windows(2) {
        let launch = kernel.launch().bind("x", &pair[0]).value("n", 8u32);
        let mut to = pair[1].clone();
        launch.bind("y", &mut to).grid(Grid::over(8)).record(&mut commands).unwrap();
    }
    commands.copy(buffers[3].as_bytes(), buffers[0].as_bytes()).unwrap();
    let submission = device.submit(commands).unwrap();
    assert_eq!((dispatches(&null).len(), submissions(&null)), (3, 1));
    assert!(!null.records().contains(&Record::Complete { submission }), "nothing waited");
    assert_eq!(buffers[3].read().unwrap(), [0.0; 8]);
}

#[test]
fn a_grid_above_the_limit_is_split_into_dispatches_of_one_submission() {
    let null = NullDevice::new().with_info(|info| info.limits.max_workgroups_per_axis = 10);
    let device = null.clone().into_device().unwrap();
    let kernel = device.kernel(scale()).unwrap();
    let (x, mut y) = (device.buffer_of::<f32>(2000).unwrap(), device.buffer_of::<f32>(2000).unwrap());
    let mut launch = |grid| {
        null.clear_records();
        kernel.launch().bind("x", &x).bind("y", &mut y).value("n", 1u32).grid(grid).submit().unwrap();
        assert_eq!(submissions(&null), 1);
        dispatches(&null)
    };
    assert_eq!(launch(Grid::over(640)), [[10, 1, 1]]);
    assert_eq!(launch(Grid::over(641)), [[10, 1, 1], [1, 1, 1]]);
    assert_eq!(launch(Grid::workgroups([3, 11, 12])), [[3, 10, 10], [3, 1, 10], [3, 10, 2], [3, 1, 2]]);
    assert_eq!(launch(Grid::over(0)), [[0; 3]; 0]);
    assert_eq!(device.kernel_cache_stats().compiles, 2, "the kernel and its variant for wide grids");
}

/// The host data of a submission is bounded.
#[test]
fn host_bytes_of_a_submission_are_bounded() {
    let null = NullDevice::new();
    let device = null.clone().into_device().unwrap();
    let target = device.buffer(48 << 20).unwrap();
    let mut commands = device.commands();
    for byte in [1u8, 2, 3] {
        commands.write(&target, &vec![byte; 48 << 20]).unwrap();
    }
    null.clear_records();
    device.submit(commands).unwrap();
    assert_eq!(submissions(&null), 3, "144 MiB in pieces of at most 64");
    assert!(target.read().unwrap().iter().all(|byte| *byte == 3));
    let error = device.commands().write(&target, &[1]).unwrap_err();
    assert!(error.to_string().contains("50331648"), "{error}");
}

/// A write copies its data when it is recorded, and takes effect in order.
#[test]
fn recorded_writes_land_in_order() {
    let device = NullDevice::new().into_device().unwrap();
    let (a, b) = (device.buffer_from(&[0u32; 2]).unwrap(), device.buffer_from(&[0u32; 2]).unwrap());
    let mut commands = device.commands();
    let mut data = [1u32, 2];
    commands.write(a.as_bytes(), bytemuck::cast_slice(&data)).unwrap();
    commands.copy(a.as_bytes(), b.as_bytes()).unwrap();
    data = [3, 4];
    commands.write(a.as_bytes(), bytemuck::cast_slice(&data)).unwrap();
    data[0] = 9;
    device.submit(commands).unwrap();
    assert_eq!((a.read().unwrap(), b.read().unwrap(), data), (vec![3, 4], vec![1, 2], [9, 4]));
}

#[test]
fn lists_are_reused_empty() {
    let device = NullDevice::new().into_device().unwrap();
    let buffer = device.buffer(16).unwrap();
    let mut commands = device.commands();
    commands.zero(&buffer).unwrap();
    device.submit(commands).unwrap();
    let again = device.commands();
    assert!(again.is_empty());
    drop(buffer);
    assert_eq!(device.buffer_pool_stats().live_buffers, 0, "a list that waits for reuse holds no buffer");
}

/// User-defined structs are valid element types.
#[test]
fn element_types_are_compared_where_both_are_known() {
    let source = SCALE.replace("array<f32>", "array<vec4<f32>>");
    let device = NullDevice::new().into_device().unwrap();
    let kernel = device.kernel(KernelSource::wgsl(source)).unwrap();
    let mut y = device.buffer_of::<f32>(16).unwrap();
    let (floats, arrays) = (device.buffer_of::<f32>(16).unwrap(), device.buffer_of::<[f32; 4]>(4).unwrap());
    let (wrong, odd) = (device.buffer_of::<i32>(16).unwrap(), device.buffer_of::<[u8; 6]>(16).unwrap());
    kernel.launch().bind("x", &floats).bind("y", &mut y).value("n", 4u32).over(4).unwrap();
    kernel.launch().bind("x", &arrays).bind("y", &mut y).value("n", 4u32).over(4).unwrap();
    kernel.launch().bind("x", arrays.as_bytes()).bind("y", &mut y).value("n", 4u32).over(4).unwrap();
    for error in [
        kernel.launch().bind("x", &wrong).bind("y", &mut y).value("n", 4u32).over(4).unwrap_err(),
        kernel.launch().bind("x", &odd).bind("y", &mut y).value("n", 4u32).over(4).unwrap_err(),
    ] {
        assert!(error.to_string().contains("binding x: array<vec4<f32>> (read) expected elements of f32"), "{error}");
    }
}
