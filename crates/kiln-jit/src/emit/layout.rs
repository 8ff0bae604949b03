//! Layout of a thread's scratch memory: `workgroup` variables, slots of uniform conditions, then a frame per
//! gang.

use super::pointer::Base;
use super::{Emitted, Result};
use crate::CompileError;
use crate::sanitizer::site::Site;
use naga::{GlobalVariable, Handle, Span};
use std::collections::HashMap;

/// Maximum size of all frames of a workgroup.
pub(crate) const MAX_FRAMES_BYTES: u64 = 64 << 20;

/// Locations of globals, and the sizes of each part of the scratch memory.
pub(crate) struct Layout {
    /// Base and offset of each global that is not private: its binding with offset 0, or a byte offset in
    /// workgroup memory.
    globals: HashMap<Handle<GlobalVariable>, (Base, u32)>,
    /// Size of the `workgroup` variables, and with the slots of uniform conditions. Frames start at
    /// `group_bytes`.
    pub(super) workgroup_bytes: u32,
    pub(super) group_bytes: u32,
    /// Words per invocation in a frame. A frame stores word 0 of all lanes, then word 1 of all lanes, and so
    /// on, so that a gang accesses a word with vector loads and stores.
    words: u32,
    lanes: u32,
    /// Frames in use at the same time: one without barriers, because gangs then run to completion one by one.
    frames: u32,
}

impl Layout {
    /// Creates an empty layout.
    pub(crate) fn new(lanes: usize, frames: u32) -> Self {
        Self { globals: HashMap::new(), workgroup_bytes: 0, group_bytes: 0, words: 0, lanes: lanes as u32, frames }
    }

    /// Places a global at a binding.
    pub(crate) fn add_binding(&mut self, handle: Handle<GlobalVariable>, binding: u32) {
        self.globals.insert(handle, (Base::Binding(binding), 0));
    }

    /// Places a `workgroup` variable. Sizes are rounded up to a vector, so that zeroing uses whole vectors.
    pub(crate) fn add_workgroup_variable(&mut self, handle: Handle<GlobalVariable>, bytes: u32) {
        self.globals.insert(handle, (Base::Workgroup, self.workgroup_bytes));
        self.workgroup_bytes += bytes.next_multiple_of(16);
        self.group_bytes = self.workgroup_bytes;
    }

    /// Reserves words of the workgroup for conditions, after all variables are placed. Returns the offset of
    /// the first.
    pub(crate) fn add_uniform_conditions(&mut self, count: usize) -> u32 {
        let first = self.group_bytes;
        self.group_bytes = (first + 4 * count as u32).next_multiple_of(16);
        first
    }

    /// Reserves words per invocation in the frame, and returns the index of the first.
    ///
    /// # Errors
    /// The frames of a workgroup would exceed [`MAX_FRAMES_BYTES`].
    pub(crate) fn reserve(&mut self, count: usize, span: Span) -> Result<u32> {
        let first = self.words;
        let words = u64::from(first) + count as u64;
        // In 64 bits: each factor is bounded, their product is not.
        let bytes = words * u64::from(self.word_bytes()) * u64::from(self.frames);
        if bytes > MAX_FRAMES_BYTES {
            let message = format!(
                "expected at most {MAX_FRAMES_BYTES} bytes of variables for the invocations of a workgroup, found {bytes}"
            );
            return Err(CompileError::new(span, message));
        }
        self.words = words as u32;
        Ok(first)
    }

    /// Returns the location of a global; `None` if it is private.
    pub(crate) fn global(&self, handle: Handle<GlobalVariable>) -> Option<(Base, u32)> {
        self.globals.get(&handle).copied()
    }

    /// Returns the global that contains an offset, and the offset where it starts.
    pub(crate) fn global_at(&self, base: Base, offset: u32) -> Option<(Handle<GlobalVariable>, u32)> {
        // Globals do not overlap, so the last one that starts at or before the offset contains it.
        let before = self.globals.iter().filter(|(_, (other, start))| *other == base && *start <= offset);
        before.max_by_key(|(_, (_, start))| *start).map(|(handle, (_, start))| (*handle, *start))
    }

    /// Distance in bytes between two words of an invocation.
    pub(crate) fn word_bytes(&self) -> u32 {
        self.lanes * 4
    }

    /// Returns the sizes that the caller of the code needs.
    pub(crate) fn finish(self, sites: Vec<Site>) -> Emitted {
        // Cannot overflow: `reserve` keeps the frames of a workgroup within `MAX_FRAMES_BYTES`.
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
            layout.add_workgroup_variable(handle, bytes);
            assert_eq!(layout.global(handle), Some((Base::Workgroup, start)));
            assert_eq!((layout.workgroup_bytes, layout.group_bytes), (end, end));
        }
        assert_eq!(layout.global(bound), Some((Base::Binding(5), 0)));
        let table = [(15, (first, 0)), (16, (second, 16)), (63, (second, 16))];
        for (offset, expected) in table {
            assert_eq!(layout.global_at(Base::Workgroup, offset), Some(expected), "{offset}");
        }
        assert_eq!(layout.global_at(Base::Binding(5), 1000), Some((bound, 0)));
        assert_eq!(layout.global_at(Base::Binding(4), 0), None);
        // Condition slots follow, and the frames after them stay aligned.
        assert_eq!((layout.add_uniform_conditions(3), layout.group_bytes, layout.workgroup_bytes), (64, 80, 64));
    }

    #[test]
    fn frames_have_a_word_per_lane_and_a_size_limit() {
        for (lanes, frames) in [(1, 1), (1, 256), (8, 1), (8, 32)] {
            let mut layout = Layout::new(lanes, frames);
            assert_eq!(layout.reserve(3, Span::UNDEFINED), Ok(0));
            assert_eq!(layout.reserve(2, Span::UNDEFINED), Ok(3));
            assert_eq!(layout.word_bytes(), 4 * lanes as u32);
            let most = MAX_FRAMES_BYTES as usize / (4 * lanes * frames as usize) - 5;
            let error = layout.reserve(most + 1, Span::UNDEFINED).unwrap_err();
            assert!(error.message.contains("at most 67108864 bytes"), "{error}");
            assert_eq!(layout.reserve(most, Span::UNDEFINED), Ok(5), "a rejected reservation takes no space");
            let emitted = layout.finish(Vec::new());
            assert_eq!(u64::from(emitted.frame_bytes) * u64::from(emitted.frames), MAX_FRAMES_BYTES);
        }
    }
}
