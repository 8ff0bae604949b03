//! Recurrent layers: LSTM and GRU.

use super::init::{self, TensorOptions};
use super::{Mode, Module, Parameter, Visitor, linear};
use crate::{Error, ErrorKind, Result, Tensor};

/// Options of [`Lstm`] and [`Gru`] other than sizes.
///
/// ```
/// let options = kiln::nn::RecurrentOptions::new().layers(2).bidirectional().dropout(0.1);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
#[doc(alias = "LSTMConfig")]
#[doc(alias = "GRUConfig")]
pub struct RecurrentOptions {
    layers: usize,
    is_bidirectional: bool,
    has_bias: bool,
    dropout: f32,
}

impl RecurrentOptions {
    /// Creates the defaults: one layer, one direction, biases, no dropout.
    ///
    /// See [`RecurrentOptions`] for an example.
    pub fn new() -> Self {
        Self { layers: 1, is_bidirectional: false, has_bias: true, dropout: 0.0 }
    }

    /// Sets the number of stacked layers.
    ///
    /// See [`RecurrentOptions`] for an example.
    #[doc(alias = "num_layers")]
    pub fn layers(self, layers: usize) -> Self {
        Self { layers, ..self }
    }

    /// Adds a backward direction. The outputs of both directions are concatenated.
    ///
    /// See [`RecurrentOptions`] for an example.
    pub fn bidirectional(self) -> Self {
        Self { is_bidirectional: true, ..self }
    }

    /// Removes the biases.
    ///
    /// See [`RecurrentOptions`] for an example.
    pub fn without_bias(self) -> Self {
        Self { has_bias: false, ..self }
    }

    /// Sets the dropout probability between layers in training.
    ///
    /// See [`RecurrentOptions`] for an example.
    pub fn dropout(self, probability: f32) -> Self {
        Self { dropout: probability, ..self }
    }
}

impl Default for RecurrentOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Long short-term memory over sequences `(batch, length, inputs)`, with PyTorch's gate order: input, forget, cell,
/// output.
///
/// [`forward`](Module::forward) starts from a zero state and returns the outputs `(batch, length, hidden)`, or
/// `2 * hidden` if bidirectional. [`run`](Self::run) takes and returns the state.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Lstm, Mode};
/// use kiln::{DType, Tensor};
///
/// let layer = Lstm::new(3, 4, &device)?;
/// let x = Tensor::ones((2, 5, 3), DType::F32, &device)?;
/// let (outputs, state) = layer.run(&x, None, &Mode::inference())?;
/// assert_eq!((&outputs.shape()[..], &state.h.shape()[..]), (&[2, 5, 4][..], &[1, 2, 4][..]));
/// let (outputs, _) = layer.run(&x, Some(&state), &Mode::inference())?; // goes on
/// assert_eq!(outputs.shape()[..], [2, 5, 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[doc(alias = "LSTM")]
pub struct Lstm(Stack);

/// The state of an [`Lstm`] after a sequence: `(layers * directions, batch, hidden)` each, in PyTorch's order.
///
/// See [`Lstm`] for an example.
#[derive(Clone, Debug)]
pub struct LstmState {
    /// The hidden state: the last outputs.
    pub h: Tensor,
    /// The cell state.
    pub c: Tensor,
}

impl Lstm {
    /// Creates a layer with weights and biases uniform in ±1/√hidden (PyTorch's default).
    ///
    /// See [`Lstm`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for integer dtypes, `OutOfMemory`, and device errors.
    pub fn new(inputs: usize, hidden: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        Self::with_options(inputs, hidden, RecurrentOptions::new(), options)
    }

    /// Creates a layer with options: stacked or bidirectional.
    ///
    /// See [`Lstm`] for an example.
    ///
    /// # Errors
    /// Same as [`new`](Self::new), and `InvalidArgument` if there are no layers.
    pub fn with_options(
        inputs: usize,
        hidden: usize,
        settings: RecurrentOptions,
        options: impl Into<TensorOptions>,
    ) -> Result<Self> {
        Ok(Self(Stack::new("lstm", 4, [inputs, hidden], settings, &options.into())?))
    }

    /// Runs a sequence from `state`, or from zeros, and returns the outputs and the final state.
    ///
    /// See [`Lstm`] for an example.
    ///
    /// # Errors
    /// Returns `ShapeMismatch` if the input or the state has the wrong shape, `InvalidArgument` if dtypes or devices
    /// differ, and device errors.
    #[doc(alias = "seq")]
    pub fn run(&self, input: &Tensor, state: Option<&LstmState>, mode: &Mode) -> Result<(Tensor, LstmState)> {
        let state = state.map(|state| [&state.h, &state.c]);
        let step = |x: &Tensor, h: &Tensor, [_, c]: &[Tensor; 2]| {
            // PyTorch's order of gates, for its weight files: input, forget, cell, output.
            let gates = x.add(h)?.chunk(4, 1)?;
            let (keep, new) = (gates[1].sigmoid()?.mul(c)?, gates[0].sigmoid()?.mul(&gates[2].tanh()?)?);
            let c = keep.add(&new)?;
            Ok([gates[3].sigmoid()?.mul(&c.tanh()?)?, c])
        };
        let (outputs, [h, c]) = self.0.run(input, state, mode, step)?;
        Ok((outputs, LstmState { h, c }))
    }
}

impl Module for Lstm {
    fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor> {
        Ok(self.run(input, None, mode)?.0)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.0.visit(visitor);
    }
}

/// Gated recurrent units over sequences `(batch, length, inputs)`, with PyTorch's gate order: reset, update, new.
///
/// ```
/// # fn main() -> kiln::Result<()> {
/// # let device = kiln::Device::cpu()?;
/// use kiln::nn::{Gru, Mode, Module, RecurrentOptions};
/// use kiln::{DType, Tensor};
///
/// let layer = Gru::with_options(3, 4, RecurrentOptions::new().bidirectional(), &device)?;
/// let x = Tensor::ones((2, 5, 3), DType::F32, &device)?;
/// assert_eq!(layer.forward(&x, &Mode::inference())?.shape()[..], [2, 5, 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[doc(alias = "GRU")]
pub struct Gru(Stack);

impl Gru {
    /// Creates a layer with weights and biases uniform in ±1/√hidden (PyTorch's default).
    ///
    /// See [`Gru`] for an example.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for integer dtypes, `OutOfMemory`, and device errors.
    pub fn new(inputs: usize, hidden: usize, options: impl Into<TensorOptions>) -> Result<Self> {
        Self::with_options(inputs, hidden, RecurrentOptions::new(), options)
    }

    /// Creates a layer with options: stacked or bidirectional.
    ///
    /// See [`Gru`] for an example.
    ///
    /// # Errors
    /// Same as [`new`](Self::new), and `InvalidArgument` if there are no layers.
    pub fn with_options(
        inputs: usize,
        hidden: usize,
        settings: RecurrentOptions,
        options: impl Into<TensorOptions>,
    ) -> Result<Self> {
        Ok(Self(Stack::new("gru", 3, [inputs, hidden], settings, &options.into())?))
    }

    /// Runs a sequence from `state`, or from zeros, and returns the outputs and the final state
    /// `(layers * directions, batch, hidden)`.
    ///
    /// See [`Gru`] for an example.
    ///
    /// # Errors
    /// Same as [`Lstm::run`].
    #[doc(alias = "seq")]
    pub fn run(&self, input: &Tensor, state: Option<&Tensor>, mode: &Mode) -> Result<(Tensor, Tensor)> {
        let step = |x: &Tensor, h: &Tensor, [before]: &[Tensor; 1]| {
            // PyTorch's order of gates: reset, update, new. As there, the reset gate is applied after the product
            // with the weight (and its bias), which differs from the original paper.
            let (x, h) = (x.chunk(3, 1)?, h.chunk(3, 1)?);
            let (reset, update) = (x[0].add(&h[0])?.sigmoid()?, x[1].add(&h[1])?.sigmoid()?);
            let new = x[2].add(&reset.mul(&h[2])?)?.tanh()?;
            // (1 - update) * new + update * before
            Ok([new.add(&update.mul(&before.sub(&new)?)?)?])
        };
        let (outputs, [h]) = self.0.run(input, state.map(|state| [state]), mode, step)?;
        Ok((outputs, h))
    }
}

impl Module for Gru {
    fn forward(&self, input: &Tensor, mode: &Mode) -> Result<Tensor> {
        Ok(self.run(input, None, mode)?.0)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.0.visit(visitor);
    }
}

/// Stacked layers of cells, in one direction or both.
#[derive(Clone, Debug)]
struct Stack {
    name: &'static str,
    /// Layer by layer, the forward direction first.
    cells: Vec<Cell>,
    inputs: usize,
    hidden: usize,
    directions: usize,
    dropout: f32,
}

/// The parameters of one layer and direction. Gates are stacked along axis 0.
#[derive(Clone, Debug)]
struct Cell {
    weight_ih: Parameter,
    weight_hh: Parameter,
    bias_ih: Option<Parameter>,
    bias_hh: Option<Parameter>,
}

impl Stack {
    fn new(
        name: &'static str,
        gates: usize,
        [inputs, hidden]: [usize; 2],
        settings: RecurrentOptions,
        options: &TensorOptions,
    ) -> Result<Self> {
        let RecurrentOptions { layers, is_bidirectional, has_bias, dropout } = settings;
        if layers == 0 || inputs == 0 || hidden == 0 {
            let found = format!("{layers} layers, {inputs} inputs, {hidden} hidden");
            let message = format!("{name} expected at least one layer, one input and one hidden unit, found {found}");
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let directions = if is_bidirectional { 2 } else { 1 };
        let rows = gates * hidden;
        let drawn = |shape: &[usize]| Parameter::new(&init::fan_in_uniform(shape, hidden, options)?);
        let bias = || has_bias.then(|| drawn(&[rows])).transpose();
        let cell = |number: usize| -> Result<Cell> {
            // Layers after the first read the concatenated outputs of both directions.
            let width = if number < directions { inputs } else { directions * hidden };
            let (weight_ih, weight_hh) = (drawn(&[rows, width])?, drawn(&[rows, hidden])?);
            Ok(Cell { weight_ih, weight_hh, bias_ih: bias()?, bias_hh: bias()? })
        };
        let cells = (0..layers * directions).map(cell).collect::<Result<_>>()?;
        Ok(Self { name, cells, inputs, hidden, directions, dropout })
    }

    /// Runs all layers over a sequence. `step` computes the next state from the projections of the current input and
    /// of the last output.
    fn run<const N: usize>(
        &self,
        input: &Tensor,
        state: Option<[&Tensor; N]>,
        mode: &Mode,
        step: impl Fn(&Tensor, &Tensor, &[Tensor; N]) -> Result<[Tensor; N]>,
    ) -> Result<(Tensor, [Tensor; N])> {
        let batch = self.check(input, state.as_ref().map_or(&[], |state| &state[..]))?;
        let zeros = Tensor::zeros((batch, self.hidden), input.dtype(), input.device())?;
        let mut rows = input.clone();
        let mut last: [Vec<Tensor>; N] = std::array::from_fn(|_| Vec::new());
        for (layer, cells) in self.cells.chunks(self.directions).enumerate() {
            if layer > 0 && self.dropout > 0.0 {
                rows = mode.next_seed().map_or_else(|| Ok(rows.clone()), |seed| rows.dropout(self.dropout, seed))?;
            }
            let mut sides = Vec::new();
            for (direction, cell) in cells.iter().enumerate() {
                let number = layer * self.directions + direction;
                let mut first = std::array::from_fn(|_| zeros.clone());
                if let Some(state) = &state {
                    for (first, state) in first.iter_mut().zip(state) {
                        *first = state.select(0, number)?;
                    }
                }
                let (outputs, end) = cell.run(&rows, first, direction == 1, &step)?;
                sides.push(outputs);
                for (last, end) in last.iter_mut().zip(end) {
                    last.push(end);
                }
            }
            rows = if sides.len() == 1 { sides.remove(0) } else { Tensor::cat(&sides, 2)? };
        }
        let mut states = last.into_iter().map(|part| Tensor::stack(&part, 0));
        // `array::from_fn` cannot return early, so errors are collected first.
        let states = states.by_ref().collect::<Result<Vec<_>>>()?;
        Ok((rows, std::array::from_fn(|number| states[number].clone())))
    }

    /// Checks the shapes and returns the batch size.
    fn check(&self, input: &Tensor, state: &[&Tensor]) -> Result<usize> {
        let wrong = |what: String, found: &Tensor| {
            let (name, dtype, shape) = (self.name, found.dtype(), found.shape());
            let device = &found.device().info().id;
            let message = format!("{name} expected {what}, found {dtype} {shape} on {device}");
            Err(Error::new(ErrorKind::ShapeMismatch, message))
        };
        let batch = match &input.shape()[..] {
            [batch, length, width] if *length > 0 && *width == self.inputs => *batch,
            _ => return wrong(format!("(batch, length of at least 1, {})", self.inputs), input),
        };
        let shape = [self.cells.len(), batch, self.hidden];
        match state.iter().find(|state| state.shape()[..] != shape) {
            Some(state) => wrong(format!("a state ({}, {batch}, {})", shape[0], self.hidden), state),
            None => Ok(batch),
        }
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (number, cell) in self.cells.iter().enumerate() {
            let side = if number % self.directions == 1 { "_reverse" } else { "" };
            let name = |what: &str| format!("{what}_l{}{side}", number / self.directions);
            visitor.parameter(&name("weight_ih"), &cell.weight_ih);
            visitor.parameter(&name("weight_hh"), &cell.weight_hh);
            visitor.optional(&name("bias_ih"), cell.bias_ih.as_ref());
            visitor.optional(&name("bias_hh"), cell.bias_hh.as_ref());
        }
    }
}

impl Cell {
    /// Returns the outputs `(batch, length, hidden)` and the final state.
    fn run<const N: usize>(
        &self,
        input: &Tensor,
        mut state: [Tensor; N],
        is_reverse: bool,
        step: impl Fn(&Tensor, &Tensor, &[Tensor; N]) -> Result<[Tensor; N]>,
    ) -> Result<(Tensor, [Tensor; N])> {
        let bias = |bias: &Option<Parameter>| bias.as_ref().map(Parameter::get);
        // One matrix multiplication projects the whole sequence; only the recurrent projection depends on the
        // previous step.
        let from_input = linear::affine(input, &self.weight_ih.get(), bias(&self.bias_ih).as_ref())?;
        let (weight, bias) = (self.weight_hh.get().to_dtype(input.dtype())?, bias(&self.bias_hh));
        let length = input.shape()[1];
        let mut outputs = Vec::with_capacity(length);
        for number in 0..length {
            let at = if is_reverse { length - 1 - number } else { number };
            let from_state = linear::affine(&state[0], &weight, bias.as_ref())?;
            state = step(&from_input.select(1, at)?, &from_state, &state)?;
            outputs.push(state[0].clone());
        }
        // The outputs are in the order of the input, whichever direction the cell runs.
        if is_reverse {
            outputs.reverse();
        }
        Ok((Tensor::stack(&outputs, 1)?, state))
    }
}
