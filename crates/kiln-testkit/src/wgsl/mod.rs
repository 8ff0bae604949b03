//! Random WGSL kernels for differential tests: every device must compute the same, or nearly the same where WGSL leaves room.
//!
//! [`generate`] writes a program and its inputs as text, [`Case::parse`] reads it, [`compare`] compares two results, and [`shrink`]
//! minimizes a program that shows a difference. Programs are deterministic by construction: loops end, invocations do not race, floats
//! stay where arithmetic is exact or correctly rounded, and approximate values affect no control flow and no exact value. Some indices
//! are out of bounds; Kiln clamps them to the last element.

mod approximate;
mod barrier_functions;
mod body;
mod bounds;
mod carried;
mod case;
mod compare;
mod exact;
mod exchanges;
mod functions;
mod operations;
mod program;
mod scope;
#[cfg(test)]
mod shapes;
mod shrink;
mod subgroups;
mod types;
mod uniform_flow;

pub use case::{Binding, Case};
pub use compare::{Difference, compare};
pub use program::generate;
pub use shrink::shrink;

/// Features that programs may use beyond core WGSL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `f16`, in a third of the programs.
    pub f16: bool,
    /// Operations of subgroups of eight invocations, in all programs.
    pub subgroups: bool,
    /// Pointers to parts of variables as arguments: naga accepts them, but its SPIR-V backend panics.
    pub pointers_to_parts: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use naga::valid::{Capabilities, ValidationFlags, Validator};
    use std::collections::BTreeSet;

    fn check(seed: u64, features: Features) -> Result<(), String> {
        let text = generate(seed, features);
        let module = naga::front::wgsl::parse_str(&text).map_err(|error| error.emit_to_string(&text) + &text)?;
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
        validator.validate(&module).map_err(|error| error.emit_to_string(&text) + &text)?;
        Case::parse(&text).map(drop)
    }

    #[test]
    fn programs_are_valid() {
        let all = [
            Features::default(),
            Features { f16: true, ..Features::default() },
            Features { f16: true, subgroups: true, ..Features::default() },
            Features { pointers_to_parts: true, ..Features::default() },
        ];
        for seed in 0..300 {
            for features in all {
                if let Err(error) = check(seed, features) {
                    panic!("{features:?}, seed {seed}:\n{error}");
                }
            }
        }
    }

    /// Checks that every feature of this list occurs, because what no program uses is not tested.
    #[test]
    fn programs_use_the_language() {
        const WORDS: &str = "abs acos acosh all any arrayLength asin asinh atan atan2 atanh atomicAdd atomicAnd \
            atomicCompareExchangeWeak atomicExchange atomicLoad atomicMax atomicMin atomicOr atomicStore \
            atomicSub atomicXor bitcast bool break ceil clamp const continue continuing cos cosh \
            countLeadingZeros countOneBits countTrailingZeros cross default degrees determinant distance dot \
            dot4I8Packed dot4U8Packed exp exp2 extractBits f16 faceForward firstLeadingBit firstTrailingBit \
            floor fma for fract frexp global_invocation_id insertBits inverseSqrt ldexp length let \
            local_invocation_id log log2 loop mat2x3 mat4x4 max min mix modf normalize num_subgroups \
            num_workgroups override pack2x16float pack2x16snorm pack2x16unorm pack4x8snorm pack4x8unorm pack4xI8 \
            pack4xI8Clamp pack4xU8 pack4xU8Clamp pow ptr quadBroadcast quadSwapDiagonal quadSwapX \
            quadSwapY quantizeToF16 radians reflect refract return reverseBits round saturate select sign sin \
            sinh smoothstep sqrt step storageBarrier struct subgroup_id subgroup_invocation_id \
            subgroup_size subgroupAdd subgroupAll subgroupAnd subgroupAny subgroupBallot subgroupBroadcast \
            subgroupBroadcastFirst subgroupExclusiveAdd subgroupExclusiveMul subgroupInclusiveAdd \
            subgroupInclusiveMul subgroupMax subgroupMin subgroupMul subgroupOr subgroupShuffle \
            subgroupShuffleDown subgroupShuffleUp subgroupShuffleXor subgroupXor switch tan tanh transpose trunc \
            unpack2x16float unpack2x16snorm unpack2x16unorm unpack4x8snorm unpack4x8unorm unpack4xI8 unpack4xU8 \
            var vec2 vec2i vec2u vec3 vec3f vec4 vec4h while workgroup_id workgroupBarrier workgroupUniformLoad";
        const FORMS: [&str; 33] = [
            "ptr<function, ",
            "ptr<private, ",
            "(&v",
            "(p0, ",
            " p0.m",
            "@align(",
            "@size(",
            "(ids: Ids)",
            "@workgroup_size(axis",
            " / 2u>",
            "arrayLength(&in_t.m1)",
            "fn together",
            "if together",
            "switch together",
            "break if together",
            "while together",
            ", together",
            "own[me].m",
            "i32(-2147483648))",
            " * 1e30f)",
            " /= ",
            " %= ",
            " <<= ",
            " >>= ",
            " &= ",
            " |= ",
            " ^= ",
            " *= mat",
            "case -",
            ", default:",
            "array<array<",
            "array<bool, ",
            "array<mat",
        ];
        let mut missing: BTreeSet<&str> = WORDS.split_whitespace().chain(FORMS).collect();
        for seed in 0..1500 {
            let text = generate(seed, Features { f16: true, subgroups: seed % 3 == 0, ..Features::default() });
            for word in text.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
                missing.remove(word);
            }
            missing.retain(|form| !FORMS.contains(form) || !text.contains(form));
        }
        assert_eq!(missing, BTreeSet::new());
    }

    /// Checks that every shape occurs. Two hand-written programs found compiler bugs that random ones missed for lack of these shapes.
    #[test]
    fn programs_with_barriers_have_all_shapes() {
        let mut missing = BTreeSet::from(shapes::SHAPES);
        for seed in 0..1000 {
            let found = shapes::shapes_of(&generate(seed, Features::default()));
            missing.retain(|shape| !found.contains(shape));
        }
        assert_eq!(missing, BTreeSet::new());
    }

    #[test]
    fn pointers_to_parts_are_given_only_where_asked_for() {
        let has_parts = |pointers_to_parts| {
            let features = Features { pointers_to_parts, ..Features::default() };
            // An element of an array, passed to a function with barriers.
            let is_part = |line: &str| line.contains("= together") && line.contains("&v") && line.contains("[");
            let gives = |argument: &str| argument.starts_with('&') && argument.contains('[');
            let in_line = |line: &str| is_part(line) && line.split([',', '(']).any(|part| gives(part.trim()));
            (0..500).any(|seed| generate(seed, features).lines().any(in_line))
        };
        assert!(has_parts(true));
        assert!(!has_parts(false));
    }

    #[test]
    fn the_same_seed_gives_the_same_program() {
        let features = Features { f16: true, ..Features::default() };
        assert_eq!(generate(3, features), generate(3, features));
        assert_ne!(generate(3, features), generate(4, features));
    }
}
