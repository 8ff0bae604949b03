//! The grid of a launch: its number of workgroups.

use kiln_ir::{Error, ErrorKind, Result};

/// The number of workgroups of a launch, given explicitly or computed from the size of the problem.
///
/// ```
/// use kiln_device::Grid;
///
/// let said = Grid::workgroups([4, 1, 1]);
/// let found = Grid::over(1000); // at least 1000 invocations
/// let plane = Grid::over((1920, 1080)); // x, then y
/// # let _ = (said, found, plane);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid(Size);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Workgroups([u32; 3]),
    Invocations([u64; 3]),
}

impl Grid {
    /// Creates a grid with this many workgroups along each axis.
    pub fn workgroups(count: [u32; 3]) -> Self {
        Self(Size::Workgroups(count))
    }

    /// Creates a grid with at least one invocation for every item of a problem, given by its length, or its lengths
    /// along x, y and z. The last workgroups may have invocations beyond the end, so a kernel must compare its index
    /// with the length.
    pub fn over(extent: impl Into<Extent>) -> Self {
        Self(Size::Invocations(extent.into().0))
    }

    /// Returns the number of workgroups along each axis for a kernel with this workgroup size.
    ///
    /// # Errors
    /// Returns `TooLarge` if an axis has more workgroups or invocations than 32 bits can count.
    pub fn resolve(self, workgroup_size: [u32; 3]) -> Result<[u32; 3]> {
        let mut count = [0; 3];
        for axis in 0..3 {
            let size = u64::from(workgroup_size[axis].max(1));
            let workgroups = match self.0 {
                Size::Workgroups(count) => count[axis].into(),
                Size::Invocations(extent) => extent[axis].div_ceil(size),
            };
            // Kernels count workgroups and invocations in 32 bits.
            let fits = workgroups.checked_mul(size).is_some_and(|invocations| invocations <= 1 << 32);
            count[axis] = u32::try_from(workgroups).ok().filter(|_| fits).ok_or_else(|| {
                let message = format!(
                    "grid expected fewer than 2^32 workgroups and at most 2^32 invocations along axis {axis}, found \
                     {workgroups} workgroups of {size}"
                );
                Error::new(ErrorKind::TooLarge, message)
            })?;
        }
        Ok(count)
    }
}

/// The size of a problem along x, y and z.
///
/// Passed to [`Grid::over`]; see [`Grid`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent([u64; 3]);

macro_rules! extents {
    ($($number:ty),*) => {$(
        impl From<$number> for Extent {
            fn from(x: $number) -> Self {
                Self([length(x), 1, 1])
            }
        }

        impl From<($number, $number)> for Extent {
            fn from((x, y): ($number, $number)) -> Self {
                Self([length(x), length(y), 1])
            }
        }

        impl From<($number, $number, $number)> for Extent {
            fn from((x, y, z): ($number, $number, $number)) -> Self {
                Self([length(x), length(y), length(z)])
            }
        }
    )*};
}

// `i32` is for literals, whose type defaults to it.
extents! { usize, u32, u64, i32 }

/// Converts a length; a negative one counts as empty.
fn length(length: impl TryInto<u64>) -> u64 {
    length.try_into().unwrap_or(0)
}

/// The part of a launch's grid that a dispatch runs: all of it, unless the grid exceeds the device's limit.
///
/// Returned by [`Dispatch::part`](crate::Dispatch::part); see [`Dispatch`](crate::Dispatch) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridPart {
    /// The index of the first workgroup along each axis.
    pub first: [u32; 3],
    /// The number of workgroups along each axis: not zero, and within the limit of the device.
    pub workgroups: [u32; 3],
    /// The number of workgroups of the whole grid.
    pub total: [u32; 3],
}

impl GridPart {
    pub(super) fn whole(total: [u32; 3]) -> Self {
        Self { first: [0; 3], workgroups: total, total }
    }
}

/// The maximum number of dispatches of one launch, because each is recorded and has a start-up cost.
const MAX_PARTS: u64 = 1 << 16;

/// Splits a grid into parts that fit the device.
///
/// # Errors
/// Returns `TooLarge` if there are too many parts.
pub(super) fn split(total: [u32; 3], limit: u32) -> Result<impl Iterator<Item = GridPart>> {
    // Checked before the parts are created, because there could be 2^48 of them.
    let parts = total.iter().map(|count| u64::from(count.div_ceil(limit.max(1)))).try_fold(1, u64::checked_mul);
    if parts.is_none_or(|parts| parts > MAX_PARTS) {
        let message = format!(
            "grid expected at most {MAX_PARTS} parts of {limit} workgroups along each axis, found {total:?} workgroups"
        );
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let along = move |axis: usize| {
        (0..total[axis]).step_by(limit.max(1) as usize).map(move |first| (first, limit.min(total[axis] - first)))
    };
    Ok(along(2).flat_map(move |z| along(1).flat_map(move |y| along(0).map(move |x| [x, y, z]))).map(move |axes| {
        GridPart { first: axes.map(|(first, _)| first), workgroups: axes.map(|(_, count)| count), total }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_covers_the_problem() {
        let table = [
            (Grid::over(0), [64, 1, 1], [0, 1, 1]),
            (Grid::over(1), [64, 1, 1], [1, 1, 1]),
            (Grid::over(64), [64, 1, 1], [1, 1, 1]),
            (Grid::over(65), [64, 1, 1], [2, 1, 1]),
            (Grid::over((17, 33)), [16, 16, 1], [2, 3, 1]),
            (Grid::over((5u64, 6, 7)), [1, 2, 3], [5, 3, 3]),
            (Grid::over(-3), [1, 1, 1], [0, 1, 1]),
            (Grid::over(1u64 << 32), [64, 1, 1], [1 << 26, 1, 1]),
            (Grid::workgroups([3, 4, 5]), [64, 2, 2], [3, 4, 5]),
        ];
        for (grid, size, expected) in table {
            assert_eq!(grid.resolve(size).unwrap(), expected, "{grid:?}");
        }
        for grid in [Grid::over((1u64 << 32) + 1), Grid::workgroups([u32::MAX, 1, 1]), Grid::over((1, u64::MAX))] {
            assert_eq!(grid.resolve([64, 64, 1]).unwrap_err().kind(), ErrorKind::TooLarge, "{grid:?}");
        }
    }

    /// Every workgroup is in exactly one part, and no part exceeds the limit.
    #[test]
    fn parts_cover_the_grid_once() {
        for (total, limit) in [([7, 1, 1], 3), ([7, 5, 4], 3), ([3, 3, 3], 3), ([1, 10, 1], 4), ([0, 1, 1], 3)] {
            let mut seen = vec![0; (total[0] * total[1] * total[2]) as usize];
            for GridPart { first, workgroups: count, .. } in split(total, limit).unwrap() {
                assert!(count.iter().all(|count| (1..=limit).contains(count)), "{count:?}");
                for z in 0..count[2] {
                    for y in 0..count[1] {
                        for x in 0..count[0] {
                            let (x, y, z) = (first[0] + x, first[1] + y, first[2] + z);
                            seen[((z * total[1] + y) * total[0] + x) as usize] += 1;
                        }
                    }
                }
            }
            assert!(seen.iter().all(|count| *count == 1), "{total:?} by {limit}");
        }
        let error = split([u32::MAX, u32::MAX, 1], 65535).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
    }
}
