//! The data, the networks and their training. The program `digits` shows it; a test checks it.

use kiln::nn::{Activation, Conv2d, Dropout, Flatten, Linear, Mode, Module, Sequential, cross_entropy};
use kiln::optim::{Adam, LossScale, Optimizer, Schedule};
use kiln::{DType, Device, Result, Tensor, no_grad};

/// Images of 8 by 8 numbers.
pub(crate) const PIXELS: usize = 64;
/// The images that a network learns from; the others are for the test.
pub(crate) const LEARNT: usize = 1437;
/// Images of a step.
pub(crate) const BATCH: usize = 64;

/// Images and the digits that they show.
pub(crate) struct Digits {
    pub(crate) images: Vec<f32>,
    pub(crate) digits: Vec<u32>,
}

impl Digits {
    /// All of them, in an order that a seed decides.
    pub(crate) fn read(seed: u64) -> Self {
        let lines: Vec<Vec<u32>> = include_str!("digits.csv")
            .lines()
            .map(|line| line.split(',').map(|number| number.parse().expect("a file of numbers")).collect())
            .collect();
        let order = shuffled(lines.len(), seed);
        let (mut images, mut digits) = (Vec::new(), Vec::new());
        for line in order.into_iter().map(|number| &lines[number as usize]) {
            images.extend(line[..PIXELS].iter().map(|&number| number as f32 / 16.0));
            digits.push(line[PIXELS]);
        }
        Self { images, digits }
    }
}

/// Which network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Net {
    /// Two layers.
    Mlp,
    /// Two convolutions and a layer.
    Conv,
}

impl Net {
    /// The network with parameters of the device's random numbers.
    pub(crate) fn make(self, device: &Device) -> Result<Sequential> {
        Ok(match self {
            Self::Mlp => Sequential::new()
                .with(Flatten)
                .with(Linear::new(PIXELS, 256, device)?)
                .with(Activation::Relu)
                .with(Dropout::new(0.4))
                .with(Linear::new(256, 10, device)?),
            Self::Conv => Sequential::new()
                .with(Conv2d::new(1, 16, 3, device)?.padding(1))
                .with(Activation::Relu)
                .with(Conv2d::new(16, 32, 3, device)?.stride(2).padding(1))
                .with(Activation::Relu)
                .with(Flatten)
                .with(Dropout::new(0.4))
                .with(Linear::new(32 * 16, 10, device)?),
        })
    }
}

/// A network while it learns.
pub(crate) struct Training {
    net: Sequential,
    optimizer: Optimizer<Adam>,
    scale: Option<LossScale>,
    schedule: Schedule,
    dtype: DType,
    learnt: (Tensor, Tensor),
    test: (Tensor, Tensor),
    seed: u64,
    step: u64,
}

impl Training {
    /// A network that will see all images `epochs` times. In `f16` images and results are `f16`, parameters `f32`.
    pub(crate) fn new(net: Net, dtype: DType, epochs: u64, seed: u64, device: &Device) -> Result<Self> {
        device.set_seed(seed);
        let Digits { images, digits } = Digits::read(seed);
        let part = |from: usize, to: usize| -> Result<(Tensor, Tensor)> {
            let shape = [to - from, 1, 8, 8];
            let images = Tensor::from_slice(&images[from * PIXELS..to * PIXELS], shape, device)?.to_dtype(dtype)?;
            images.eval()?;
            Ok((images, Tensor::from_slice(&digits[from..to], to - from, device)?))
        };
        let (learnt, test) = (part(0, LEARNT)?, part(LEARNT, digits.len())?);
        let net = net.make(device)?;
        let optimizer = Optimizer::new(Adam::new().decoupled_weight_decay(0.01), &net)?;
        let steps = epochs * Self::steps_per_epoch();
        let schedule = Schedule::cosine(0.01, 0.0, steps).warm_up(20);
        let scale = (dtype == DType::F16).then(|| LossScale::new().initial(1024.0));
        Ok(Self { net, optimizer, scale, schedule, dtype, learnt, test, seed, step: 0 })
    }

    /// Steps in which it sees all images once. A rest that is less than a step's is left to the next time.
    pub(crate) fn steps_per_epoch() -> u64 {
        (LEARNT / BATCH) as u64
    }

    /// Sees all images once, in another order each time. Returns the mean of the losses.
    pub(crate) fn epoch(&mut self) -> Result<f32> {
        let steps = Self::steps_per_epoch();
        let order = shuffled(LEARNT, self.seed ^ (self.step + 1).wrapping_mul(0x9e37_79b9));
        let mut losses = Vec::new();
        for batch in order.chunks_exact(BATCH) {
            let chosen = Tensor::from_slice(batch, BATCH, self.learnt.0.device())?;
            let (images, digits) = (self.learnt.0.index_select(0, &chosen)?, self.learnt.1.index_select(0, &chosen)?);
            let loss = cross_entropy(&self.net.forward(&images, &Mode::training(self.step))?, &digits)?;
            let rate = self.schedule.learning_rate(self.step);
            match &mut self.scale {
                None => {
                    loss.backward()?;
                    self.optimizer.step(rate)?;
                }
                Some(scale) => {
                    scale.scaled(&loss)?.backward()?;
                    scale.step(&mut self.optimizer, rate)?;
                }
            }
            // Read at the end of the epoch: nothing waits for it here.
            losses.push(loss.detach());
            self.step += 1;
        }
        Ok(Tensor::stack(&losses, 0)?.sum_all()?.to_scalar::<f32>()? / steps as f32)
    }

    /// The share of the images of the test whose digit it finds.
    pub(crate) fn accuracy(&self) -> Result<f32> {
        let (images, digits) = &self.test;
        let scores = no_grad(|| self.net.forward(&images.to_dtype(self.dtype)?, &Mode::inference()))?;
        scores.argmax(1)?.eq(digits)?.to_dtype(DType::F32)?.mean_all()?.to_scalar()
    }
}

/// The numbers below `count` in an order that a seed decides.
pub(crate) fn shuffled(count: usize, seed: u64) -> Vec<u32> {
    let mut state = seed;
    let mut random = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    for end in (1..count).rev() {
        numbers.swap(end, (random() % (end as u64 + 1)) as usize);
    }
    numbers
}
