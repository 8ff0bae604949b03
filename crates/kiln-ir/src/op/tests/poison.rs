//! Special values: infinities, zeros of both signs, NaN, subnormals, and integers at the ends of their range.

use super::{levels, one};
use crate::Class;
use crate::op::by_name;

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;
/// The smallest subnormal.
const TINY: f32 = f32::from_bits(1);

/// Compares bits, so zeros of different sign differ; all NaNs are equal.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// Unary float functions of special values.
#[test]
fn functions_of_one_float() {
    #[rustfmt::skip]
    let table: [(&str, &[(f32, f32)]); 25] = [
        ("neg", &[(0.0, -0.0), (-0.0, 0.0), (INF, -INF), (NAN, NAN), (TINY, -TINY)]),
        ("abs", &[(-0.0, 0.0), (-INF, INF), (NAN, NAN), (-TINY, TINY)]),
        ("sign", &[(-0.0, -0.0), (0.0, 0.0), (-INF, -1.0), (INF, 1.0), (NAN, NAN), (TINY, 1.0)]),
        ("square", &[(-INF, INF), (NAN, NAN), (-0.0, 0.0), (1e30, INF)]),
        ("relu", &[(-0.0, 0.0), (-INF, 0.0), (INF, INF), (NAN, NAN), (TINY, TINY), (-1.0, 0.0)]),
        ("recip", &[(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0), (NAN, NAN)]),
        ("sqrt", &[(-1.0, NAN), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (NAN, NAN), (-INF, NAN)]),
        ("rsqrt", &[(-1.0, NAN), (0.0, INF), (INF, 0.0), (NAN, NAN)]),
        ("floor", &[(-0.0, -0.0), (-0.5, -1.0), (INF, INF), (NAN, NAN), (8_388_609.0, 8_388_609.0), (0.5, 0.0),
            (-TINY, -1.0), (-1e30, -1e30)]),
        ("ceil", &[(-0.0, -0.0), (-0.5, -0.0), (-INF, -INF), (NAN, NAN), (0.5, 1.0), (TINY, 1.0), (1e30, 1e30)]),
        ("round", &[(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (-2.5, -2.0), (NAN, NAN), (INF, INF),
            (8_388_607.5, 8_388_608.0), (0.499_999_97, 0.0)]),
        ("exp", &[(INF, INF), (-INF, 0.0), (NAN, NAN), (0.0, 1.0), (-0.0, 1.0), (88.722_84, INF), (-104.1, 0.0),
            (-87.4, 0.0), (f32::MAX, INF), (f32::MIN, 0.0)]),
        ("log", &[(0.0, -INF), (-0.0, -INF), (-1.0, NAN), (-INF, NAN), (INF, INF), (NAN, NAN), (1.0, 0.0),
            (TINY, -103.278_93)]),
        ("sin", &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (TINY, TINY), (-TINY, -TINY)]),
        ("cos", &[(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (NAN, NAN)]),
        ("tan", &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (NAN, NAN), (TINY, TINY)]),
        ("tanh", &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (TINY, TINY)]),
        ("erf", &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)]),
        ("sigmoid", &[(INF, 1.0), (-INF, 0.0), (NAN, NAN), (0.0, 0.5)]),
        ("silu", &[(INF, INF), (-INF, -0.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)]),
        ("gelu", &[(INF, INF), (-INF, -0.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (f32::MAX, f32::MAX)]),
        ("gelu_erf", &[(INF, INF), (-INF, 0.0), (NAN, NAN), (0.0, 0.0), (f32::MAX, f32::MAX)]),
        ("sigmoid", &[(f32::MAX, 1.0), (f32::MIN, 0.0)]),
        ("tanh", &[(f32::MAX, 1.0), (f32::MIN, -1.0)]),
        ("silu", &[(f32::MAX, f32::MAX), (f32::MIN, -0.0)]),
    ];
    for (name, cases) in table {
        for level in levels() {
            for &(x, expected) in cases {
                let op = by_name(name).unwrap();
                let found = f32::from_bits(one(op, Class::Float, level, &[x.to_bits()]));
                assert!(same(expected, found), "{name}({x:e}) at {level}: expected {expected:e}, found {found:e}");
            }
        }
    }
}

/// Arguments, and the expected result.
type Case = (&'static [f32], f32);

/// Float functions of two or three special values.
#[test]
fn functions_of_more_floats() {
    #[rustfmt::skip]
    let table: [(&str, &[Case]); 7] = [
        ("maximum", &[(&[NAN, 1.0], NAN), (&[1.0, NAN], NAN), (&[NAN, NAN], NAN), (&[-INF, INF], INF),
            (&[0.0, -0.0], 0.0), (&[-0.0, 0.0], -0.0), (&[TINY, 0.0], TINY)]),
        ("minimum", &[(&[NAN, 1.0], NAN), (&[1.0, NAN], NAN), (&[-INF, INF], -INF), (&[0.0, -0.0], 0.0)]),
        ("clamp", &[(&[NAN, 0.0, 1.0], NAN), (&[0.5, NAN, 1.0], NAN), (&[0.5, 0.0, NAN], NAN), (&[5.0, 2.0, 1.0], 1.0),
            (&[INF, 0.0, 1.0], 1.0), (&[-INF, 0.0, 1.0], 0.0)]),
        ("add", &[(&[INF, -INF], NAN), (&[NAN, 1.0], NAN), (&[-0.0, -0.0], -0.0), (&[f32::MAX, f32::MAX], INF)]),
        ("mul", &[(&[0.0, INF], NAN), (&[-0.0, 1.0], -0.0), (&[TINY, 0.5], 0.0)]),
        ("div", &[(&[1.0, 0.0], INF), (&[1.0, -0.0], -INF), (&[0.0, 0.0], NAN), (&[INF, INF], NAN)]),
        ("pow", &[(&[NAN, 0.0], 1.0), (&[1.0, NAN], 1.0), (&[NAN, 1.0], NAN), (&[2.0, NAN], NAN), (&[0.0, -1.0], INF),
            (&[-0.0, -1.0], -INF), (&[-0.0, -2.0], INF), (&[-0.0, 3.0], -0.0), (&[-0.0, 2.0], 0.0), (&[-8.0, 3.0], -512.0),
            (&[-8.0, 0.5], NAN), (&[-1.0, INF], 1.0), (&[-1.0, -INF], 1.0), (&[0.5, INF], 0.0), (&[0.5, -INF], INF),
            (&[2.0, INF], INF), (&[2.0, -INF], 0.0), (&[INF, 2.0], INF), (&[INF, -2.0], 0.0), (&[-INF, 3.0], -INF),
            (&[-INF, -3.0], -0.0), (&[-INF, 0.5], INF), (&[-INF, 2.0], INF), (&[10.0, 40.0], INF), (&[10.0, -50.0], 0.0),
            (&[0.0, 0.0], 1.0), (&[3.0, 2.0], 9.0), (&[TINY, 1.0], TINY), (&[-2.0, 1e20], INF)]),
    ];
    for (name, cases) in table {
        for level in levels() {
            for &(args, expected) in cases {
                let words: Vec<u32> = args.iter().map(|arg| arg.to_bits()).collect();
                let found = f32::from_bits(one(by_name(name).unwrap(), Class::Float, level, &words));
                assert!(same(expected, found), "{name}{args:?} at {level}: expected {expected:e}, found {found:e}");
            }
        }
    }
}

/// Comparisons with NaN are false, except `ne`; zeros of either sign are equal.
#[test]
fn comparisons() {
    for level in levels() {
        for (name, expected) in [("eq", 0), ("ne", 1), ("lt", 0), ("le", 0), ("gt", 0), ("ge", 0)] {
            for args in [[NAN, 1.0], [1.0, NAN], [NAN, NAN], [NAN, INF]] {
                let found = one(by_name(name).unwrap(), Class::Float, level, &args.map(f32::to_bits));
                assert_eq!(found, expected, "{name} {args:?} at {level}");
            }
        }
        let zeros = [0.0f32, -0.0].map(f32::to_bits);
        assert_eq!(one(by_name("eq").unwrap(), Class::Float, level, &zeros), 1);
        assert_eq!(one(by_name("lt").unwrap(), Class::Float, level, &zeros), 0);
        let choose = by_name("where_").unwrap();
        assert_eq!(one(choose, Class::Float, level, &[7, 1f32.to_bits(), NAN.to_bits()]), 1f32.to_bits());
        assert_eq!(one(choose, Class::Float, level, &[0, NAN.to_bits(), 2f32.to_bits()]), 2f32.to_bits());
    }
}

/// Integers wrap, and division by zero has a result.
#[test]
fn integers_at_their_ends() {
    const MIN: i64 = i32::MIN as i64;
    const MAX: i64 = i32::MAX as i64;
    const ALL: i64 = u32::MAX as i64;
    #[rustfmt::skip]
    let table: [(&str, Class, &[i64], i64); 22] = [
        ("add", Class::Int, &[MAX, 1], MIN), ("sub", Class::Int, &[MIN, 1], MAX), ("mul", Class::Int, &[MAX, 2], -2),
        ("mul", Class::Int, &[65_537, 65_537], 131_073), ("div", Class::Int, &[MIN, -1], MIN), ("div", Class::Int, &[7, 0], 0),
        ("div", Class::Int, &[-7, 2], -3), ("neg", Class::Int, &[MIN], MIN), ("abs", Class::Int, &[MIN], MIN),
        ("add", Class::Uint, &[ALL, 1], 0), ("sub", Class::Uint, &[0, 1], ALL), ("neg", Class::Uint, &[1], ALL),
        ("div", Class::Uint, &[ALL, 0], 0), ("div", Class::Uint, &[ALL, 2], MAX), ("lt", Class::Uint, &[1, ALL], 1),
        ("lt", Class::Int, &[1, -1], 0), ("maximum", Class::Int, &[-1, 1], 1), ("maximum", Class::Uint, &[ALL, 1], ALL),
        ("sign", Class::Int, &[MIN], -1), ("sign", Class::Uint, &[ALL], 1), ("shift_left", Class::Uint, &[1, 33], 2),
        ("shift_right", Class::Uint, &[ALL, 31], 1),
    ];
    for (name, class, args, expected) in table {
        for level in levels() {
            let words: Vec<u32> = args.iter().map(|&arg| arg as u32).collect();
            let found = one(by_name(name).unwrap(), class, level, &words);
            assert_eq!(found, expected as u32, "{name} {class:?} {args:?} at {level}");
        }
    }
}
