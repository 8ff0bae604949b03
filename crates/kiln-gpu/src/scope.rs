//! Converts wgpu's error scopes and futures into results.

use crate::fault::one_line;
use kiln_ir::{Error, Result, error};
use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Runs `work` and returns the first error that wgpu reports for it on this thread.
///
/// Without an error scope, such an error reaches the handler of uncaptured errors, which puts the device into the lost
/// state.
pub(crate) fn catch<T>(device: &wgpu::Device, work: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
    let memory = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let internal = device.push_error_scope(wgpu::ErrorFilter::Internal);
    let validation = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let value = work();
    // wgpu requires the innermost scope to be popped first.
    let errors = [ready(validation.pop()), ready(internal.pop()), ready(memory.pop())];
    (value, errors.into_iter().flatten().flatten().next())
}

/// Runs `work` and returns wgpu's error, if any. `what` names the operation in the message, such as "map a buffer".
pub(crate) fn check<T>(device: &wgpu::Device, what: impl Display, work: impl FnOnce() -> T) -> Result<T> {
    let (value, error) = catch(device, work);
    error.map_or(Ok(value), |error| Err(convert(error, what)))
}

/// Creates a wgpu buffer that is not mapped.
pub(crate) fn buffer(device: &wgpu::Device, size: u64, usage: wgpu::BufferUsages) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
}

/// Converts a wgpu error into a Kiln error. `what` is the failed operation: a verb and its object.
pub(crate) fn convert(error: wgpu::Error, what: impl Display) -> Error {
    match error {
        wgpu::Error::OutOfMemory { .. } => {
            error!(OutOfMemory, "expected the driver to {what}, found its memory exhausted")
        }
        wgpu::Error::Validation { ref description, .. } | wgpu::Error::Internal { ref description, .. } => {
            error!(Internal, "expected the driver to {what}, found: {}", one_line(description))
        }
    }
    .with_source(error)
}

/// Returns the value of a future that wgpu resolves immediately on every native platform, or `None` if it is pending.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
