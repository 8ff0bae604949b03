//! Trains on handwritten digits in `f32` and `f16`; runs are reproducible.

#![expect(clippy::unwrap_used, reason = "a test that fails says so")]

#[path = "../examples/digits/learn.rs"]
mod learn;

use kiln::{DType, Device};
use learn::{Net, Training};

/// The loss of each epoch, and the accuracy on the test set.
fn train(net: Net, dtype: DType, epochs: u64) -> (Vec<f32>, f32) {
    let device = Device::cpu().unwrap();
    let mut training = Training::new(net, dtype, epochs, 1, &device).unwrap();
    let losses = (0..epochs).map(|_| training.epoch().unwrap()).collect();
    (losses, training.accuracy().unwrap())
}

#[test]
fn both_networks_reach_97_percent() {
    for (net, epochs) in [(Net::Mlp, 20), (Net::Conv, 10)] {
        for dtype in [DType::F32, DType::F16] {
            let (losses, right) = train(net, dtype, epochs);
            assert!(right >= 0.97, "{net:?} {dtype}: {right} of the test, losses {losses:?}");
        }
    }
}

#[test]
fn a_run_is_the_same_each_time() {
    let run = || {
        let (losses, right) = train(Net::Conv, DType::F32, 2);
        (losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>(), right.to_bits())
    };
    assert_eq!(run(), run());
}
