//! Operand indices of an elementwise program, as WGSL expressions of the position in its space.
//!
//! A space is iterated in one part (a map: the index of the element) or in two (a reduction: the index of the kept
//! element and of the reduced one). Within a part, axes that are contiguous for all operands are merged.

use crate::kernel::Body;
use crate::{Layout, Shape};
use std::fmt::Write as _;

/// How an operand advances along a part of the space.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Addressing {
    /// Broadcast: it does not advance.
    Constant,
    /// Contiguous.
    Contiguous,
    /// A single stride.
    Stride(isize),
    /// With a stride for each axis of the part.
    Strides(Vec<isize>),
}

/// Consecutive axes of a space, iterated by one counter.
#[derive(Clone, Debug)]
struct Part {
    /// The name of the counter variable.
    counter: &'static str,
    /// Lengths of the axes after merging.
    lengths: Vec<usize>,
    /// How each operand advances.
    addressing: Vec<Addressing>,
}

/// How four consecutive elements of an operand are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VectorLoad {
    /// One aligned group of four: the index of the first is a multiple of 4.
    Aligned,
    /// One broadcast element.
    Broadcast,
    /// Four separate loads.
    Separate,
}

/// An iteration space with the operands of a program.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    parts: Vec<Part>,
    offsets: Vec<usize>,
    prefix: &'static str,
}

impl Frame {
    /// Creates the frame of a body as one part, with counter `i`.
    pub(super) fn whole(body: &Body, prefix: &'static str) -> Self {
        Self::new(body, prefix, &[("i", 0, body.space.rank())])
    }

    /// Creates the frame of a body in two parts: the leading `kept` axes with counter `k`, the others with counter
    /// `r`.
    pub(super) fn split(body: &Body, prefix: &'static str, kept: usize) -> Self {
        Self::new(body, prefix, &[("k", 0, kept), ("r", kept, body.space.rank())])
    }

    fn new(body: &Body, prefix: &'static str, parts: &[(&'static str, usize, usize)]) -> Self {
        let layouts: Vec<&Layout> = body.operands.iter().map(|operand| &operand.layout).collect();
        let parts = parts.iter().map(|&(counter, from, to)| part(counter, &body.space[from..to], &layouts, from));
        Self { parts: parts.collect(), offsets: layouts.iter().map(|layout| layout.offset()).collect(), prefix }
    }

    /// Returns the parameters that the index expressions need, by name.
    pub(super) fn params(&self) -> Vec<(String, u32)> {
        let mut params = Vec::new();
        for part in &self.parts {
            let strided = part.addressing.iter().any(|addressing| matches!(addressing, Addressing::Strides(_)));
            for axis in (1..part.lengths.len()).filter(|_| strided) {
                params.push((self.length_name(part, axis), part.lengths[axis] as u32));
            }
        }
        for (operand, &offset) in self.offsets.iter().enumerate() {
            // Most operands have offset 0; omitting the parameter makes them a separate class of kernels.
            if offset > 0 {
                params.push((self.offset_name(operand), offset as u32));
            }
            for part in &self.parts {
                let strides = match &part.addressing[operand] {
                    Addressing::Constant | Addressing::Contiguous => &[][..],
                    Addressing::Stride(step) => std::slice::from_ref(step),
                    Addressing::Strides(strides) => strides,
                };
                // Indices are computed modulo 2^32, so negative strides need no special case.
                let words = strides.iter().enumerate();
                params.extend(words.map(|(axis, &stride)| (self.stride_name(part, operand, axis), stride as u32)));
            }
        }
        params
    }

    fn length_name(&self, part: &Part, axis: usize) -> String {
        format!("{}_{}_length{axis}", self.prefix, part.counter)
    }

    fn offset_name(&self, operand: usize) -> String {
        format!("{}{operand}_offset", self.prefix)
    }

    fn stride_name(&self, part: &Part, operand: usize, axis: usize) -> String {
        format!("{}{operand}_{}_stride{axis}", self.prefix, part.counter)
    }

    /// Returns how to load four consecutive elements of the last part, the first at a multiple of 4.
    pub(super) fn four(&self, operand: usize) -> VectorLoad {
        let Some((last, others)) = self.parts.split_last() else { return VectorLoad::Broadcast };
        let is_whole = |&stride: &isize| stride % 4 == 0;
        let others_whole = others.iter().all(|part| match &part.addressing[operand] {
            Addressing::Constant => true,
            // It advances by one element per index, so that rows begin at any index, not only at multiples of 4.
            Addressing::Contiguous => part.lengths.iter().all(|&length| length == 1),
            Addressing::Stride(step) => is_whole(step),
            Addressing::Strides(strides) => strides.iter().all(is_whole),
        });
        let aligned = others_whole && self.offsets[operand].is_multiple_of(4);
        match &last.addressing[operand] {
            Addressing::Constant => VectorLoad::Broadcast,
            Addressing::Contiguous if aligned => VectorLoad::Aligned,
            Addressing::Strides(strides) if self.rows_are_whole() => match strides.split_last() {
                Some((1, outer)) if aligned && outer.iter().all(is_whole) => VectorLoad::Aligned,
                Some((0, _)) => VectorLoad::Broadcast,
                _ => VectorLoad::Separate,
            },
            _ => VectorLoad::Separate,
        }
    }

    /// Returns whether more operands are contiguous along the first part than along the last.
    pub(super) fn prefers_first(&self, operands: usize) -> bool {
        let contiguous = |part: Option<&Part>| {
            let is_contiguous = |addressing: &Addressing| match addressing {
                Addressing::Constant | Addressing::Stride(_) => false,
                Addressing::Contiguous => true,
                Addressing::Strides(strides) => strides.last().is_some_and(|stride| stride.abs() == 1),
            };
            (0..operands).filter(|&operand| part.is_some_and(|part| is_contiguous(&part.addressing[operand]))).count()
        };
        contiguous(self.parts.first()) > contiguous(self.parts.last())
    }

    /// Returns whether four elements of the last part, beginning at a multiple of 4, are always in one row.
    fn rows_are_whole(&self) -> bool {
        self.parts.last().and_then(|part| part.lengths.last()).is_some_and(|length| length.is_multiple_of(4))
    }

    /// Declares the coordinates that the operands need, for the element at the counters and, in the last part, the
    /// following ones up to `lanes`.
    pub(super) fn coordinates(&self, text: &mut String, lanes: usize) {
        for (index, part) in self.parts.iter().enumerate() {
            if !part.addressing.iter().any(|addressing| matches!(addressing, Addressing::Strides(_))) {
                continue;
            }
            let is_last = index + 1 == self.parts.len();
            // If rows are whole, one decomposition serves all four lanes: `index` adds the lane to the last coordinate.
            let lanes = if is_last && !self.rows_are_whole() { lanes } else { 1 };
            for lane in 0..lanes {
                self.part_coordinates(text, part, lane);
            }
        }
    }

    fn part_coordinates(&self, text: &mut String, part: &Part, lane: usize) {
        let name = part.counter;
        let mut rest = if lane == 0 { name.to_string() } else { format!("({name} + {lane}u)") };
        // Mixed radix from the innermost axis. The outermost coordinate is the last quotient and needs no remainder.
        for axis in (1..part.lengths.len()).rev() {
            let length = self.length_name(part, axis);
            let _ = writeln!(text, "    let {name}{axis}_{lane} = {rest} % p_{length}();");
            let next = if axis == 1 { format!("{name}0_{lane}") } else { format!("{name}_rest{axis}_{lane}") };
            let _ = writeln!(text, "    let {next} = {rest} / p_{length}();");
            rest = next;
        }
        if part.lengths.len() == 1 {
            let _ = writeln!(text, "    let {name}0_{lane} = {rest};");
        }
    }

    /// Returns the index of an operand's element, `lane` elements after the one at the counters.
    pub(super) fn index(&self, operand: usize, lane: usize) -> String {
        let mut terms: Vec<String> = Vec::new();
        if self.offsets[operand] > 0 {
            terms.push(format!("p_{}()", self.offset_name(operand)));
        }
        for (number, part) in self.parts.iter().enumerate() {
            let is_last = number + 1 == self.parts.len();
            let lane = if is_last { lane } else { 0 };
            let moved = |name: String, by: usize| if by == 0 { name } else { format!("({name} + {by}u)") };
            match &part.addressing[operand] {
                Addressing::Constant => {}
                Addressing::Contiguous => terms.push(moved(part.counter.to_string(), lane)),
                Addressing::Stride(_) => {
                    let stride = self.stride_name(part, operand, 0);
                    terms.push(format!("{} * p_{stride}()", moved(part.counter.to_string(), lane)));
                }
                Addressing::Strides(strides) => {
                    // Within a row, only the last coordinate changes.
                    let (own, by) = if self.rows_are_whole() { (0, lane) } else { (lane, 0) };
                    terms.extend((0..strides.len()).map(|axis| {
                        let by = if axis + 1 == strides.len() { by } else { 0 };
                        let coordinate = moved(format!("{}{axis}_{}", part.counter, if is_last { own } else { 0 }), by);
                        format!("{coordinate} * p_{}()", self.stride_name(part, operand, axis))
                    }));
                }
            }
        }
        if terms.is_empty() { "0u".to_string() } else { terms.join(" + ") }
    }
}

/// Creates the part of a space that begins at axis `from`.
fn part(counter: &'static str, lengths: &[usize], layouts: &[&Layout], from: usize) -> Part {
    let own = |layout: &Layout| {
        let strides = &layout.strides()[from..from + lengths.len()];
        Layout::strided(Shape::new(lengths), strides, 0)
    };
    let own: Vec<Layout> = layouts.iter().map(|layout| own(layout)).collect();
    let addressing: Vec<Option<Addressing>> = own.iter().map(simple_addressing).collect();
    // Only operands that need coordinates restrict the merging of axes: fewer axes mean fewer divisions.
    let strided = own.iter().zip(&addressing).filter(|(_, addressing)| addressing.is_none());
    let strided: Vec<&[isize]> = strided.map(|(layout, _)| layout.strides()).collect();
    let (lengths, strides) = Layout::merge_axes(lengths, &strided);
    let mut strides = strides.into_iter();
    let addressing = addressing
        .into_iter()
        .map(|addressing| addressing.unwrap_or_else(|| Addressing::Strides(strides.next().unwrap_or_default())));
    Part { counter, lengths, addressing: addressing.collect() }
}

/// Returns how an operand advances if no coordinates are needed.
fn simple_addressing(layout: &Layout) -> Option<Addressing> {
    if layout.is_contiguous() {
        return Some(Addressing::Contiguous);
    }
    if layout.is_splat() {
        return Some(Addressing::Constant);
    }
    let (lengths, strides) = Layout::merge_axes(layout.shape(), &[layout.strides()]);
    (lengths.len() == 1).then(|| Addressing::Stride(strides[0][0]))
}
