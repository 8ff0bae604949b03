//! A prepared workload of any library.

use crate::{Arm, Fault};
use std::rc::Rc;

/// A prepared workload: its inputs are already in the library's memory.
///
/// See the [crate documentation](crate) for an example.
pub struct PreparedWorkload {
    run: Rc<dyn Fn() -> Result<(), Fault>>,
    output: Box<dyn Fn() -> Result<Vec<f32>, Fault>>,
}

impl PreparedWorkload {
    /// Creates a workload. `compute` returns one or several finished results; `read` returns the elements of one.
    pub fn new<T: 'static>(
        compute: impl Fn() -> Result<Vec<T>, Fault> + 'static,
        read: impl Fn(&T) -> Result<Vec<f32>, Fault> + 'static,
    ) -> Self {
        // Shared by both closures: `run` drops the results, `output` reads them.
        let compute = Rc::new(compute);
        let compute_output = compute.clone();
        let output = move || {
            let elements = compute_output()?.iter().map(&read).collect::<Result<Vec<_>, Fault>>()?;
            Ok(elements.concat())
        };
        Self { run: Rc::new(move || compute().map(drop)), output: Box::new(output) }
    }

    /// Runs the workload once and drops the results.
    ///
    /// # Errors
    /// Returns the error of the library.
    pub fn run(&self) -> Result<(), Fault> {
        (self.run)()
    }

    /// Runs the workload once and returns the concatenated elements of its results.
    ///
    /// # Errors
    /// Returns the error of the library.
    pub fn output(&self) -> Result<Vec<f32>, Fault> {
        (self.output)()
    }

    /// Returns the workload as an arm of a comparison.
    pub fn arm(&self, name: &str) -> Arm<'static> {
        let run = self.run.clone();
        Arm::new(name, move || run())
    }
}
