//! An op that this crate does not know, declared like those of the table.

use kiln_ir::op::{ElementOp, Float, FloatOp, Signature, by_name};
use kiln_ir::{Class, DType, SimdLevel};

struct Cube;

impl FloatOp<1> for Cube {
    #[inline(always)]
    fn eval<T: Float>([x]: [T; 1]) -> T {
        x * x * x
    }
}

static CUBE: ElementOp =
    ElementOp::float::<Cube, 1>("cube", "The cube of `x`.", [(-10.0, 10.0)], |x| x[0].powi(3)).ulps(1.5).cheap();

/// The same declaration gives the loops, the WGSL and the bound of an op from elsewhere.
#[test]
fn an_op_from_elsewhere_has_loops_and_wgsl() {
    assert_eq!((CUBE.arity(), CUBE.signature, CUBE.is_cheap()), (1, Signature::Same { arity: 1 }, true));
    let x: Vec<u32> = (0..100u8).map(|n| (f32::from(n) / 7.0).to_bits()).collect();
    for level in [SimdLevel::Scalar, SimdLevel::detect()] {
        let mut out = vec![0; x.len()];
        let tile = CUBE.tile(Class::Float, level).unwrap();
        // SAFETY: the level is one of this processor.
        unsafe { tile(&mut out, [&x, &[], &[]]) };
        for (&x, &found) in x.iter().zip(&out) {
            let expected = CUBE.reference()(&[f32::from_bits(x).into()]);
            assert!(CUBE.error_bound(DType::F32).allows(DType::F32, expected, f32::from_bits(found).into()));
        }
    }
    let text = "fn cube(a0: f32) -> f32 {\n    let v1 = a0 * a0;\n    let v2 = v1 * a0;\n    return v2;\n}\n";
    assert_eq!(CUBE.wgsl(Class::Float, "cube", false).as_deref(), Some(text));
    assert!(CUBE.wgsl(Class::Int, "cube", false).is_none());
    assert!(by_name("cube").is_none() && by_name("exp").is_some());
}
