//! Kernel arguments, shared by `kiln run` and `kiln check`.

use super::dims::{Dims, Workgroups, parse_seconds};
use crate::source_args::Named;
use kiln::kernel::Grid;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arrays, numbers, and how often the kernel runs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Problem {
    /// The array that a buffer begins with: f16, f32, i32 or u32, as the kernel has it. May be given several times.
    #[arg(long = "in", value_name = "BUFFER=FILE.npy", value_parser = Named::<PathBuf>::parse)]
    pub(super) inputs: Vec<Named<PathBuf>>,
    /// The shape of a buffer in elements, the first axis first, as NumPy has it: `y=10x20`. A vector as element (`vec3<f32>`)
    /// adds an axis of its length, a matrix adds its columns and its rows. Of a struct that ends in an array of any length it is the
    /// length of that array. May be given several times.
    #[arg(long = "shape", value_name = "BUFFER=SHAPE", value_parser = Named::<Dims>::parse)]
    pub(super) shapes: Vec<Named<Dims>>,
    /// The number, or the numbers with commas, of a uniform: `n=1000`, `params.scale=0.5`, `v=1,2,3`. A matrix, an array or a struct
    /// inside of a struct takes all its numbers in the order of memory, without padding: `m=1,0,0,1`, column after column. May be
    /// given several times.
    #[arg(long = "value", value_name = "UNIFORM=NUMBER", value_parser = Named::<String>::parse)]
    pub(super) values: Vec<Named<String>>,
    /// The problem: 1000, or 64x32 for x and y, or x, y and z. The kernel runs at least once for each item. x is the last
    /// axis of an array that gets its shape from this.
    #[arg(long, value_name = "ITEMS")]
    pub(super) size: Option<Dims>,
    /// Or how many workgroups run, along x, y and z: `4,1,1`.
    #[arg(long, value_name = "X,Y,Z", conflicts_with = "size")]
    pub(super) workgroups: Option<Workgroups>,
    /// How long the kernel may run on the CPU device before it is stopped, such as 0.5. Default: 60. A GPU device has the limit of
    /// its driver, whatever is said here.
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
