//! `tracing` spans around the work of a device.

use super::recorder::Recorder;
use tracing::span::EnteredSpan;

/// Opens a span if tracing is on: `span(recorder, |device| debug_span!(target: "kiln", "name", device))`.
#[inline]
pub(crate) fn span(recorder: Option<&Recorder>, make: impl FnOnce(&str) -> tracing::Span) -> Option<EnteredSpan> {
    let recorder = recorder.filter(|recorder| recorder.is_traced())?;
    Some(make(recorder.device()).entered())
}
