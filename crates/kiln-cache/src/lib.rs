//! Typed caches.
#![forbid(unsafe_code)]

mod advice;
mod cache;
mod clock;
mod error;
pub mod events;
mod kernel;
mod metrics;
mod policy;
mod registry;
mod sync;

pub use advice::{Advice, AdviceKind};
pub use cache::{Cache, CacheBuilder};
pub use clock::{Clock, MockClock};
pub use error::{CacheError, CacheErrorKind};
pub use kernel::CacheableKernel;
pub use metrics::{CacheMetrics, LastEvent};
pub use policy::{EvictionOrder, EvictionPolicy, EvictionReason};
pub use registry::{
    CacheRegistry, CacheRegistryBuilder, CacheRegistrySlot, CacheUsage, RegistryReport, SlotMut, SlotUsage, TrimReport,
    WarmFailure, WarmReport,
};
