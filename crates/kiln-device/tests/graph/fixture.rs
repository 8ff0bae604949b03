//! Devices, buffers and graphs for the tests.

use kiln_device::{Buffer, BufferOptions, BufferUse, CommandList, Device, Graph, NullDevice, PoolOptions, Usage};
use kiln_ir::{Error, ErrorKind, Result};
use kiln_resource_cache::MockClock;
use std::sync::mpsc;
use std::time::Duration;

/// Creates a null device whose pool starts no thread.
pub(crate) fn device(null: &NullDevice) -> Device {
    null.clone().into_device_with(PoolOptions::new().clock(MockClock::new())).unwrap()
}

/// The CPU device with two threads.
pub(crate) fn cpu() -> Device {
    let pool = PoolOptions::new().clock(MockClock::new());
    kiln_cpu::open(kiln_cpu::CpuOptions::new().threads(2).pool(pool)).unwrap()
}

pub(crate) fn storage(device: &Device, bytes: u64) -> Buffer {
    device.buffer_with(BufferOptions::new(bytes).usage(Usage::Storage)).unwrap()
}

/// Creates a graph that declares buffers under their names.
pub(crate) fn graph_of<'a>(buffers: impl IntoIterator<Item = (&'a str, &'a Buffer)>) -> Graph {
    let mut graph = Graph::new();
    for (name, buffer) in buffers {
        graph.buffer(name, buffer).unwrap();
    }
    graph
}

/// Adds a host node that writes `byte` everywhere.
pub(crate) fn fill(graph: &mut Graph, name: &str, buffer: &Buffer, byte: u8) {
    let fill = move |[buffer]: [&Buffer; 1]| buffer.write(&vec![byte; buffer.bytes() as usize]);
    graph.host(name, [(buffer, BufferUse::Write)], fill).unwrap();
}

/// Adds a node of several commands: zero one buffer, copy it to another.
pub(crate) fn clear(graph: &mut Graph, name: &str, from: &Buffer, to: &Buffer) {
    let mut commands = CommandList::new();
    commands.zero(from).unwrap();
    commands.copy(from, to).unwrap();
    graph.commands(name, commands).unwrap();
}

pub(crate) fn part(buffer: &Buffer, range: std::ops::Range<u64>) -> Buffer {
    buffer.slice(range).unwrap()
}

/// Returns the message of an `InvalidArgument` error.
pub(crate) fn invalid<T>(result: Result<T>) -> String {
    let error = result.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    error.to_string()
}

pub(crate) fn planted() -> Error {
    Error::new(ErrorKind::Io, "planted")
}

/// Fails instead of hanging.
pub(crate) fn within_a_minute<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = work();
        sender.send(()).unwrap();
        result
    });
    match receiver.recv_timeout(Duration::from_mins(1)) {
        Ok(()) => thread.join().unwrap(),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().err().unwrap()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("still waiting after a minute"),
    }
}
