//! Tests that need a separate process: identity across processes, a machine without a driver, a system out of memory.

use crate::support;
use kiln_device::{BufferOptions, Usage};
use kiln_gpu::GpuOptions;
use kiln_ir::ErrorKind;
use std::process::Command;

/// Runs the ignored test `child` of this binary, and returns the lines that it prints after a mark.
fn run_child(task: &str, environment: &[(&str, &str)]) -> Vec<String> {
    run_child_with_errors(task, environment).0
}

/// The lines of the child, and its standard error.
fn run_child_with_errors(task: &str, environment: &[(&str, &str)]) -> (Vec<String>, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "processes::child", "--ignored", "--nocapture", "--test-threads=1"]);
    // As on a machine without a screen.
    command.env_remove("XDG_RUNTIME_DIR").env_remove("WAYLAND_DISPLAY").env_remove("DISPLAY");
    command.env(TASK, task).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{task}: {text}\n{errors}");
    let lines = text.lines().filter_map(|line| line.split_once(MARK)).map(|(_, line)| line.to_string());
    (lines.collect(), errors)
}

const TASK: &str = "KILN_GPU_TEST_TASK";
const MARK: &str = "child says: ";

/// Not a test: the code that the tests below run in another process.
#[test]
#[ignore = "run by other tests in a process of its own"]
fn child() {
    match std::env::var(TASK).as_deref() {
        Ok("fingerprints") => {
            for info in kiln_gpu::list() {
                println!("\n{MARK}{} {} {}", info.id, info.fingerprint, info.name);
            }
        }
        Ok("probe") => match kiln_gpu::probe() {
            Ok(found) => println!("\n{MARK}found {}", found.len()),
            Err(error) => {
                println!("\n{MARK}{:?} {error}", error.kind());
                println!("\n{MARK}{}", std::error::Error::source(&error).unwrap());
                assert!(kiln_gpu::list().is_empty());
                println!("\n{MARK}{}", kiln_gpu::open(0, GpuOptions::new()).unwrap_err());
            }
        },
        Ok("open") => {
            let found = kiln_gpu::list();
            for index in 0..found.len() {
                let device = kiln_gpu::open(index, GpuOptions::new()).unwrap();
                println!("\n{MARK}{:?}", device.buffer_from(&[1u8, 2]).unwrap().read().unwrap());
            }
        }
        Ok("exhaust") => exhaust(),
        other => panic!("no such task: {other:?}"),
    }
}

/// The fingerprint of a device is the same in every process.
#[test]
fn fingerprints_agree_between_processes() {
    if support::in_place().is_none() {
        return;
    }
    let here: Vec<_> = kiln_gpu::list().iter().map(|i| format!("{} {} {}", i.id, i.fingerprint, i.name)).collect();
    assert!(!here.is_empty());
    assert_eq!(run_child("fingerprints", &[]), here);
    assert_eq!(run_child("fingerprints", &[]), here);
}

/// Neither Kiln nor a driver nor the library of a window system writes to standard error.
#[test]
fn opening_a_gpu_writes_nothing_to_standard_error() {
    if support::in_place().is_none() {
        return;
    }
    let (lines, errors) = run_child_with_errors("open", &[]);
    assert!(!lines.is_empty() && lines.iter().all(|line| line == "[1, 2]"), "{lines:?}");
    assert_eq!(errors, "");
}

/// Without a driver, the error says what was searched and what to install.
#[test]
#[cfg(target_os = "linux")]
fn a_missing_driver_error_says_what_to_install() {
    let nowhere = [("VK_DRIVER_FILES", "/nonexistent"), ("VK_ICD_FILENAMES", "/nonexistent")];
    let lines = run_child("probe", &nowhere);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("Unsupported expected a GPU, found no"), "{}", lines[0]);
    assert!(lines[0].contains("searched: vulkan") && lines[0].contains("mesa-vulkan-drivers"), "{}", lines[0]);
    assert!(lines[1].contains("vulkan"), "{}", lines[1]);
    assert!(lines[0].ends_with(&lines[2]), "opening gives the same error: {lines:?}");
}

/// A driver that is out of memory returns `OutOfMemory`, and the device stays usable.
#[test]
#[cfg(target_os = "linux")]
fn a_driver_out_of_memory_does_not_end_the_device() {
    let Some(device) = support::in_place() else { return };
    if device.info().kind != kiln_device::DeviceKind::SoftwareGpu {
        println!("skipped: only a software driver's memory is limited by that of the process");
        return;
    }
    assert_eq!(run_child("exhaust", &[]), ["out of memory", "well again"]);
}

/// Limits the address space of this process, fills it, and recovers.
fn exhaust() {
    let device = kiln_gpu::open(0, GpuOptions::new()).unwrap();
    device.buffer_from(&[1u8; 64]).unwrap().read().unwrap();
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let limit = format!("--as={}", pages * 4096 + (768 << 20));
    let pid = format!("--pid={}", std::process::id());
    assert!(Command::new("prlimit").args([&pid, &limit]).status().unwrap().success());
    for usage in [Usage::Shared, Usage::Storage, Usage::Download] {
        let raw: Vec<_> = (0..32).map(|_| device.api().allocate(128 << 20, usage)).collect();
        let error = raw.iter().find_map(|result| result.as_ref().err()).expect("the limit holds");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{usage}: {error}");
        assert!(error.to_string().contains(&(128u64 << 20).to_string()), "{error}");
    }
    let mut held = Vec::new();
    let error = loop {
        match device.buffer_with(BufferOptions::new(128 << 20).label("hoard")) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
        assert!(held.len() < 32, "the limit holds");
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("hoard"), "{error}");
    println!("\n{MARK}out of memory");
    drop(held);
    device.pool().clear().unwrap();
    let buffer = device.buffer(128 << 20).unwrap();
    buffer.slice(..4).unwrap().write(&[1, 2, 3, 4]).unwrap();
    assert_eq!(buffer.slice(..4).unwrap().read().unwrap(), [1, 2, 3, 4]);
    println!("\n{MARK}well again");
}
