//! Random numbers: known answers of the generator, and the distributions derived from it.

use super::{levels, run};
use crate::Class;
use crate::op::{NORMAL, RANDOM_BITS, UNIFORM, cpu, lane, random};

/// Known-answer vectors of Threefry's authors for 13 rounds.
#[test]
fn the_generator_gives_the_published_words() {
    type Lane = <cpu::Cpu<false> as lane::Machine>::Uint;
    let lanes = |words: [u32; 2]| words.map(<Lane as lane::Uint>::lit);
    let table = [
        ([0, 0], [0, 0], [0x9d1c_5ec6, 0x8bd5_0731]),
        ([u32::MAX; 2], [u32::MAX; 2], [0xfd36_d048, 0x2d17_272c]),
        ([0x243f_6a88, 0x85a3_08d3], [0x1319_8a2e, 0x0370_7344], [0xba3e_4725, 0xf27d_669e]),
    ];
    for (counter, key, expected) in table {
        let found = random::threefry(lanes(counter), lanes(key)).map(lane::Lane::store);
        assert_eq!(found, expected);
    }
}

/// 2^18 words of consecutive counters.
fn words(key: u32) -> Vec<u32> {
    let counters: Vec<u32> = (0..1 << 18).collect();
    let keys = vec![key; counters.len()];
    run(&RANDOM_BITS, Class::Uint, levels()[0], &[counters, keys])
}

/// Consecutive counters under adjacent keys give bits that are balanced and uncorrelated.
#[test]
fn bits_are_even_and_independent() {
    let (first, second) = (words(1), words(2));
    let count = first.len() as f64;
    let even = |ones: usize| (ones as f64 - count / 2.0).abs() < 5.0 * (count / 4.0).sqrt();
    for bit in 0..32 {
        assert!(even(first.iter().filter(|&word| word >> bit & 1 == 1).count()), "bit {bit}");
        let across_keys = first.iter().zip(&second).filter(|(a, b)| (*a ^ *b) >> bit & 1 == 1).count();
        assert!(even(across_keys), "bit {bit} of two keys");
        let across_counters = first.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 1).count();
        assert!(even(across_counters), "bit {bit} of two counters");
    }
}

/// Uniform numbers fill [0, 1) evenly. Normal numbers have mean 0, deviation 1 and the right share beyond 2, and are
/// finite at the extremes.
#[test]
fn numbers_have_their_distributions() {
    let (first, second) = (words(3), words(4));
    let count = first.len() as f64;
    let floats = |words: Vec<u32>| words.into_iter().map(|word| f64::from(f32::from_bits(word))).collect::<Vec<_>>();
    for level in levels() {
        let uniform = floats(run(&UNIFORM, Class::Uint, level, std::slice::from_ref(&first)));
        let mut bins = [0u32; 64];
        for &value in &uniform {
            assert!((0.0..1.0).contains(&value));
            bins[(value * 64.0) as usize] += 1;
        }
        let expected = count / 64.0;
        let chi: f64 = bins.iter().map(|&found| (f64::from(found) - expected).powi(2) / expected).sum();
        assert!(chi < 63.0 + 5.0 * (2.0 * 63.0f64).sqrt(), "{chi}");

        let normal = floats(run(&NORMAL, Class::Uint, level, &[first.clone(), second.clone()]));
        let mean = normal.iter().sum::<f64>() / count;
        let variance = normal.iter().map(|value| value * value).sum::<f64>() / count;
        let beyond = normal.iter().filter(|value| value.abs() > 2.0).count() as f64 / count;
        assert!(
            mean.abs() < 5.0 / count.sqrt() && (variance - 1.0).abs() < 5.0 * (2.0 / count).sqrt(),
            "{mean} {variance}"
        );
        assert!((beyond - 0.045_500).abs() < 0.003, "{beyond}");

        let ends = [0, 1, 255, 256, u32::MAX - 255, u32::MAX];
        for radius in ends {
            let all = floats(run(&NORMAL, Class::Uint, level, &[vec![radius; ends.len()], ends.to_vec()]));
            assert!(all.iter().all(|value| value.is_finite() && value.abs() < 5.8), "{all:?}");
        }
    }
}
