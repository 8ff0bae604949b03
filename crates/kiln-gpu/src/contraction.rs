//! Forbids floating-point contraction in SPIR-V.
//!
//! Without the `NoContraction` decoration a driver may fuse a multiplication and an addition into one operation with a
//! single rounding. Kernels that are not compiled with `fast_math` must round each result.

use kiln_ir::{Result, bail};
use std::ops::RangeInclusive;

const HEADER_WORDS: usize = 5;
const OP_DECORATE: u32 = 71;
const NO_CONTRACTION: u32 = 42;
/// `OpTypeVoid` to `OpTypeForwardPointer`. The section after the decorations begins with one of them.
const TYPES: RangeInclusive<u32> = 19..=39;

/// Returns whether the result of an instruction can depend on contraction.
fn is_arithmetic(op: u32) -> bool {
    // FNegate; FAdd, FSub, FMul, FDiv, FRem, FMod; vector and matrix products; Dot.
    matches!(op, 127 | 129 | 131 | 133 | 136 | 140 | 141 | 142..=148)
}

/// Adds `NoContraction` to every arithmetic instruction of a module.
pub(crate) fn forbid_contraction(words: &[u32]) -> Result<Vec<u32>> {
    let (mut results, mut types_begin) = (Vec::new(), None);
    // A module is a header and a sequence of instructions, each with its length in the high half of its first word.
    let mut at = HEADER_WORDS;
    while at < words.len() {
        let (op, length) = (words[at] & 0xffff, (words[at] >> 16) as usize);
        let Some(instruction) = words.get(at..at + length).filter(|_| length > 0) else {
            bail!(Internal, "expected SPIR-V, found a bad length at word {at}");
        };
        if types_begin.is_none() && TYPES.contains(&op) {
            types_begin = Some(at);
        }
        // Arithmetic instructions consist of opcode, result type, result id and operands.
        if let (true, [_, _, result, ..]) = (is_arithmetic(op), instruction) {
            results.push(*result);
        }
        at += length;
    }
    // SPIR-V requires decorations before the types.
    let split = types_begin.unwrap_or(words.len());
    let decorations = results.into_iter().flat_map(|result| [(3 << 16) | OP_DECORATE, result, NO_CONTRACTION]);
    Ok(words[..split].iter().copied().chain(decorations).chain(words[split..].iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_decorated_before_the_types() {
        let header = [0x0723_0203, 0x0001_0300, 0, 100, 0];
        let decorate = [(3 << 16) | OP_DECORATE, 9, 2];
        let (void, add) = ([(2 << 16) | 19, 5], [(5 << 16) | 129, 7, 42, 10, 11]);
        let module = [&header[..], &decorate, &void, &add].concat();
        let expected = [&header[..], &decorate, &[(3 << 16) | OP_DECORATE, 42, NO_CONTRACTION], &void, &add].concat();
        assert_eq!(forbid_contraction(&module).unwrap(), expected);
        assert!(forbid_contraction(&[&header[..], &[0]].concat()).is_err());
        assert!(forbid_contraction(&[&header[..], &[9 << 16]].concat()).is_err());
    }
}
