//! The arms: one file for each library, with its form of every workload that it can do.

mod burn;
mod candle;
mod gemm;
mod kiln;
mod rten;

use kiln_bench::{Fault, ElementType, Op, PreparedWorkload};

/// A library that takes part.
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Makes a workload prepared to run, with its inputs in the library's own form.
    pub(crate) prepare: fn(&Task<'_>) -> Prepared,
}

/// A workload for a library.
pub(crate) struct Task<'a> {
    pub(crate) op: Op,
    pub(crate) dtype: ElementType,
    /// The elements of its inputs, rounded to the dtype.
    pub(crate) data: &'a [Vec<f32>],
    pub(crate) threads: usize,
}

/// A workload in the form of a library, or why there is none.
pub(crate) type Prepared = Result<PreparedWorkload, Unavailable>;

/// Why a library has no arm for a workload.
#[derive(Debug)]
pub(crate) enum Unavailable {
    /// The library lacks what it needs.
    Lacks(&'static str),
    /// It broke when the inputs were made.
    Broken(Fault),
}

impl<E: Into<Fault>> From<E> for Unavailable {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
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

/// The library with this name.
pub(crate) fn library(name: &str) -> Option<&'static Library> {
    LIBRARIES.iter().find(|library| library.name == name)
}
