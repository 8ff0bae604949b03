//! WGSL kernels in a build without the compiler: all are rejected.

use crate::identity::KernelInfo;
use crate::{SimdLevel, Threads};
use kiln_device::{Artifact, Dispatch, KernelModule, Loaded};
use kiln_ir::{Error, ErrorKind, Result};
use std::time::Duration;

/// Replaces the type of the same name in a build with the compiler.
#[derive(Debug)]
pub(crate) struct Kernels;

impl Kernels {
    pub(crate) fn new(_: SimdLevel, _: bool) -> Self {
        Self
    }

    pub(crate) fn describe(&self) -> Option<KernelInfo> {
        None
    }

    pub(crate) fn translate(&self, _: &KernelModule) -> Result<Artifact> {
        Err(refused())
    }

    pub(crate) fn load(_: &Artifact) -> Result<Loaded> {
        Err(refused())
    }

    pub(crate) fn run(&self, _: &Dispatch, _: &Threads, _: Option<Duration>) -> Result<bool> {
        Err(refused())
    }
}

fn refused() -> Error {
    let message =
        "CPU device expected a build with the feature `wgsl`, which has the compiler for kernels, found one without";
    Error::new(ErrorKind::Unsupported, message)
}
