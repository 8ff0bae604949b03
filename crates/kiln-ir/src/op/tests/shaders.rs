//! The WGSL of every op.

use super::forms;
use crate::Class;
use crate::op::{ADD, EXP, WHERE, all};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// naga accepts every op, scalar and `vec4`.
#[test]
fn every_op_is_valid_wgsl() {
    for (op, class) in forms() {
        for four in [false, true] {
            let source = op.wgsl(class, "f", four).unwrap();
            let module = naga::front::wgsl::parse_str(&source)
                .unwrap_or_else(|error| panic!("{op:?} {class:?}: {}", error.emit_to_string(&source)));
            let checked = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module);
            assert!(checked.is_ok(), "{op:?} {class:?}: {checked:?}\n{source}");
        }
    }
}

#[test]
fn functions_read_as_they_would_be_written() {
    let add = ADD.wgsl(Class::Float, "add", false).unwrap();
    assert_eq!(add, "fn add(a0: f32, a1: f32) -> f32 {\n    let v2 = a0 + a1;\n    return v2;\n}\n");
    let choose = WHERE.wgsl(Class::Int, "choose", true).unwrap();
    let expected = "fn choose(a0: vec4<u32>, a1: vec4<i32>, a2: vec4<i32>) -> vec4<i32> {
    let v4 = a0 == vec4<u32>(0u);
    let v5 = !v4;
    let v6 = select(a2, a1, v5);
    return v6;
}
";
    assert_eq!(choose, expected);
    assert_eq!(EXP.wgsl(Class::Int, "f", false), None);
}

/// Ops marked cheap take a handful of instructions; all others take more, or divide.
#[test]
fn cheap_ops_are_short() {
    for op in all() {
        let costs: Vec<usize> = op.loops.classes.iter().flatten().map(|compiled| compiled.trace().cost()).collect();
        let divides = ["div", "recip", "sqrt", "rsqrt"].contains(&op.name);
        assert_eq!(op.is_cheap(), costs.iter().all(|&cost| cost <= 6) && !divides, "{op:?} {costs:?}");
    }
}

/// A recording that panics leaves no steps for the next one.
#[test]
fn a_panic_while_recording_leaves_nothing() {
    use crate::op::{ElementOp, Float, FloatOp};
    struct Fails;
    impl FloatOp<1> for Fails {
        fn eval<T: Float>([x]: [T; 1]) -> T {
            let _ = x + T::lit(1.0);
            panic!("on purpose")
        }
    }
    let fails = ElementOp::float::<Fails, 1>("fails", "fails.", [(0.0, 1.0)], |x| x[0]);
    let before = ADD.wgsl(Class::Float, "f", false);
    let recorded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fails.wgsl(Class::Float, "f", false)));
    assert!(recorded.is_err());
    assert_eq!(ADD.wgsl(Class::Float, "f", false), before);
}
