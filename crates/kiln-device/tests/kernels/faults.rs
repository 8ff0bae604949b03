//! Faults of the device are returned by the next read or sync.

use crate::scale;
use kiln_device::{Device, Grid, NullArguments, NullDevice, TypedBuffer};
use kiln_ir::{Error, ErrorKind, Result};

const LENGTH: usize = 16;

/// `y = 2 * x`, on the host.
fn double(arguments: &mut NullArguments) {
    let x: Vec<f32> = bytemuck::pod_collect_to_vec(&arguments.buffers[&0]);
    let doubled: Vec<f32> = x.iter().map(|x| 2.0 * x).collect();
    arguments.buffers.get_mut(&1).unwrap().copy_from_slice(bytemuck::cast_slice(&doubled));
}

/// Four submissions: a write, two launches, a list of a write and a launch. Reads the result.
fn sequence(device: &Device) -> Result<Vec<f32>> {
    let kernel = device.kernel(scale())?;
    let mut buffers = (0..3).map(|_| device.buffer_of::<f32>(LENGTH)).collect::<Result<Vec<TypedBuffer<f32>>>>()?;
    buffers[0].write(&[1.0; LENGTH])?;
    for step in 0..2 {
        let from = buffers[step].clone();
        kernel.launch().bind("x", &from).bind("y", &mut buffers[step + 1]).value("n", LENGTH as u32).over(LENGTH)?;
    }
    let mut commands = device.commands();
    commands.write(buffers[0].as_bytes(), bytemuck::cast_slice(&[5.0f32; LENGTH]))?;
    let from = buffers[0].clone();
    let launch = kernel.launch().bind("x", &from).bind("y", &mut buffers[1]).value("n", LENGTH as u32);
    launch.grid(Grid::over(LENGTH)).record(&mut commands)?;
    device.submit(commands)?;
    device.synchronize()?;
    let (one, two) = (buffers[1].read()?, buffers[2].read()?);
    Ok(one.iter().zip(&two).map(|(one, two)| one + two).collect())
}

fn device(manual: bool) -> (NullDevice, Device) {
    let null = NullDevice::new().with_kernel("scale.wgsl", double);
    let null = if manual { null.manual_completion() } else { null };
    let device = null.clone().into_device().unwrap();
    (null, device)
}

/// A fault at every point of a sequence is an error by the next sync or read, and never a wrong number. A loss is
/// permanent.
#[test]
fn a_fault_at_every_point_surfaces() {
    type Plant = fn(&NullDevice, u64);
    let plants: [(&str, Plant, ErrorKind); 6] = [
        ("submission lost", NullDevice::lose_submission, ErrorKind::DeviceLost),
        ("submission did nothing", NullDevice::skip_submission, ErrorKind::DeviceLost),
        ("map", NullDevice::fail_map, ErrorKind::Internal),
        ("allocation", NullDevice::fail_allocation, ErrorKind::OutOfMemory),
        ("translation", NullDevice::fail_translation, ErrorKind::CompileFailed),
        ("load", NullDevice::fail_load, ErrorKind::CompileFailed),
    ];
    for manual in [false, true] {
        for (what, plant, kind) in plants {
            let mut struck = 0;
            for point in 1..=12 {
                let (null, device) = device(manual);
                plant(&null, point);
                match sequence(&device) {
                    Ok(values) => assert_eq!(values, [14.0; LENGTH], "{what} at {point}, manual {manual}"),
                    Err(error) => {
                        struck += 1;
                        assert_eq!(error.kind(), kind, "{what} at {point}: {error}");
                        check_sticky(&device, &error);
                    }
                }
            }
            // The pool retries an allocation, so a single failure is never visible.
            assert_eq!(struck == 0, what == "allocation", "{what} strikes somewhere, manual {manual}");
        }
    }
}

fn check_sticky(device: &Device, error: &Error) {
    if error.kind() == ErrorKind::DeviceLost {
        let later = [
            device.synchronize().unwrap_err(),
            device.buffer(16).unwrap_err(),
            device.submit(device.commands()).unwrap_err(),
            device.kernel(scale().constant("ALPHA", 3.0)).unwrap_err(),
        ];
        assert!(later.iter().all(|later| later.to_string() == error.to_string()), "{later:?}");
    } else {
        assert_eq!(sequence(device).unwrap(), [14.0; LENGTH], "once the fault is over: {error}");
    }
}

/// If there is permanently too little memory, the error says so.
#[test]
fn no_memory_for_staging_is_reported() {
    let null = NullDevice::new().with_capacity(1 << 20);
    let device = null.into_device().unwrap();
    let buffer = device.buffer(900 << 10).unwrap();
    let error = device.commands().write(&buffer, &vec![1; 900 << 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
}
