//! The arms: one file per library, with its implementation of each supported workload.

mod burn;
mod candle;
mod gemm;
mod kiln;
mod rten;

use kiln_bench::{ElementType, Fault, Op, PreparedWorkload};

/// A benchmarked library.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Prepares a workload, with the inputs in the library's memory.
    pub(crate) prepare: fn(&Task<'_>) -> Prepared,
}

/// A workload to prepare.
pub(crate) struct Task<'a> {
    pub(crate) op: Op,
    pub(crate) dtype: ElementType,
    /// Elements of the inputs, rounded to the dtype.
    pub(crate) data: &'a [Vec<f32>],
    pub(crate) threads: usize,
}

/// A prepared workload, or why there is none.
pub(crate) type Prepared = Result<PreparedWorkload, Unavailable>;

/// Why a library has no arm for a workload.
#[derive(Debug)]
pub(crate) enum Unavailable {
    /// The library does not support it.
    Unsupported(&'static str),
    /// Preparing the inputs failed.
    Failed(Fault),
}

impl<E: Into<Fault>> From<E> for Unavailable {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// All libraries, Kiln first.
pub(crate) static LIBRARIES: [Library; 5] = [
    Library { name: "kiln", version: env!("CARGO_PKG_VERSION"), prepare: kiln::prepare },
    Library { name: "candle", version: "0.11", prepare: candle::prepare },
    Library { name: "burn", version: "0.23.0-pre.1 flex", prepare: burn::prepare },
    Library { name: "gemm", version: "0.19", prepare: gemm::prepare },
    Library { name: "rten", version: "0.27", prepare: rten::prepare },
];

/// Returns the library with this name.
pub(crate) fn library(name: &str) -> Option<&'static Library> {
    LIBRARIES.iter().find(|library| library.name == name)
}
