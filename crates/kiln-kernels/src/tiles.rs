//! Text of WGSL kernels that multiply what they brought to workgroup memory: matrix products and attention.
//!
//! A tile has a row of `vec4` for each step of a sum: numbers of the lines (rows or columns of an operand) that are multiplied in that step. A
//! workgroup is 8 by 8 invocations, each of which has one or two groups of four lines of each operand: group `local.x` or `local.y`, and the
//! one 8 further on, so that neighbours read neighbours.

use kiln_ir::Layout;
use std::fmt::Write as _;

/// Steps that are in a tile at once.
pub(crate) const STEPS: usize = 16;

/// Invocations of a workgroup along each of its two axes.
pub(crate) const SIDE: usize = 8;

/// A part of an operand in workgroup memory.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// The variable of the text.
    pub(crate) name: &'static str,
    /// Lines of four for each invocation along its axis: 1 or 2.
    pub(crate) fours: usize,
    /// The invocation's place that says which lines it has: `x` or `y`.
    pub(crate) axis: char,
}

impl Tile {
    /// Groups of four lines in the tile.
    const fn groups(self) -> usize {
        SIDE * self.fours
    }

    /// How often each invocation loads four numbers to fill the tile.
    pub(crate) const fn loads(self) -> usize {
        self.groups() * STEPS / (SIDE * SIDE)
    }

    /// How many lines there are.
    pub(crate) const fn lines(self) -> usize {
        4 * self.groups()
    }

    /// Groups of four from one step to the next. One is left empty: where steps are side by side in memory, invocations write to different
    /// banks.
    const fn pitch(self) -> usize {
        self.groups() + 1
    }

    /// The variable, for so many steps.
    pub(crate) fn declaration(self, steps: usize) -> String {
        format!("var<workgroup> {}: array<vec4<f32>, {}>;\n", self.name, steps * self.pitch())
    }

    /// The place of a group of lines in a step.
    pub(crate) fn place(self, step: &str, group: &str) -> String {
        format!("{}[({step}) * {}u + {group}]", self.name, self.pitch())
    }

    /// Group `four` of this invocation.
    pub(crate) fn own(self, step: &str, four: usize) -> String {
        self.place(step, &self.own_group(four))
    }

    /// The number of the invocation's group `four` among the groups of the tile.
    pub(crate) fn own_group(self, four: usize) -> String {
        format!("(local.{} + {}u)", self.axis, four * SIDE)
    }
}

/// How an operand is brought to a tile: which of its elements are there, as expressions of the text.
pub(crate) struct Load<'a> {
    pub(crate) tile: Tile,
    /// The operand's number and name. It begins at `start_NAME`, and reaches up to `p_NAME_last()`: what is beyond its lines and steps is read
    /// from there, or before.
    pub(crate) operand: usize,
    pub(crate) name: &'a str,
    /// The first line, and how far apart neighbours are. What is loaded beyond the last one is in no result that is stored.
    pub(crate) lines: [&'a str; 2],
    /// The same of steps, and where they end: what is beyond counts as 0.
    pub(crate) steps: [&'a str; 3],
    /// Whether neighbouring invocations read neighbouring steps, or neighbouring lines: what lies side by side most often.
    pub(crate) along_steps: bool,
}

impl Load<'_> {
    /// Statements that fill the tile, with a loop: short.
    pub(crate) fn in_loop(&self) -> String {
        let (end, invocations) = (self.tile.loads() * SIDE * SIDE, SIDE * SIDE);
        let four = self.four("place");
        format!("        for (var place = lane; place < {end}u; place += {invocations}u) {{\n{four}        }}\n")
    }

    /// The same without a loop, for kernels that have no steps left to spend (`wgsl::LOOP_STEPS`).
    pub(crate) fn written_out(&self) -> String {
        let place = |load: usize| format!("(lane + {}u)", load * SIDE * SIDE);
        let four = |load: usize| format!("        {{\n{}        }}\n", self.four(&place(load)));
        (0..self.tile.loads()).map(four).collect()
    }

    fn four(&self, place: &str) -> String {
        let ([first_line, next_line], [first_step, next_step, steps]) = (self.lines, self.steps);
        let (groups, name) = (self.tile.groups(), self.name);
        let (group, step) = if self.along_steps {
            (format!("{place} / {STEPS}u"), format!("{place} % {STEPS}u"))
        } else {
            (format!("{place} % {groups}u"), format!("{place} / {groups}u"))
        };
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
            self.tile.place(&step, &group),
        )
    }
}

/// The last element that a layout reaches, for [`Load`].
pub(crate) fn last_element(layout: &Layout) -> u32 {
    layout.reach().end.saturating_sub(1) as u32
}

/// Statements for one step of the sums `{sum}{row}_{four}`: line `row` of the invocation in `rows` times its group `four` in `columns`.
pub(crate) fn products(sum: &str, step: [&str; 2], rows: Tile, columns: Tile) -> String {
    let mut text = "        {\n".to_string();
    for (name, tile, step) in [("a", rows, step[0]), ("b", columns, step[1])] {
        for four in 0..tile.fours {
            let _ = writeln!(text, "            let {name}{four} = {};", tile.own(step, four));
        }
    }
    for (row, four) in sums(rows, columns) {
        let _ = writeln!(text, "            {sum}{row}_{four} += a{}[{}] * b{four};", row / 4, row % 4);
    }
    text + "        }\n"
}

/// The sums of an invocation: each row with each group of four columns.
pub(crate) fn sums(rows: Tile, columns: Tile) -> impl Iterator<Item = (usize, usize)> {
    (0..4 * rows.fours).flat_map(move |row| (0..columns.fours).map(move |four| (row, four)))
}

/// Statements that end with four results, the first of which is `number`: `column` of a row of `end` columns. They are stored at once where rows
/// are whole groups of four.
pub(crate) fn store(results: &str, column: &str, end: &str, are_whole: bool) -> String {
    if are_whole {
        return format!("            if {column} < {end} {{ finish4(number / 4u, {results}); }}\n");
    }
    let one = |lane: usize| {
        format!("            if {column} + {lane}u < {end} {{ finish(number + {lane}u, {results}[{lane}]); }}\n")
    };
    (0..4).map(one).collect()
}
