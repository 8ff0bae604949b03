//! The fault that ends a device: set once, and returned by every later use of the device.

use kiln_ir::{Error, Result, error};
use std::sync::OnceLock;

#[derive(Debug)]
pub(crate) struct Fault {
    adapter: String,
    error: OnceLock<Error>,
}

impl Fault {
    pub(crate) fn new(adapter: &str) -> Self {
        Self { adapter: adapter.to_string(), error: OnceLock::new() }
    }

    /// Marks the device as lost and returns the error to report. The first reason is kept, because later ones follow
    /// from it.
    pub(crate) fn set_lost(&self, reason: &str) -> Error {
        let error = self.error.get_or_init(|| {
            tracing::error!(adapter = self.adapter, reason, "device lost");
            error!(DeviceLost, "expected the device `{}` to work, found it lost: {reason}", self.adapter)
        });
        error.clone()
    }

    pub(crate) fn get(&self) -> Option<Error> {
        self.error.get().cloned()
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.get().map_or(Ok(()), Err)
    }
}

/// Joins the lines of a wgpu message, whose list of causes spans several lines.
pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(": ").replace(":: ", ": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::ErrorKind;

    #[test]
    fn the_first_reason_stays() {
        let fault = Fault::new("toy");
        assert!(fault.check().is_ok());
        fault.set_lost("unplugged");
        let later = fault.set_lost("something that follows from it");
        assert_eq!(later.kind(), ErrorKind::DeviceLost);
        assert_eq!(later.to_string(), "expected the device `toy` to work, found it lost: unplugged");
        assert_eq!(fault.get().map(|error| error.to_string()), Some(later.to_string()));
        assert_eq!(fault.check().unwrap_err().to_string(), later.to_string());
    }

    #[test]
    fn a_list_of_causes_becomes_one_line() {
        assert_eq!(one_line("Validation Error\n\nCaused by:\n  In a\n    b\n"), "Validation Error: Caused by: In a: b");
    }
}
