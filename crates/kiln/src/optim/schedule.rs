//! Learning rate schedules.

use std::f64::consts::PI;

/// A learning rate schedule: a pure function of the step number, so that a resumed run continues with the same rates.
///
/// ```
/// use kiln::optim::Schedule;
///
/// assert_eq!(Schedule::step(0.1, 10, 0.5).learning_rate(25), 0.025);
/// assert_eq!(Schedule::exponential(0.1, 0.5).learning_rate(2), 0.025);
/// assert_eq!(Schedule::cosine(0.1, 0.0, 100).learning_rate(50), 0.05);
/// assert_eq!(Schedule::constant(0.1).warm_up(4).learning_rate(0), 0.025);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct Schedule {
    shape: Shape,
    warm_up: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Constant { learning_rate: f64 },
    Step { learning_rate: f64, every: u64, factor: f64 },
    Exponential { learning_rate: f64, factor: f64 },
    Cosine { learning_rate: f64, min_learning_rate: f64, steps: u64 },
}

impl Schedule {
    /// Creates a constant schedule.
    ///
    /// See [`Schedule`] for an example.
    pub fn constant(learning_rate: f64) -> Self {
        Self { shape: Shape::Constant { learning_rate }, warm_up: 0 }
    }

    /// Creates a schedule that multiplies the learning rate by `factor` every `every` steps, at least one.
    ///
    /// See [`Schedule`] for an example.
    pub fn step(learning_rate: f64, every: u64, factor: f64) -> Self {
        Self { shape: Shape::Step { learning_rate, every: every.max(1), factor }, warm_up: 0 }
    }

    /// Creates a schedule that multiplies the learning rate by `factor` after each step.
    ///
    /// See [`Schedule`] for an example.
    pub fn exponential(learning_rate: f64, factor: f64) -> Self {
        Self { shape: Shape::Exponential { learning_rate, factor }, warm_up: 0 }
    }

    /// Creates a cosine decay from `learning_rate` to `min_learning_rate` over `steps` steps, constant afterwards.
    ///
    /// See [`Schedule`] for an example.
    pub fn cosine(learning_rate: f64, min_learning_rate: f64, steps: u64) -> Self {
        Self { shape: Shape::Cosine { learning_rate, min_learning_rate, steps: steps.max(1) }, warm_up: 0 }
    }

    /// Adds a linear warm-up over the first `steps` steps; the schedule starts after it.
    ///
    /// See [`Schedule`] for an example.
    pub fn warm_up(self, steps: u64) -> Self {
        Self { warm_up: steps, ..self }
    }

    /// Returns the learning rate of a step; the first step is 0.
    ///
    /// See [`Schedule`] for an example.
    pub fn learning_rate(&self, step: u64) -> f64 {
        if step < self.warm_up {
            // From 1, so that step 0 already learns and the last step of the warm-up has the full rate.
            return self.after_warm_up(0) * (step + 1) as f64 / self.warm_up as f64;
        }
        self.after_warm_up(step - self.warm_up)
    }

    fn after_warm_up(&self, step: u64) -> f64 {
        match self.shape {
            Shape::Constant { learning_rate } => learning_rate,
            Shape::Step { learning_rate, every, factor } => learning_rate * factor.powf((step / every) as f64),
            Shape::Exponential { learning_rate, factor } => learning_rate * factor.powf(step as f64),
            Shape::Cosine { learning_rate, min_learning_rate, steps } => {
                let progress = step.min(steps) as f64 / steps as f64;
                min_learning_rate + (learning_rate - min_learning_rate) * 0.5 * (1.0 + (PI * progress).cos())
            }
        }
    }
}
