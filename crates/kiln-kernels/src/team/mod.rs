//! WGSL of kernels that work on whole rows: the invocations that share a row, and how they add up together.

use kiln_ir::wgsl::{self, WgslBuilder, WgslFeatures, WgslKernel, grid};
use kiln_ir::{Error, ErrorKind, Result};

/// Rows of at most so many elements are shared by a subgroup, whose invocations meet without waiting for others.
const SUBGROUP_ROW: usize = 4096;

/// The invocations that share a row.
#[derive(Clone, Copy, Debug)]
enum Team {
    /// A subgroup of at most this many.
    Subgroup(u32),
    /// A workgroup of this many.
    Workgroup(u32),
}

impl Team {
    fn new(rows: u32, length: usize, features: WgslFeatures) -> Self {
        // Where subgroups are smaller than expected there are more of them, up to one invocation each: they are counted in 32 bits.
        let can_count = |most: &u32| rows.checked_mul(*most).is_some_and(|count| count <= u32::MAX / 2);
        match (features.subgroup_size.filter(can_count), length) {
            (Some(most), 0..=SUBGROUP_ROW) => Self::Subgroup(most),
            // A short row does not wait for idle invocations.
            (_, 0..=256) => Self::Workgroup(64),
            _ => Self::Workgroup(256),
        }
    }
}

/// A kernel for `rows` rows of `length` elements. The text has a function `work(row, lane, lanes)`, which all invocations of a row's team call
/// together: those of numbers `lane` below `lanes`. There it may call `team_sum(part, lane)` for the sum of the invocations' `vec2<f32>`, and
/// `team_max(part, lane)` for the largest of their `f32`, none of which is NaN.
///
/// # Errors
/// `Unsupported` where a row is longer than the loops of a kernel may be.
pub(crate) fn row_kernel(
    op: &str,
    mut builder: WgslBuilder<'_>,
    (rows, length): (u32, usize),
    text: &str,
) -> Result<WgslKernel> {
    builder.param("rows", rows);
    builder.param("length", length as u32);
    let team = Team::new(rows, length, builder.features());
    if let Team::Workgroup(invocations) = team {
        let most = wgsl::LOOP_STEPS * invocations as usize;
        if length > most {
            let message = format!("{op} on a GPU expected rows of at most {most} elements, found {length}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    let (invocations, main, teams) = match team {
        Team::Subgroup(most) => {
            let (invocations, teams) = wgsl::subgroup_teams(most);
            (invocations, include_str!("subgroup.wgsl"), teams)
        }
        Team::Workgroup(invocations) => (invocations, include_str!("workgroup.wgsl"), 1),
    };
    let text = format!("const INVOCATIONS = {invocations}u;\n{main}{text}");
    Ok(builder.finish(&text, grid(if length == 0 { 0 } else { rows.div_ceil(teams) })))
}
