//! WGSL text for kernels that multiply tiles in workgroup memory: matrix products and attention.
//!
//! A tile has a row of `vec4` for each step along the reduction axis: elements of the lines (rows or columns of an operand) that are multiplied in
//! that step. A workgroup is 8 by 8 invocations. Each has one or two groups of four lines of each operand: group `local.x` or `local.y`, and the
//! group 8 further on, so that neighbouring invocations read neighbouring groups.

use kiln_ir::Layout;
use std::fmt::Write as _;

/// Steps along the reduction axis per tile.
pub(crate) const STEPS: usize = 16;

/// Invocations of a workgroup along each of its two axes.
pub(crate) const SIDE: usize = 8;

/// A tile of an operand in workgroup memory.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// The name of the WGSL variable.
    pub(crate) name: &'static str,
    /// Groups of four lines per invocation: 1 or 2.
    pub(crate) fours: usize,
    /// The component of the local invocation ID that selects the lines: `x` or `y`.
    pub(crate) axis: char,
}

impl Tile {
    /// Returns the number of groups of four lines in the tile.
    const fn groups(self) -> usize {
        SIDE * self.fours
    }

    /// Returns how many `vec4` each invocation loads to fill the tile.
    pub(crate) const fn loads(self) -> usize {
        self.groups() * STEPS / (SIDE * SIDE)
    }

    /// Returns the number of lines in the tile.
    pub(crate) const fn lines(self) -> usize {
        4 * self.groups()
    }

    /// Returns the distance between steps, in groups of four. One group is padding: it avoids bank conflicts where consecutive invocations write
    /// consecutive steps.
    const fn pitch(self) -> usize {
        self.groups() + 1
    }

    /// Renders the declaration of the variable, for `steps` steps.
    pub(crate) fn declaration(self, steps: usize) -> String {
        format!("var<workgroup> {}: array<vec4<f32>, {}>;\n", self.name, steps * self.pitch())
    }

    /// Renders the expression for a group of lines in a step.
    pub(crate) fn element(self, step: &str, group: &str) -> String {
        format!("{}[({step}) * {}u + {group}]", self.name, self.pitch())
    }

    /// Renders the expression for group `four` of this invocation.
    pub(crate) fn own(self, step: &str, four: usize) -> String {
        self.element(step, &self.own_group(four))
    }

    /// Renders the index of the invocation's group `four` in the tile.
    pub(crate) fn own_group(self, four: usize) -> String {
        format!("(local.{} + {}u)", self.axis, four * SIDE)
    }
}

/// How a tile is loaded from an operand. Strings are WGSL expressions.
pub(crate) struct Load<'a> {
    pub(crate) tile: Tile,
    /// The operand's index and name. It begins at `start_NAME`, and its last element is `p_NAME_last()`: reads beyond its lines and steps stay at
    /// or before it.
    pub(crate) operand: usize,
    pub(crate) name: &'a str,
    /// The first line, and the stride between lines. Lines loaded beyond the last one contribute only to results that are not stored.
    pub(crate) lines: [&'a str; 2],
    /// The first step, the stride between steps, and the end: steps beyond it load 0.
    pub(crate) steps: [&'a str; 3],
    /// Whether neighbouring invocations read neighbouring steps instead of lines. Choose the axis that is most often contiguous.
    pub(crate) along_steps: bool,
}

impl Load<'_> {
    /// Renders statements that fill the tile with a loop, which keeps the text short.
    pub(crate) fn in_loop(&self) -> String {
        let (end, invocations) = (self.tile.loads() * SIDE * SIDE, SIDE * SIDE);
        let four = self.four("index");
        format!("        for (var index = lane; index < {end}u; index += {invocations}u) {{\n{four}        }}\n")
    }

    /// Renders the same without a loop, for kernels that have no loop iterations to spare (`wgsl::LOOP_STEPS`).
    pub(crate) fn unrolled(&self) -> String {
        let index = |load: usize| format!("(lane + {}u)", load * SIDE * SIDE);
        let four = |load: usize| format!("        {{\n{}        }}\n", self.four(&index(load)));
        (0..self.tile.loads()).map(four).collect()
    }

    fn four(&self, index: &str) -> String {
        let ([first_line, next_line], [first_step, next_step, steps]) = (self.lines, self.steps);
        let (groups, name) = (self.tile.groups(), self.name);
        let (group, step) = if self.along_steps {
            (format!("{index} / {STEPS}u"), format!("{index} % {STEPS}u"))
        } else {
            (format!("{index} % {groups}u"), format!("{index} / {groups}u"))
        };
        // `select` evaluates both values, so the address is clamped even where the loaded number is dropped.
        let numbers = (0..4).map(|lane| {
            let loaded = format!("load_{}(min(at + {lane}u * {next_line}, p_{name}_last()))", self.operand);
            format!("select(0.0, {loaded}, inside)")
        });
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        format!(
            "            let line = {first_line} + 4u * ({group});
            let step = {first_step} + {step};
            let at = start_{name} + line * {next_line} + step * {next_step};
            let inside = step < {steps};
            {} = vec4<f32>({numbers});
",
            self.tile.element(&step, &group),
        )
    }
}

/// Returns the last element that a layout reaches, for [`Load`].
pub(crate) fn last_element(layout: &Layout) -> u32 {
    layout.range().end.saturating_sub(1) as u32
}

/// Renders one step of the sums `{sum}{row}_{four}`: the invocation's line `row` in `rows` times its group `four` in `columns`.
pub(crate) fn products(sum: &str, step: [&str; 2], rows: Tile, columns: Tile) -> String {
    let mut text = "        {\n".to_string();
    for (name, tile, step) in [("a", rows, step[0]), ("b", columns, step[1])] {
        for four in 0..tile.fours {
            let _ = writeln!(text, "            let {name}{four} = {};", tile.own(step, four));
        }
    }
    // An outer product: with two groups of each operand, four loads from workgroup memory serve 16 vector multiply-adds.
    for (row, four) in sums(rows, columns) {
        let _ = writeln!(text, "            {sum}{row}_{four} += a{}[{}] * b{four};", row / 4, row % 4);
    }
    text + "        }\n"
}

/// Iterates over the sums of an invocation: each row with each group of four columns.
pub(crate) fn sums(rows: Tile, columns: Tile) -> impl Iterator<Item = (usize, usize)> {
    (0..4 * rows.fours).flat_map(move |row| (0..columns.fours).map(move |four| (row, four)))
}

/// Renders the stores of four results, the first of which is element `number`: `column` of a row of `end` columns. They are one vector store if
/// rows are whole groups of four.
pub(crate) fn store(results: &str, column: &str, end: &str, are_whole: bool) -> String {
    if are_whole {
        // Every row begins at a multiple of four elements, so the division is exact, and either all four columns exist or none.
        return format!("            if {column} < {end} {{ finish4(number / 4u, {results}); }}\n");
    }
    let one = |lane: usize| {
        format!("            if {column} + {lane}u < {end} {{ finish(number + {lane}u, {results}[{lane}]); }}\n")
    };
    (0..4).map(one).collect()
}
