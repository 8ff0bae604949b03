//! Kernel arguments, shared by `kiln run` and `kiln check`.

use super::dims::{Dims, Workgroups, parse_seconds};
use crate::source_args::Named;
use kiln::kernel::Grid;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arrays, numbers, and how often the kernel runs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Problem {
    /// Initial contents of a buffer, with the element type of the kernel: f16, f32, i32 or u32. Repeatable.
    #[arg(long = "in", value_name = "BUFFER=FILE.npy", value_parser = Named::<PathBuf>::parse)]
    pub(super) inputs: Vec<Named<PathBuf>>,
    /// Shape of a buffer in elements, in NumPy's order: `y=10x20`. Vector elements (`vec3<f32>`) add an axis, matrix elements add two (columns,
    /// rows). For a struct that ends in a runtime-sized array, the length of that array. Repeatable.
    #[arg(long = "shape", value_name = "BUFFER=SHAPE", value_parser = Named::<Dims>::parse)]
    pub(super) shapes: Vec<Named<Dims>>,
    /// Value of a uniform, or comma-separated values: `n=1000`, `params.scale=0.5`, `v=1,2,3`. A matrix, an array or a nested struct takes
    /// all its numbers in memory order, without padding: `m=1,0,0,1`, column by column. Repeatable.
    #[arg(long = "value", value_name = "UNIFORM=NUMBER", value_parser = Named::<String>::parse)]
    pub(super) values: Vec<Named<String>>,
    /// Problem size in invocations: 1000, or 64x32 for x and y, or x, y and z. Rounded up to whole workgroups. Arrays that take their shape
    /// from it have x as the last axis.
    #[arg(long, value_name = "ITEMS")]
    pub(super) size: Option<Dims>,
    /// Number of workgroups along x, y and z: `4,1,1`.
    #[arg(long, value_name = "X,Y,Z", conflicts_with = "size")]
    pub(super) workgroups: Option<Workgroups>,
    /// Time limit of the kernel on the CPU device, such as 0.5. Default: 60. On a GPU, the driver's limit applies instead.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(super) time_limit: Option<Duration>,
}

impl Problem {
    /// Returns the grid of the command line; `None` if not given.
    pub(super) fn grid(&self) -> Option<Grid> {
        match (&self.size, &self.workgroups) {
            (Some(size), _) => Some(Grid::over(size.extent())),
            (None, Some(Workgroups(count))) => Some(Grid::workgroups(*count)),
            (None, None) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) kernel: &'a Path,
    pub(super) problem: &'a Problem,
    /// Destinations of buffers after the run.
    pub(super) outputs: &'a [Named<PathBuf>],
    /// Number of elements for buffers without an input, if they are filled instead of refused.
    pub(super) fill: Option<u64>,
}
