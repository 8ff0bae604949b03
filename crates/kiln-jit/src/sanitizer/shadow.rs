//! Shadow memory: the last accesses to each cell of a memory, for race detection.
//!
//! Two accesses race if different invocations make them, at least one writes, at least one is not atomic, and no
//! barrier orders them. An atomic access is only compared with later plain ones. Invocations run one at a time,
//! but races are detected from barrier epochs, not from timing.

use crate::LANES;

/// A recorded access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// The invocation as [`pack_invocation`] encodes it; 0 for none.
    pub(crate) invocation: u64,
    /// Barriers passed before the access, of the workgroup and of its subgroup.
    pub(crate) epoch: u32,
    pub(crate) subgroup_epoch: u32,
    /// Index of the instrumentation site.
    pub(crate) site: u32,
}

/// Packs an invocation into a nonzero number: the workgroup above bit 16, the local index below.
pub(crate) fn pack_invocation(group: u64, local: u32) -> u64 {
    // 16 bits suffice for the local index: a workgroup of the CPU device has at most 1024 invocations.
    (group + 1) << 16 | u64::from(local)
}

/// Unpacks workgroup and local index.
pub(crate) fn unpack_invocation(invocation: u64) -> (u64, u32) {
    ((invocation >> 16).saturating_sub(1), (invocation & 0xffff) as u32)
}

/// Shadow of one cell. Two readers suffice: at least one of them differs from any later writer.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    writer: Access,
    readers: [Access; 2],
}

/// Shadow of a memory.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    granularity: u64,
    /// Whether it is workgroup memory, so that workgroups do not share it.
    is_workgroup: bool,
    cells: Vec<Cell>,
}

impl Shadow {
    /// Creates the shadow of a memory whose smallest scalar has `granularity` bytes. It grows on demand.
    pub(crate) fn new(granularity: u32, is_workgroup: bool) -> Self {
        Self { granularity: u64::from(granularity.max(1)), is_workgroup, cells: Vec::new() }
    }

    /// Records a read, and returns a write that it races with.
    pub(crate) fn read(&mut self, offset: u64, bytes: u32, reader: Access) -> Option<(u64, Access)> {
        let is_workgroup = self.is_workgroup;
        self.touch(offset, bytes, |cell| {
            let race = conflicts(cell.writer, reader, is_workgroup).then_some(cell.writer);
            // If both slots hold readers that are concurrent with this one, they already conflict with any
            // writer.
            if let Some(slot) = cell.readers.iter_mut().find(|slot| is_superseded(**slot, reader, is_workgroup)) {
                *slot = reader;
            }
            race
        })
    }

    /// Records a write, and returns an access that it races with.
    pub(crate) fn write(&mut self, offset: u64, bytes: u32, writer: Access) -> Option<(u64, Access)> {
        let is_workgroup = self.is_workgroup;
        self.touch(offset, bytes, |cell| {
            let earlier = [cell.writer, cell.readers[0], cell.readers[1]];
            cell.writer = writer;
            earlier.into_iter().find(|access| conflicts(*access, writer, is_workgroup))
        })
    }

    /// Records an atomic access, which is not checked itself.
    pub(crate) fn set(&mut self, offset: u64, bytes: u32, writer: Access) {
        self.touch(offset, bytes, |cell| {
            cell.writer = writer;
            None
        });
    }

    /// Whether the workgroup wrote none of these bytes.
    pub(crate) fn is_unwritten(&mut self, offset: u64, bytes: u32, group: u64) -> bool {
        let mut is_unwritten = true;
        self.touch(offset, bytes, |cell| {
            is_unwritten &= cell.writer.invocation == 0 || unpack_invocation(cell.writer.invocation).0 != group;
            None
        });
        is_unwritten
    }

    /// Visits the cells of some bytes. Returns the first access that `visit` returns, with its byte offset.
    fn touch(
        &mut self,
        offset: u64,
        bytes: u32,
        mut visit: impl FnMut(&mut Cell) -> Option<Access>,
    ) -> Option<(u64, Access)> {
        let (first, end) = (offset / self.granularity, (offset + u64::from(bytes)).div_ceil(self.granularity));
        if self.cells.len() < end as usize {
            self.cells.resize(end as usize, Cell::default());
        }
        // All cells are visited even after a race is found, because the access must be recorded in each.
        let mut found = None;
        for (cell, number) in self.cells[first as usize..end as usize].iter_mut().zip(first..) {
            if let (Some(access), None) = (visit(cell), found) {
                found = Some((number * self.granularity, access));
            }
        }
        found
    }
}

/// Whether two accesses, one of which writes, are unordered: they are of different workgroups, or no barrier
/// separates them.
fn conflicts(earlier: Access, later: Access, is_workgroup: bool) -> bool {
    let is_other = earlier.invocation != 0 && earlier.invocation != later.invocation;
    let is_same_group = earlier.invocation >> 16 == later.invocation >> 16;
    // Local indices are the low bits, and a subgroup is `LANES` consecutive ones.
    let is_same_subgroup = earlier.invocation / LANES as u64 == later.invocation / LANES as u64;
    let is_ordered = earlier.epoch != later.epoch || is_same_subgroup && earlier.subgroup_epoch != later.subgroup_epoch;
    is_other && if is_same_group { !is_ordered } else { !is_workgroup }
}

/// Whether an earlier reader can be replaced: the later one is the same invocation, or is ordered after it.
fn is_superseded(earlier: Access, later: Access, is_workgroup: bool) -> bool {
    earlier.invocation == later.invocation || !conflicts(earlier, later, is_workgroup)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(group: u64, local: u32, epoch: u32) -> Access {
        Access { invocation: pack_invocation(group, local), epoch, subgroup_epoch: 0, site: local }
    }

    /// Read or write, workgroup, local index, barriers passed.
    type AccessRow = (char, u64, u32, u32);

    /// Whether the last access of each row races with an earlier one.
    #[test]
    fn races_need_two_invocations_and_no_barrier_in_between() {
        let table: [(&str, bool, &[AccessRow], bool); 11] = [
            ("own data", false, &[('w', 0, 1, 0), ('r', 0, 1, 0), ('w', 0, 1, 0)], false),
            ("write, read", false, &[('w', 0, 1, 0), ('r', 0, 2, 0)], true),
            ("write, write", false, &[('w', 0, 1, 0), ('w', 0, 2, 0)], true),
            ("read, write", false, &[('r', 0, 1, 0), ('w', 0, 2, 0)], true),
            ("reads", false, &[('r', 0, 1, 0), ('r', 0, 2, 0), ('r', 1, 0, 0)], false),
            ("the second of many readers writes", false, &[('r', 0, 1, 0), ('r', 0, 2, 0), ('w', 0, 2, 0)], true),
            ("the first of many readers writes", false, &[('r', 0, 1, 0), ('r', 0, 2, 0), ('w', 0, 1, 0)], true),
            ("a barrier", true, &[('w', 0, 1, 0), ('r', 0, 2, 1), ('r', 0, 3, 1), ('w', 0, 1, 2)], false),
            ("a barrier too late", true, &[('w', 0, 1, 0), ('r', 0, 2, 1), ('w', 0, 1, 1)], true),
            ("other workgroups share buffers", false, &[('w', 0, 1, 0), ('r', 1, 1, 5)], true),
            ("and no memory of their own", true, &[('w', 0, 1, 0), ('r', 1, 1, 5), ('w', 1, 1, 5)], false),
        ];
        for (name, is_workgroup, accesses, expected) in table {
            let mut shadow = Shadow::new(4, is_workgroup);
            let mut race = None;
            for (what, group, local, epoch) in accesses {
                let access = access(*group, *local, *epoch);
                race = if *what == 'w' { shadow.write(8, 4, access) } else { shadow.read(8, 4, access) };
            }
            assert_eq!(race.is_some(), expected, "{name}");
        }
    }

    #[test]
    fn neighbouring_bytes_do_not_race_and_the_racing_byte_is_reported() {
        let mut shadow = Shadow::new(2, false);
        assert_eq!(shadow.write(0, 2, access(0, 0, 0)), None);
        assert_eq!(shadow.write(2, 2, access(0, 1, 0)), None);
        assert_eq!(shadow.read(0, 4, access(0, 0, 0)), Some((2, access(0, 1, 0))));
    }

    #[test]
    fn workgroup_memory_is_unwritten_when_the_next_workgroup_begins() {
        let mut shadow = Shadow::new(1, true);
        assert!(shadow.is_unwritten(0, 4, 0));
        shadow.set(3, 1, access(0, 0, 0));
        assert!(!shadow.is_unwritten(0, 4, 0) && shadow.is_unwritten(0, 3, 0) && shadow.is_unwritten(0, 4, 1));
        assert_eq!(unpack_invocation(pack_invocation(7, 1023)), (7, 1023));
    }
}
