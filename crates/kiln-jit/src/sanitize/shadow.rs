//! Who touched which byte of a memory last, and after which barrier.

use crate::LANES;

/// An access that is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// The invocation, as [`invocation`] numbers it; 0 for nobody.
    pub(crate) who: u64,
    /// Barriers that were passed before it, of the work-group and of subgroups.
    pub(crate) epoch: u32,
    pub(crate) subgroup_epoch: u32,
    /// The place in the program.
    pub(crate) site: u32,
}

/// The number of an invocation: never 0, and work-groups have their own bits.
pub(crate) fn invocation(group: u64, local: u32) -> u64 {
    (group + 1) << 16 | u64::from(local)
}

/// The work-group, and the place in it, of an invocation.
pub(crate) fn place_of(who: u64) -> (u64, u32) {
    ((who >> 16).saturating_sub(1), (who & 0xffff) as u32)
}

/// What is known about a few bytes. Two readers are enough: whoever writes is not one of them.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    writer: Access,
    readers: [Access; 2],
}

/// The accesses to a memory.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    grain: u64,
    /// Whether each work-group has a memory of its own.
    is_shared: bool,
    cells: Vec<Cell>,
}

impl Shadow {
    /// For memory whose smallest scalar has `grain` bytes. It grows with what is touched.
    pub(crate) fn new(grain: u32, is_shared: bool) -> Self {
        Self { grain: u64::from(grain.max(1)), is_shared, cells: Vec::new() }
    }

    /// Notes a read, and returns a write that it races with.
    pub(crate) fn read(&mut self, offset: u64, bytes: u32, reader: Access) -> Option<(u64, Access)> {
        let is_shared = self.is_shared;
        self.touch(offset, bytes, |cell| {
            let race = conflicts(cell.writer, reader, is_shared).then_some(cell.writer);
            if let Some(slot) = cell.readers.iter_mut().find(|slot| is_over(**slot, reader, is_shared)) {
                *slot = reader;
            }
            race
        })
    }

    /// Notes a write, and returns an access that it races with.
    pub(crate) fn write(&mut self, offset: u64, bytes: u32, writer: Access) -> Option<(u64, Access)> {
        let is_shared = self.is_shared;
        self.touch(offset, bytes, |cell| {
            let earlier = [cell.writer, cell.readers[0], cell.readers[1]];
            cell.writer = writer;
            earlier.into_iter().find(|access| conflicts(*access, writer, is_shared))
        })
    }

    /// Notes an access that races with none.
    pub(crate) fn set(&mut self, offset: u64, bytes: u32, writer: Access) {
        self.touch(offset, bytes, |cell| {
            cell.writer = writer;
            None
        });
    }

    /// Whether the work-group wrote nothing of these bytes.
    pub(crate) fn is_untouched(&mut self, offset: u64, bytes: u32, group: u64) -> bool {
        let mut is_untouched = true;
        self.touch(offset, bytes, |cell| {
            is_untouched &= cell.writer.who == 0 || place_of(cell.writer.who).0 != group;
            None
        });
        is_untouched
    }

    /// Visits the cells of some bytes, and returns the first result with the byte that it is about.
    fn touch(
        &mut self,
        offset: u64,
        bytes: u32,
        mut visit: impl FnMut(&mut Cell) -> Option<Access>,
    ) -> Option<(u64, Access)> {
        let (first, end) = (offset / self.grain, (offset + u64::from(bytes)).div_ceil(self.grain));
        if self.cells.len() < end as usize {
            self.cells.resize(end as usize, Cell::default());
        }
        let mut found = None;
        for (cell, number) in self.cells[first as usize..end as usize].iter_mut().zip(first..) {
            if let (Some(access), None) = (visit(cell), found) {
                found = Some((number * self.grain, access));
            }
        }
        found
    }
}

/// Whether two accesses, one of which writes, are in no order: of different work-groups, or not separated by a barrier.
fn conflicts(earlier: Access, later: Access, is_shared: bool) -> bool {
    let is_other = earlier.who != 0 && earlier.who != later.who;
    let is_same_group = earlier.who >> 16 == later.who >> 16;
    let is_same_subgroup = earlier.who / LANES as u64 == later.who / LANES as u64;
    let is_between = earlier.epoch != later.epoch || is_same_subgroup && earlier.subgroup_epoch != later.subgroup_epoch;
    is_other && if is_same_group { !is_between } else { !is_shared }
}

/// Whether a reader need not be remembered any more when there is a later one.
fn is_over(earlier: Access, later: Access, is_shared: bool) -> bool {
    earlier.who == later.who || !conflicts(earlier, later, is_shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(group: u64, local: u32, epoch: u32) -> Access {
        Access { who: invocation(group, local), epoch, subgroup_epoch: 0, site: local }
    }

    /// Read or write, work-group, invocation in it, barriers before.
    type AccessRow = (char, u64, u32, u32);

    /// Whether the last of some accesses races with an earlier one.
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
            ("other work-groups share buffers", false, &[('w', 0, 1, 0), ('r', 1, 1, 5)], true),
            ("and no memory of their own", true, &[('w', 0, 1, 0), ('r', 1, 1, 5), ('w', 1, 1, 5)], false),
        ];
        for (name, is_shared, accesses, expected) in table {
            let mut shadow = Shadow::new(4, is_shared);
            let mut race = None;
            for (what, group, local, epoch) in accesses {
                let access = access(*group, *local, *epoch);
                race = if *what == 'w' { shadow.write(8, 4, access) } else { shadow.read(8, 4, access) };
            }
            assert_eq!(race.is_some(), expected, "{name}");
        }
    }

    #[test]
    fn neighbours_do_not_race_and_the_byte_is_told() {
        let mut shadow = Shadow::new(2, false);
        assert_eq!(shadow.write(0, 2, access(0, 0, 0)), None);
        assert_eq!(shadow.write(2, 2, access(0, 1, 0)), None);
        assert_eq!(shadow.read(0, 4, access(0, 0, 0)), Some((2, access(0, 1, 0))));
    }

    #[test]
    fn memory_of_a_work_group_is_untouched_when_the_next_one_begins() {
        let mut shadow = Shadow::new(1, true);
        assert!(shadow.is_untouched(0, 4, 0));
        shadow.set(3, 1, access(0, 0, 0));
        assert!(!shadow.is_untouched(0, 4, 0) && shadow.is_untouched(0, 3, 0) && shadow.is_untouched(0, 4, 1));
        assert_eq!(place_of(invocation(7, 1023)), (7, 1023));
    }
}
