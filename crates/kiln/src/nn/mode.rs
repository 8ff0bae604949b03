//! Training and inference modes, and dropout.

use super::{Module, Visitor};
use crate::{Result, Tensor};
use std::sync::atomic::{AtomicU64, Ordering};

/// The mode of a pass: training or inference, and the seed of its random ops. The same seed gives the same numbers. A
/// clone draws the same numbers that the original would draw next.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Dropout, Mode, Module};
/// use kiln::{DType, Tensor};
///
/// let (dropout, x) = (Dropout::new(0.5), Tensor::ones(64, DType::F32, &device)?);
/// let pass = |mode: &Mode| -> kiln::Result<Vec<f32>> { dropout.forward(&x, mode)?.to_vec() };
/// assert_eq!(pass(&Mode::training(7))?, pass(&Mode::training(7))?);
/// assert_ne!(pass(&Mode::training(7))?, pass(&Mode::training(8))?);
/// assert_eq!(pass(&Mode::inference())?, [1.0; 64]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Mode {
    seed: Option<u64>,
    /// The number of random ops in the pass so far.
    drawn: AtomicU64,
}

impl Mode {
    /// Creates a training pass. Use a different seed for each step, for example the step number.
    pub fn training(seed: u64) -> Self {
        Self { seed: Some(seed), drawn: AtomicU64::new(0) }
    }

    /// Creates an inference pass: nothing is random, and running statistics do not change.
    ///
    /// See [`Mode`] for an example.
    pub fn inference() -> Self {
        Self { seed: None, drawn: AtomicU64::new(0) }
    }

    /// Returns whether this is a training pass.
    ///
    /// See [`Mode`] for an example.
    pub fn is_training(&self) -> bool {
        self.seed.is_some()
    }

    /// Returns a new seed for the next random op of a training pass, and `None` in inference.
    ///
    /// See [`Mode`] for an example.
    pub fn next_seed(&self) -> Option<u64> {
        // An odd increment visits all 2⁶⁴ seeds before one repeats.
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed) + 1;
        self.seed.map(|seed| {
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(drawn.wrapping_mul(0xd1b5_4a32_d192_ed03))
        })
    }
}

impl Clone for Mode {
    fn clone(&self) -> Self {
        Self { seed: self.seed, drawn: AtomicU64::new(self.drawn.load(Ordering::Relaxed)) }
    }
}

/// Sets elements to 0 at random while training, and scales the others so that the mean stays.
///
/// See [`Mode`] for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    probability: f32,
}

impl Dropout {
    /// Creates a layer that sets an element to 0 with this probability, which is below 1.
    ///
    /// See [`Mode`] for an example.
    pub fn new(probability: f32) -> Self {
        Self { probability }
    }
}

impl Module for Dropout {
    fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor> {
        mode.next_seed().map_or_else(|| Ok(input.clone()), |seed| input.dropout(self.probability, seed))
    }

    fn visit(&self, _: &mut Visitor<'_>) {}
}
