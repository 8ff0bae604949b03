//! A work that is ready to run, in the form of any library.

use crate::{Arm, Fault};
use std::rc::Rc;

/// A work that is ready to run: its inputs are where the library wants them.
pub struct Ready {
    run: Rc<dyn Fn() -> Result<(), Fault>>,
    output: Box<dyn Fn() -> Result<Vec<f32>, Fault>>,
}

impl Ready {
    /// A work of `compute`, which gives one result or several that are done, and of `read`, which gives the elements of one.
    pub fn new<T: 'static>(
        compute: impl Fn() -> Result<Vec<T>, Fault> + 'static,
        read: impl Fn(&T) -> Result<Vec<f32>, Fault> + 'static,
    ) -> Self {
        let compute = Rc::new(compute);
        let again = compute.clone();
        let output = move || {
            let elements = again()?.iter().map(&read).collect::<Result<Vec<_>, Fault>>()?;
            Ok(elements.concat())
        };
        Self { run: Rc::new(move || compute().map(drop)), output: Box::new(output) }
    }

    /// Does the work once, and drops the results.
    ///
    /// # Errors
    /// Those of the library.
    pub fn run(&self) -> Result<(), Fault> {
        (self.run)()
    }

    /// Does the work once, and returns the elements of its results, one after the other.
    ///
    /// # Errors
    /// Those of the library.
    pub fn output(&self) -> Result<Vec<f32>, Fault> {
        (self.output)()
    }

    /// The work as an arm of a comparison.
    pub fn arm(&self, name: &str) -> Arm<'static> {
        let run = self.run.clone();
        Arm::new(name, move || run())
    }
}
