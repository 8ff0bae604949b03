//! The networks of Kiln's example `digits` in Kiln, candle and PyTorch: interleaved training epochs, seconds per epoch and test accuracy.
//!
//! `cargo run --release --manifest-path bench/Cargo.toml --bin digits`. PyTorch runs in the environment of `bench/python/run`, and is
//! skipped if that does not exist.

#[path = "../../../crates/kiln/examples/digits/learn.rs"]
mod learn;

use candle_core::{D, DType as CandleType, Device as CandleDevice, Tensor as CandleTensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Dropout, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use kiln::{DType, Device};
use learn::{BATCH, Digits, LEARNT, Net, PIXELS, Training, shuffled};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

type Fallible<T> = Result<T, Box<dyn Error>>;

const EPOCHS: u64 = 20;
const SEED: u64 = 1;

/// A library that trains the network.
trait Arm {
    fn name(&self) -> &'static str;

    /// Trains one epoch; returns the seconds.
    fn epoch(&mut self) -> Fallible<f64>;

    /// Returns the test accuracy.
    fn accuracy(&mut self) -> Fallible<f64>;
}

struct Kiln(Training);

impl Arm for Kiln {
    fn name(&self) -> &'static str {
        "kiln"
    }

    fn epoch(&mut self) -> Fallible<f64> {
        let start = Instant::now();
        self.0.epoch()?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn accuracy(&mut self) -> Fallible<f64> {
        Ok(f64::from(self.0.accuracy()?))
    }
}

struct Candle {
    layers: Layers,
    optimizer: AdamW,
    images: CandleTensor,
    digits: CandleTensor,
    test: (CandleTensor, CandleTensor),
    step: u64,
}

enum Layers {
    Mlp(Linear, Linear),
    Conv(Conv2d, Conv2d, Linear),
}

impl Layers {
    fn forward(&self, images: &CandleTensor, is_training: bool) -> candle_core::Result<CandleTensor> {
        let dropout = Dropout::new(0.4);
        match self {
            Self::Mlp(first, second) => {
                let hidden = first.forward(&images.flatten_from(1)?)?.relu()?;
                second.forward(&dropout.forward(&hidden, is_training)?)
            }
            Self::Conv(first, second, last) => {
                let seen = second.forward(&first.forward(images)?.relu()?)?.relu()?.flatten_from(1)?;
                last.forward(&dropout.forward(&seen, is_training)?)
            }
        }
    }
}

impl Candle {
    fn new(net: Net) -> Fallible<Self> {
        let (device, variables) = (CandleDevice::Cpu, VarMap::new());
        let builder = VarBuilder::from_varmap(&variables, CandleType::F32, &device);
        let padded = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
        let layers = match net {
            Net::Mlp => Layers::Mlp(
                candle_nn::linear(PIXELS, 256, builder.pp("0"))?,
                candle_nn::linear(256, 10, builder.pp("1"))?,
            ),
            Net::Conv => Layers::Conv(
                candle_nn::conv2d(1, 16, 3, padded, builder.pp("0"))?,
                candle_nn::conv2d(16, 32, 3, Conv2dConfig { stride: 2, ..padded }, builder.pp("1"))?,
                candle_nn::linear(32 * 16, 10, builder.pp("2"))?,
            ),
        };
        let rule = ParamsAdamW { lr: 0.01, weight_decay: 0.01, ..ParamsAdamW::default() };
        let optimizer = AdamW::new(variables.all_vars(), rule)?;
        let Digits { images, digits } = Digits::read(SEED);
        let count = digits.len();
        let images = CandleTensor::from_vec(images, (count, 1, 8, 8), &device)?;
        let digits = CandleTensor::from_vec(digits, count, &device)?;
        let test = (images.narrow(0, LEARNT, count - LEARNT)?, digits.narrow(0, LEARNT, count - LEARNT)?);
        Ok(Self { layers, optimizer, images, digits, test, step: 0 })
    }
}

impl Arm for Candle {
    fn name(&self) -> &'static str {
        "candle"
    }

    fn epoch(&mut self) -> Fallible<f64> {
        let start = Instant::now();
        let order = shuffled(LEARNT, SEED ^ (self.step + 1).wrapping_mul(0x9e37_79b9));
        let steps = EPOCHS * Training::steps_per_epoch();
        let mut losses = Vec::new();
        for batch in order.chunks_exact(BATCH) {
            let chosen = CandleTensor::from_slice(batch, BATCH, &CandleDevice::Cpu)?;
            let (images, digits) = (self.images.index_select(&chosen, 0)?, self.digits.index_select(&chosen, 0)?);
            let loss = candle_nn::loss::cross_entropy(&self.layers.forward(&images, true)?, &digits)?;
            // The same schedule as the other arms.
            let share = self.step.saturating_sub(20).min(steps) as f64 / steps as f64;
            let warm = ((self.step + 1) as f64 / 20.0).min(1.0);
            self.optimizer.set_learning_rate(0.01 * warm * 0.5 * (1.0 + (std::f64::consts::PI * share).cos()));
            self.optimizer.backward_step(&loss)?;
            losses.push(loss);
            self.step += 1;
        }
        CandleTensor::stack(&losses, 0)?.mean_all()?.to_scalar::<f32>()?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn accuracy(&mut self) -> Fallible<f64> {
        let (images, digits) = &self.test;
        let found = self.layers.forward(images, false)?.argmax(D::Minus1)?;
        let right = found.eq(digits)?.to_dtype(CandleType::F32)?.mean_all()?.to_scalar::<f32>()?;
        Ok(f64::from(right))
    }
}

/// PyTorch in a separate process, which trains one epoch per line that it reads.
struct Torch {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Torch {
    fn start(net: Net) -> Fallible<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
        let data = here.join("../../crates/kiln/examples/digits/digits.csv");
        let net = if net == Net::Mlp { "mlp" } else { "conv" };
        let mut child = Command::new(here.join(".venv/bin/python"))
            .arg(here.join("digits.py"))
            .args([net, &EPOCHS.to_string()])
            .arg(data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (requests, answers) = (child.stdin.take().ok_or("no stdin")?, child.stdout.take().ok_or("no stdout")?);
        let mut torch = Self { child, requests, answers: BufReader::new(answers) };
        torch.ask("ready")?;
        Ok(torch)
    }

    fn ask(&mut self, request: &str) -> Fallible<f64> {
        writeln!(self.requests, "{request}")?;
        self.requests.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        line.trim().parse().map_err(|_| format!("expected a number from PyTorch, found {line:?}").into())
    }
}

impl Arm for Torch {
    fn name(&self) -> &'static str {
        "torch"
    }

    fn epoch(&mut self) -> Fallible<f64> {
        self.ask("epoch")
    }

    fn accuracy(&mut self) -> Fallible<f64> {
        self.ask("accuracy")
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // It exits when its input closes; this also ends one that hangs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() -> Fallible<()> {
    let device = Device::cpu()?;
    println!(
        "seconds per epoch of {} images, median (minimum) of {EPOCHS}; test accuracy at the end",
        LEARNT / BATCH * BATCH
    );
    for net in [Net::Mlp, Net::Conv] {
        let mut arms: Vec<Box<dyn Arm>> =
            vec![Box::new(Kiln(Training::new(net, DType::F32, EPOCHS, SEED, &device)?)), Box::new(Candle::new(net)?)];
        match Torch::start(net) {
            Ok(torch) => arms.push(Box::new(torch)),
            Err(error) => println!("PyTorch is skipped: {error}"),
        }
        let mut seconds = vec![Vec::new(); arms.len()];
        for epoch in 0..EPOCHS {
            for number in shuffled(arms.len(), SEED + epoch) {
                seconds[number as usize].push(arms[number as usize].epoch()?);
            }
        }
        let own = median(&mut seconds[0]);
        for (arm, seconds) in arms.iter_mut().zip(&mut seconds) {
            let (median, right) = (median(seconds), arm.accuracy()?);
            println!(
                "{net:?} {:7} {median:.5} ({:.5})  ratio {:5.2}  accuracy {:.2} %",
                arm.name(),
                seconds[0],
                median / own,
                100.0 * right
            );
        }
    }
    Ok(())
}

/// Returns the median and sorts the numbers.
fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    (seconds[(seconds.len() - 1) / 2] + seconds[seconds.len() / 2]) / 2.0
}
