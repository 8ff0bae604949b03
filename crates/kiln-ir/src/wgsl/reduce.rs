//! Reductions: the lanes of a workgroup compute partial results, which are combined with subgroup operations or in
//! workgroup memory.
//!
//! Maxima and minima are computed as the maximum of unsigned keys that order like the elements, with NaN on top:
//! integer comparisons do not depend on a driver's NaN handling, and one implementation serves all classes and both
//! directions.

use super::body::Writer;
use super::builder::WgslBuilder;
use super::convert::type_name;
use super::frame::{Frame, VectorLoad};
use super::{WgslFeatures, WgslKernel, grid};
use crate::graph::Reduce;
use crate::kernel::{Body, Kernel};
use crate::{Class, Error, ErrorKind, Result};

/// How a workgroup is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Division {
    /// Invocations that reduce one result together.
    lanes: u32,
    /// Results per workgroup.
    results: u32,
    /// Whether adjacent invocations work on adjacent results; otherwise on the same result.
    across: bool,
    /// Whether the invocations of one result are a subgroup, of at most `lanes` invocations.
    in_subgroup: bool,
    /// Whether an invocation loads four elements at once.
    four: bool,
    /// Whether the number of reduced elements is a multiple of four.
    whole: bool,
    /// Unroll factor of the loop, which keeps it within [`LOOP_STEPS`](super::LOOP_STEPS).
    copies: u32,
}

impl Division {
    /// Chooses many lanes per result if many elements are reduced, and few if there are enough results to keep the
    /// device busy.
    fn new(frame: &Frame, operands: usize, kept: usize, reduced: usize, features: WgslFeatures) -> Self {
        let four = operands > 0 && (0..operands).all(|operand| frame.four(operand) != VectorLoad::Separate);
        let across = !four && frame.prefers_first(operands) && kept > 1;
        let steps = reduced.div_ceil(if four { 4 } else { 1 });
        // Few steps: one invocation per result, nothing to combine. Across: adjacent invocations read adjacent results,
        // and more lanes share a result if there are fewer results. Otherwise a subgroup or 32 lanes per result, or a
        // whole workgroup if many elements are reduced.
        let (lanes, results, in_subgroup) = match (across, steps, kept, features.subgroup_size) {
            (_, 0..=8, ..) => (1, 64, false),
            (true, _, 16384.., _) => (1, 64, false),
            (true, _, 32.., _) => (8, 32, false),
            (true, ..) => (64, 4, false),
            (false, 0..=256, _, Some(most)) => (most, super::subgroup_teams(most).1, true),
            (false, 0..=256, _, None) => (32, 8, false),
            (false, ..) => (256, 1, false),
        };
        // A subgroup may be smaller than the maximum, but the loop is short in that case too.
        let copies = if in_subgroup { 1 } else { super::unroll_factor(steps.div_ceil(lanes as usize)) };
        Self { lanes, results, across, in_subgroup, four, whole: reduced.is_multiple_of(4), copies }
    }

    fn size(self) -> u32 {
        self.lanes * self.results
    }
}

/// Maximum elements per result. The loop counter goes one stride past the end, which must not wrap around: at this length a stride is
/// `2^32 / LOOP_STEPS` elements.
const MAX_REDUCED: usize = (1 << 32) - (1 << 32) / super::LOOP_STEPS;

pub(super) fn render(
    kernel: &Kernel,
    (op, input, kept): (Reduce, &Body, usize),
    features: WgslFeatures,
) -> Result<WgslKernel> {
    let kept_elements: usize = input.space[..kept].iter().product();
    let reduced: usize = input.space[kept..].iter().product();
    if reduced > MAX_REDUCED {
        let message = format!("a reduction expected at most {MAX_REDUCED} elements per result, found {reduced}");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let frame = Frame::split(input, "core", kept);
    let division = Division::new(&frame, input.operands.len(), kept_elements, reduced, features);
    let mut builder = WgslBuilder::new(features, &input.operands, &kernel.body, &kernel.output);
    builder.param("kept", kept_elements as u32);
    builder.param("reduced", reduced as u32);
    for (name, value) in frame.params() {
        builder.param(&name, value);
    }
    let writer = Writer { body: input, frame: &frame, operands: "", four: division.four, number: "i", stored: None };
    let (statements, result, class) = writer.write(&mut builder.calls);
    let subgroups = division.in_subgroup || (features.subgroup_size.is_some() && division.lanes == 256);
    let text = Text { op, class, division, subgroups };
    let main = format!("{}{}{}", text.element(&statements, &result), text.functions(), text.main());
    Ok(builder.finish(&main, grid((kept_elements as u32).div_ceil(division.results))))
}

/// The source of a reduction.
struct Text {
    op: Reduce,
    /// The class of the reduced elements.
    class: Class,
    division: Division,
    subgroups: bool,
}

impl Text {
    /// Returns the type of partial results: a sum, a key, or a key (`x`) with the index of its element (`y`).
    fn part(&self) -> &'static str {
        match self.op {
            Reduce::Sum | Reduce::Mean => type_name(self.class, false),
            Reduce::Max | Reduce::Min => "u32",
            Reduce::ArgMax | Reduce::ArgMin => "vec2<u32>",
        }
    }

    fn is_sum(&self) -> bool {
        matches!(self.op, Reduce::Sum | Reduce::Mean)
    }

    fn is_arg(&self) -> bool {
        matches!(self.op, Reduce::ArgMax | Reduce::ArgMin)
    }

    /// Returns the identity of the reduction. For keys it is 0, because no key is below.
    fn identity(&self) -> String {
        if self.is_arg() { "vec2<u32>(0u, 0xffffffffu)".to_string() } else { format!("{}()", self.part()) }
    }

    /// Generates the function that computes the reduced element, or four.
    fn element(&self, statements: &str, result: &str) -> String {
        let class = type_name(self.class, self.division.four);
        // The index in the whole space, for programs that use it.
        let number = "    let i = k * p_reduced() + r;\n";
        format!("fn element(k: u32, r: u32) -> {class} {{\n{number}{statements}    return {result};\n}}\n")
    }

    /// Generates `join`, which combines two partial results, and the conversions to and from keys.
    fn functions(&self) -> String {
        let part = self.part();
        if self.is_sum() {
            return format!("fn join(a: {part}, b: {part}) -> {part} {{\n    return a + b;\n}}\n");
        }
        let join = if self.is_arg() {
            "    let wins = b.x > a.x || (b.x == a.x && b.y < a.y);\n    return select(a, b, wins);"
        } else {
            "    return max(a, b);"
        };
        format!("fn join(a: {part}, b: {part}) -> {part} {{\n{join}\n}}\n{}{}", self.key(), self.value())
    }

    /// Generates the function that maps an element, or four, to its key; the largest key wins.
    fn key(&self) -> String {
        let four = self.division.four;
        let (class, uint) = (type_name(self.class, four), type_name(Class::Uint, four));
        let smallest = matches!(self.op, Reduce::Min | Reduce::ArgMin);
        let flipped = |key: &str| if smallest { format!("~({key})") } else { key.to_string() };
        let key = match self.class {
            Class::Uint | Class::Wide => format!("    return {};", flipped("x")),
            Class::Int => format!("    return {};", flipped(&format!("bitcast<{uint}>(x) ^ {uint}(0x80000000u)"))),
            Class::Float => {
                // Gives both zeros one key, so that an arg-reduction returns the first of them.
                let zero = format!("select(bits, {uint}(0u), bits == {uint}(0x80000000u))");
                let bits = if self.is_arg() { zero } else { "bits".to_string() };
                // Maps floats to unsigned integers of the same order: negative numbers are inverted, others get the top bit.
                let order = format!("select(b | {uint}(0x80000000u), ~b, b >= {uint}(0x80000000u))");
                format!(
                    "    let bits = bitcast<{uint}>(x);
    let b = {bits};
    let key = {};
    return select(key, {uint}(0xffffffffu), (bits & {uint}(0x7fffffffu)) > {uint}(0x7f800000u));",
                    flipped(&order)
                )
            }
        };
        format!("fn key(x: {class}) -> {uint} {{\n{key}\n}}\n")
    }

    /// Generates the function that maps a key back to its element.
    fn value(&self) -> String {
        if self.is_arg() {
            return String::new();
        }
        let class = type_name(self.class, false);
        let key = if self.op == Reduce::Min { "~key" } else { "key" };
        let value = match self.class {
            Class::Uint | Class::Wide => format!("    return {key};"),
            Class::Int => format!("    return bitcast<i32>({key} ^ 0x80000000u);"),
            // The largest key is NaN in both directions.
            Class::Float => format!(
                "    let b = {key};
    let bits = select(~b, b ^ 0x80000000u, b >= 0x80000000u);
    return bitcast<f32>(select(bits, 0x7fc00000u, key == 0xffffffffu));"
            ),
        };
        format!("fn value_of(key: u32) -> {class} {{\n{value}\n}}\n")
    }

    /// Generates the statements that accumulate the elements at `r` into the partial result.
    fn take(&self) -> String {
        let part = self.part();
        let item = if self.is_sum() { "element(k, r)" } else { "key(element(k, r))" };
        if !self.division.four {
            let item = if self.is_arg() { format!("vec2<u32>({item}, r)") } else { item.to_string() };
            return format!("part = join(part, {item});");
        }
        let mut text = String::new();
        if self.is_arg() || !self.division.whole {
            text += "let indices = vec4<u32>(r) + vec4<u32>(0u, 1u, 2u, 3u);\n            ";
        }
        text += &if self.division.whole {
            format!("let four = {item};\n            ")
        } else {
            // Lanes past the end contribute the identity: 0 is neutral in a sum, and the smallest key.
            let zero = type_name(if self.is_sum() { self.class } else { Class::Uint }, true);
            format!("let four = select({zero}(), {item}, indices < vec4<u32>(p_reduced()));\n            ")
        };
        text += &if self.is_arg() {
            let lane = |lane: usize| format!("part = join(part, {part}(four[{lane}], indices[{lane}]));");
            (0..4).map(lane).collect::<Vec<_>>().join("\n            ")
        } else {
            let join = if self.is_sum() { "parts + four" } else { "max(parts, four)" };
            format!("parts = {join};")
        };
        text
    }

    /// Generates the entry point: each lane accumulates every n-th element, then the lanes are combined and the first
    /// one stores.
    fn main(&self) -> String {
        let Division { lanes, results, across, in_subgroup, four, copies, .. } = self.division;
        let (size, part, identity) = (self.division.size(), self.part(), self.identity());
        let step = if four { 4 } else { 1 };
        let memory = if lanes == 1 || in_subgroup {
            String::new()
        } else {
            format!("var<workgroup> shared_parts: array<{part}, {size}>;\n")
        };
        let builtins = self.builtins();
        let group = "(group.y * groups.x + group.x)";
        let (open, close) = if in_subgroup {
            // Independent of the actual subgroup size.
            let next = "k += groups.y * groups.x * subgroups";
            let first = format!("{group} * subgroups + subgroup");
            (
                format!(
                    "    let lane = subgroup_lane;\n    for (var k = {first}; k < p_kept(); {next}) {{\n    let end = p_reduced();\n"
                ),
                "    }\n",
            )
        } else {
            // Excess results get an empty range instead of a return: all invocations must reach the barriers below.
            let (lane, result) = if across {
                (format!("local / {results}u"), format!("local % {results}u"))
            } else {
                (format!("local % {lanes}u"), format!("local / {lanes}u"))
            };
            (
                format!(
                    "    let lane = {lane};
    let k = {group} * {results}u + {result};
    let end = select(0u, p_reduced(), k < p_kept());\n"
                ),
                "",
            )
        };
        let (fours, join_fours) = match (four && !self.is_arg(), self.is_sum()) {
            (false, _) => (String::new(), ""),
            (true, true) => {
                let name = type_name(self.class, true);
                (format!("    var parts = {name}();\n"), "    part = (parts.x + parts.y) + (parts.z + parts.w);\n")
            }
            (true, false) => (
                "    var parts = vec4<u32>();\n".to_string(),
                "    part = max(max(parts.x, parts.y), max(parts.z, parts.w));\n",
            ),
        };
        let (take, combine) = (self.take(), self.combine());
        let stride = if in_subgroup { format!("lanes * {step}u") } else { format!("{}u", lanes * step * copies) };
        let takes = if copies == 1 {
            format!("    for (var r = lane * {step}u; r < end; r += {stride}) {{\n            {take}\n    }}\n")
        } else {
            let take = |copy: u32| {
                let r = format!("let r = first + lane * {step}u + {}u;", copy * lanes * step);
                format!(
                    "        {{\n            {r}\n            if (r < end) {{\n            {take}\n            }}\n        }}\n"
                )
            };
            let takes: String = (0..copies).map(take).collect();
            format!("    for (var first = 0u; first < end; first += {stride}) {{\n{takes}    }}\n")
        };
        let last = match self.op {
            Reduce::Sum => "part",
            Reduce::Mean => "part / f32(p_reduced())",
            Reduce::Max | Reduce::Min => "value_of(part)",
            Reduce::ArgMax | Reduce::ArgMin => "part.y",
        };
        format!(
            "{memory}@compute @workgroup_size({size})
fn main(
    @builtin(local_invocation_index) local: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
{builtins}) {{
{open}    var part = {identity};
{fours}{takes}{join_fours}{combine}    if (lane == 0u && k < p_kept()) {{
        finish(k, {last});
    }}
{close}}}"
        )
    }

    fn builtins(&self) -> &'static str {
        if !self.subgroups {
            return "";
        }
        "    @builtin(subgroup_invocation_id) subgroup_lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_size) lanes: u32,
"
    }

    /// Generates the statements that combine the partial results of all lanes into the first.
    fn combine(&self) -> String {
        let Division { lanes, results, across, .. } = self.division;
        if lanes == 1 {
            return String::new();
        }
        if self.subgroups {
            return self.combine_in_subgroups();
        }
        let distance = if across { results } else { 1 };
        let mut text = "    shared_parts[local] = part;\n".to_string();
        // Tree reduction: each round joins the upper half of the lanes, a power of two, into the lower half. The barrier
        // separates the writes of one round from the reads of the next.
        let mut half = lanes / 2;
        while half > 0 {
            text += &format!(
                "    workgroupBarrier();
    if (lane < {half}u) {{
        part = join(part, shared_parts[local + {}u]);
        shared_parts[local] = part;
    }}
",
                half * distance
            );
            half /= 2;
        }
        text
    }

    /// Combines partial results with subgroup operations, independent of the actual subgroup size.
    fn combine_in_subgroups(&self) -> String {
        let join = if self.is_sum() {
            "    part = subgroupAdd(part);\n"
        } else if self.is_arg() {
            "    let best = subgroupMax(part.x);
    part = vec2<u32>(best, subgroupMin(select(0xffffffffu, part.y, part.x == best)));\n"
        } else {
            "    part = subgroupMax(part);\n"
        };
        if self.division.in_subgroup {
            return join.to_string();
        }
        format!(
            "{join}    if (subgroup_lane == 0u) {{
        shared_parts[subgroup] = part;
    }}
    workgroupBarrier();
    if (lane == 0u) {{
        part = shared_parts[0];
        for (var other = 1u; other < subgroups; other++) {{
            part = join(part, shared_parts[other]);
        }}
    }}
"
        )
    }
}
