//! Test support shared by tests and benchmarks. No library and no program depends on it.
//!
//! It owns the independent references ([`Array`]: `f64` and plain loops), the layouts that every op must support
//! ([`layouts`]), tolerances ([`tolerance`]), test cases computed by NumPy ([`fixture`]), random kernels ([`wgsl`]), a seeded random number
//! generator ([`Rng`]) and the benchmark harness ([`arms`]).
//! It knows no device and no tensor: a layout is a list of [views](View) that a test applies through the interface under test.
//!
//! ```
//! use kiln_testkit::{Array, layouts};
//!
//! let wanted = Array::from_fn(&[2, 3], |index| (10 * index[0] + index[1]) as f64);
//! for layout in layouts(&wanted) {
//!     let seen = layout.views.iter().fold(layout.base.clone(), |array, view| array.view(view));
//!     assert_eq!(seen, wanted, "{}", layout.name);
//! }
//! ```

#![forbid(unsafe_code)]

pub mod arms;
mod array;
mod elements;
pub mod fixture;
mod layout;
mod rng;
pub mod tolerance;
mod view;
pub mod wgsl;

pub use array::Array;
pub use elements::{decode, encode, rounded};
pub use layout::{LayoutCase, layouts};
pub use rng::Rng;
pub use view::View;
