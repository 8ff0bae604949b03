//! The builder of a registry: device and byte budget.

use super::CacheRegistry;
use crate::builder::Builder;
use crate::error::{CacheError, CacheErrorKind};

/// Builds a [`CacheRegistry`]; see [`CacheRegistry::builder`].
///
/// See the [crate documentation](crate) for an example.
pub type CacheRegistryBuilder<D> = Builder<RegistrySettings<D>>;

/// The settings that only a registry has.
///
/// [`CacheRegistryBuilder`] sets them; see the [crate documentation](crate) for an example.
#[derive(Debug)]
pub struct RegistrySettings<D> {
    pub(super) device: Option<D>,
    pub(super) byte_budget: Option<u64>,
}

impl<D: Send + Sync + 'static> CacheRegistryBuilder<D> {
    /// Sets the device that creations receive if the caller passes none.
    pub fn device(mut self, device: D) -> Self {
        self.settings.device = Some(device);
        self
    }

    /// Limits the total bytes of all caches and slots; see [`CacheRegistry::set_byte_budget`].
    pub fn byte_budget(mut self, bytes: u64) -> Self {
        self.settings.byte_budget = Some(bytes);
        self
    }

    /// Builds the registry.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a setting is zero.
    pub fn build(self) -> Result<CacheRegistry<D>, CacheError> {
        let (settings, time, hub) = self.split()?;
        settings.byte_budget.map_or(Ok(()), validate_byte_budget)?;
        Ok(CacheRegistry::assemble(settings, time, hub))
    }
}

pub(super) fn validate_byte_budget(bytes: u64) -> Result<(), CacheError> {
    if bytes > 0 {
        return Ok(());
    }
    Err(CacheError::new(
        CacheErrorKind::InvalidArgument,
        "byte_budget is 0, expected at least 1; to keep nothing, do not use a cache",
    ))
}
