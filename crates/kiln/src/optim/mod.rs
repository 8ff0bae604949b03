//! Optimizers, learning rate schedules and loss scaling.
//!
//! An [`Optimizer`] packs all parameters of a device into one flat tensor; parameters are slices of it. A step is
//! therefore one elementwise kernel for the parameters and one for each state of the rule, however many ops the rule
//! has. Before it, gradients are packed: by one kernel, or for more than 32 parameters (7 on a GPU) by copies.
//! [`Schedule`] sets the learning rate; [`LossScale`] keeps `f16` gradients in range.
//!
//! ```
//! # fn main() -> kiln::Result<()> {
//! # let device = kiln::Device::cpu()?;
//! use kiln::nn::{Linear, Mode, Module, mse};
//! use kiln::optim::{Adam, Optimizer, Schedule};
//! use kiln::{DType, Tensor};
//!
//! let net = Linear::new(1, 1, &device)?;
//! let mut optimizer = Optimizer::new(Adam::new(), &net)?;
//! let schedule = Schedule::cosine(0.1, 0.0, 300).warm_up(10);
//! let x = Tensor::from_slice(&[0.0f32, 1.0, 2.0], (3, 1), &device)?;
//! let y = x.mul_scalar(3.0)?.add_scalar(1.0)?;
//! for step in 0..300 {
//!     let loss = mse(&net.forward(&x, &Mode::training(step))?, &y)?;
//!     loss.backward()?;
//!     optimizer.step(schedule.learning_rate(step))?;
//! }
//! assert!((net.weight.get().to_scalar::<f32>()? - 3.0).abs() < 0.05);
//! # Ok(())
//! # }
//! ```

mod optimizer;
mod rule;
mod scale;
mod schedule;

pub use optimizer::{Optimizer, OptimizerState};
pub use rule::{Adam, Rule, Sgd, Update};
pub use scale::LossScale;
pub use schedule::Schedule;
