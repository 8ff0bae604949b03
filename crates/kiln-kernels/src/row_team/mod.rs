//! WGSL for row-wise kernels: the invocations that share a row, and their reductions.

use kiln_ir::wgsl::{self, WgslBuilder, WgslFeatures, WgslKernel, grid};
use kiln_ir::{Error, ErrorKind, Result};

/// Rows of at most this many elements are shared by a subgroup, which reduces without workgroup barriers.
const SUBGROUP_ROW: usize = 4096;

/// The invocations that share a row.
#[derive(Clone, Copy, Debug)]
enum Team {
    /// A subgroup of at most this many invocations.
    Subgroup(u32),
    /// A workgroup of this many invocations.
    Workgroup(u32),
}

impl Team {
    fn new(rows: u32, length: usize, features: WgslFeatures) -> Self {
        // Smaller subgroups than expected mean more teams, in the limit one per invocation. The count must fit in 32 bits.
        let can_count = |most: &u32| rows.checked_mul(*most).is_some_and(|count| count <= u32::MAX / 2);
        match (features.subgroup_size.filter(can_count), length) {
            (Some(most), 0..=SUBGROUP_ROW) => Self::Subgroup(most),
            // A smaller workgroup leaves fewer invocations idle on short rows.
            (_, 0..=256) => Self::Workgroup(64),
            _ => Self::Workgroup(256),
        }
    }
}

/// Creates a kernel for `rows` rows of `length` elements. `text` defines a function `work(row, lane, lanes)`, which all `lanes` invocations of a
/// row's team call together, each with its own `lane`. It may call `team_sum(part, lane)` for the sum of the invocations' `vec2<f32>`, and
/// `team_max(part, lane)` for the maximum of their `f32`, none of which may be NaN.
///
/// # Errors
/// Returns `Unsupported` if a row needs more loop iterations than a kernel may run.
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
        // Softmax and norms loop over a row three times. `LOOP_STEPS` is a quarter of the limit for all loops, which leaves a quarter for reductions.
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
