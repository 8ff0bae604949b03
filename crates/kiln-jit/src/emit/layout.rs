//! The memory of the thread that runs a work-group: `workgroup` variables, decisions of its control flow, and a frame for each gang.

use super::pointer::Base;
use super::{Emitted, Result};
use crate::Refusal;
use crate::sanitize::site::Site;
use naga::{GlobalVariable, Handle, Span};
use std::collections::HashMap;

/// The most memory of the frames of a work-group.
pub(crate) const MAX_FRAMES_BYTES: u64 = 64 << 20;

/// Where global variables are, and how long the parts of the memory are.
pub(crate) struct Layout {
    /// Where each global begins, other than private ones: its binding with 0, or the byte among `workgroup` variables.
    globals: HashMap<Handle<GlobalVariable>, (Base, u32)>,
    /// Bytes of `workgroup` variables, and with the decisions: then come the frames.
    pub(super) shared_bytes: u32,
    pub(super) group_bytes: u32,
    /// Words that an invocation has in its frame, each beside those of the other lanes.
    words: u32,
    lanes: u32,
    /// Frames in use at the same time: one without barriers, since gangs then run one after the other.
    frames: u32,
}

impl Layout {
    pub(crate) fn new(lanes: usize, frames: u32) -> Self {
        Self { globals: HashMap::new(), shared_bytes: 0, group_bytes: 0, words: 0, lanes: lanes as u32, frames }
    }

    pub(crate) fn add_binding(&mut self, handle: Handle<GlobalVariable>, binding: u32) {
        self.globals.insert(handle, (Base::Bound(binding), 0));
    }

    /// Adds a `workgroup` variable of whole registers, which the memory is cleared by.
    pub(crate) fn add_shared(&mut self, handle: Handle<GlobalVariable>, bytes: u32) {
        self.globals.insert(handle, (Base::Shared, self.shared_bytes));
        self.shared_bytes += bytes.next_multiple_of(16);
        self.group_bytes = self.shared_bytes;
    }

    /// Adds words of the whole work-group, once its variables are placed, and returns the first byte.
    pub(crate) fn add_decisions(&mut self, count: usize) -> u32 {
        let first = self.group_bytes;
        self.group_bytes = (first + 4 * count as u32).next_multiple_of(16);
        first
    }

    /// Adds words to the frame of each invocation, and returns the number of the first.
    ///
    /// # Errors
    /// Where the frames of a work-group become larger than [`MAX_FRAMES_BYTES`].
    pub(crate) fn reserve(&mut self, count: usize, span: Span) -> Result<u32> {
        let first = self.words;
        let words = u64::from(first) + count as u64;
        let bytes = words * u64::from(self.word_bytes()) * u64::from(self.frames);
        if bytes > MAX_FRAMES_BYTES {
            let message = format!(
                "expected at most {MAX_FRAMES_BYTES} bytes of variables for the invocations of a work-group, found {bytes}"
            );
            return Err(Refusal::new(span, message));
        }
        self.words = words as u32;
        Ok(first)
    }

    /// Where a global begins; `None` for a private one.
    pub(crate) fn global(&self, handle: Handle<GlobalVariable>) -> Option<(Base, u32)> {
        self.globals.get(&handle).copied()
    }

    /// The global that an offset of a base is in, and where it begins.
    pub(crate) fn global_at(&self, base: Base, offset: u32) -> Option<(Handle<GlobalVariable>, u32)> {
        let before = self.globals.iter().filter(|(_, (other, start))| *other == base && *start <= offset);
        before.max_by_key(|(_, (_, start))| *start).map(|(handle, (_, start))| (*handle, *start))
    }

    /// Bytes from one word of an invocation to the next.
    pub(crate) fn word_bytes(&self) -> u32 {
        self.lanes * 4
    }

    /// The sizes that the caller of the code needs.
    pub(crate) fn finish(self, sites: Vec<Site>) -> Emitted {
        let frame_bytes = self.words * self.word_bytes();
        Emitted { group_bytes: self.group_bytes, frame_bytes, frames: self.frames, sites }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handles<const N: usize>() -> [Handle<GlobalVariable>; N] {
        let source = "var<private> a: f32; var<private> b: f32; var<private> c: f32;";
        let module = naga::front::wgsl::parse_str(source).unwrap();
        let mut globals = module.global_variables.iter().map(|(handle, _)| handle);
        std::array::from_fn(|_| globals.next().unwrap())
    }

    #[test]
    fn globals_are_aligned_and_found_by_their_offsets() {
        let ([bound, first, second], mut layout) = (handles(), Layout::new(8, 1));
        layout.add_binding(bound, 5);
        for (handle, bytes, start, end) in [(first, 4, 0, 16), (second, 48, 16, 64)] {
            layout.add_shared(handle, bytes);
            assert_eq!(layout.global(handle), Some((Base::Shared, start)));
            assert_eq!((layout.shared_bytes, layout.group_bytes), (end, end));
        }
        assert_eq!(layout.global(bound), Some((Base::Bound(5), 0)));
        let table = [(15, (first, 0)), (16, (second, 16)), (63, (second, 16))];
        for (offset, expected) in table {
            assert_eq!(layout.global_at(Base::Shared, offset), Some(expected), "{offset}");
        }
        assert_eq!(layout.global_at(Base::Bound(5), 1000), Some((bound, 0)));
        assert_eq!(layout.global_at(Base::Bound(4), 0), None);
        // Decisions follow, and the frames after them are aligned too.
        assert_eq!((layout.add_decisions(3), layout.group_bytes, layout.shared_bytes), (64, 80, 64));
    }

    #[test]
    fn frames_have_a_word_of_each_lane_and_a_limit() {
        for (lanes, frames) in [(1, 1), (1, 256), (8, 1), (8, 32)] {
            let mut layout = Layout::new(lanes, frames);
            assert_eq!(layout.reserve(3, Span::UNDEFINED), Ok(0));
            assert_eq!(layout.reserve(2, Span::UNDEFINED), Ok(3));
            assert_eq!(layout.word_bytes(), 4 * lanes as u32);
            let most = MAX_FRAMES_BYTES as usize / (4 * lanes * frames as usize) - 5;
            let refusal = layout.reserve(most + 1, Span::UNDEFINED).unwrap_err();
            assert!(refusal.message.contains("at most 67108864 bytes"), "{refusal}");
            assert_eq!(layout.reserve(most, Span::UNDEFINED), Ok(5), "what was refused takes nothing");
            let emitted = layout.finish(Vec::new());
            assert_eq!(u64::from(emitted.frame_bytes) * u64::from(emitted.frames), MAX_FRAMES_BYTES);
        }
    }
}
