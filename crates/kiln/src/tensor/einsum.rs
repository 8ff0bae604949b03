//! Einstein summation.

use super::Tensor;
use super::check::{self, Within, invalid, mismatch, names};
use crate::{Result, Shape};
use std::borrow::Borrow;
use std::collections::BTreeMap;

impl Tensor {
    /// Evaluates an Einstein summation: the axes of each tensor as letters, then `->` and the letters of the result.
    /// Axes with the same letter are matched; letters missing from the result are summed over. A letter repeated in
    /// one tensor takes its diagonal. Without `->` the result has the letters that occur exactly once, in
    /// alphabetical order.
    ///
    /// The result has the dtype of the tensors. Tensors are contracted pairwise from left to right, as matrix
    /// multiplications in any axis order.
    ///
    /// ```
    /// # fn main() -> kiln::Result<()> {
    /// # let device = kiln::Device::cpu()?;
    /// use kiln::Tensor;
    ///
    /// let a = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], (2, 2), &device)?;
    /// assert_eq!(Tensor::einsum("ij,kj->ik", &[&a, &a])?.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
    /// assert_eq!(Tensor::einsum("ii", &[&a])?.to_scalar::<f32>()?, 5.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns `InvalidArgument` with the position if the equation cannot be parsed, `ShapeMismatch` if axes with the
    /// same letter differ in length, and the errors of [`matmul`](Self::matmul).
    pub fn einsum<T: Borrow<Self>>(equation: &str, tensors: &[T]) -> Result<Self> {
        let tensors: Vec<&Self> = tensors.iter().map(Borrow::borrow).collect();
        sum_of_products(equation, &tensors).within("einsum")
    }
}

fn sum_of_products(equation: &str, tensors: &[&Tensor]) -> Result<Tensor> {
    check::same_device("einsum", tensors)?;
    check::same_dtype("einsum", tensors)?;
    let Equation { inputs, output } = Equation::parse(equation, tensors)?;
    let mut parts = tensors.iter().zip(inputs).map(|(tensor, letters)| Named::new(tensor, letters));
    let Some(first) = parts.next() else {
        return Err(invalid(format!("einsum expected at least one tensor for `{equation}`, found none")));
    };
    let mut rest: Vec<Named> = parts.collect::<Result<_>>()?;
    let mut result = first?;
    while !rest.is_empty() {
        let next = rest.remove(0);
        // Sum over a letter as soon as neither a later tensor nor the result needs it.
        let needed: Vec<char> =
            output.iter().copied().chain(rest.iter().flat_map(|part| part.letters.clone())).collect();
        result = result.times(next, &needed)?;
    }
    result.sum_others(&output)?.ordered(&output)
}

/// A parsed equation that matches its tensors.
struct Equation {
    inputs: Vec<Vec<char>>,
    output: Vec<char>,
}

impl Equation {
    fn parse(equation: &str, tensors: &[&Tensor]) -> Result<Self> {
        let compact: String = equation.chars().filter(|letter| !letter.is_whitespace()).collect();
        let (left, right) = match compact.split_once("->") {
            Some((left, right)) => (left.to_string(), Some(right.to_string())),
            None => (compact, None),
        };
        let inputs: Vec<Vec<char>> = left.split(',').map(|part| part.chars().collect()).collect();
        let every = inputs.iter().flatten().chain(&[]).copied().chain(right.iter().flat_map(|text| text.chars()));
        for letter in every {
            if !letter.is_ascii_alphabetic() {
                return Err(invalid(format!(
                    "einsum expected letters, `,` and `->`, found `{letter}` in `{equation}`"
                )));
            }
        }
        if inputs.len() != tensors.len() {
            let (wanted, found) = (inputs.len(), tensors.len());
            return Err(invalid(format!("einsum expected {wanted} tensors for `{equation}`, found {found}")));
        }
        let mut lengths: BTreeMap<char, usize> = BTreeMap::new();
        for (letters, tensor) in inputs.iter().zip(tensors) {
            let text: String = letters.iter().collect();
            if letters.len() != tensor.rank() {
                let found = check::Name(tensor);
                return Err(mismatch(format!(
                    "einsum expected a tensor with the axes `{text}` of `{equation}`, found {found}"
                )));
            }
            for (&letter, &length) in letters.iter().zip(tensor.shape().iter()) {
                if *lengths.entry(letter).or_insert(length) != length {
                    let (one, all) = (lengths[&letter], names(tensors));
                    let message = format!(
                        "einsum expected one length for `{letter}` of `{equation}`, found {one} and {length} in {all}"
                    );
                    return Err(mismatch(message));
                }
            }
        }
        let once = |letter: &&char| inputs.iter().flatten().filter(|other| other == letter).count() == 1;
        let output: Vec<char> = match right {
            Some(right) => right.chars().collect(),
            // As in NumPy, an implicit result has the letters that occur once, in alphabetical order; the map is
            // sorted.
            None => lengths.keys().filter(once).copied().collect(),
        };
        for (place, letter) in output.iter().enumerate() {
            if !lengths.contains_key(letter) || output[..place].contains(letter) {
                let message = format!(
                    "einsum expected each letter of the result once and in a tensor, found `{letter}` in `{equation}`"
                );
                return Err(invalid(message));
            }
        }
        Ok(Self { inputs, output })
    }
}

/// A tensor with a letter for each axis.
struct Named {
    tensor: Tensor,
    letters: Vec<char>,
}

impl Named {
    /// Creates a named tensor, with the diagonal of axes that have the same letter.
    fn new(tensor: &Tensor, letters: Vec<char>) -> Result<Self> {
        let mut named = Self { tensor: tensor.clone(), letters };
        while let Some((one, other)) = named.repeated() {
            let (rows, rank) = (named.tensor.shape()[one], named.tensor.rank());
            // Zero the elements off the diagonal, so that a sum over one of the two axes extracts it.
            let mut shape = vec![1; rank];
            (shape[one], shape[other]) = (rows, rows);
            let eye = Tensor::eye(rows, crate::DType::U8, tensor.device())?.reshape(shape)?;
            let masked = eye.where_(&named.tensor, &named.tensor.like(0.0)?)?;
            named.tensor = masked.sum(other)?.to_dtype(tensor.dtype())?;
            named.letters.remove(other);
        }
        Ok(named)
    }

    fn repeated(&self) -> Option<(usize, usize)> {
        let at = |place: usize| self.letters[place + 1..].iter().position(|letter| *letter == self.letters[place]);
        (0..self.letters.len()).find_map(|place| at(place).map(|after| (place, place + 1 + after)))
    }

    /// Sums over all axes except these.
    fn sum_others(self, kept: &[char]) -> Result<Self> {
        let gone: Vec<usize> = (0..self.letters.len()).filter(|&axis| !kept.contains(&self.letters[axis])).collect();
        if gone.is_empty() {
            return Ok(self);
        }
        let summed = self.tensor.sum_keepdim(&gone)?.without_axes(&gone.iter().copied().collect())?;
        // Sums of bytes are widened; every term here keeps the dtype of the tensors.
        let summed = summed.to_dtype(self.tensor.dtype())?;
        let letters = self.letters.into_iter().filter(|letter| kept.contains(letter)).collect();
        Ok(Self { tensor: summed, letters })
    }

    /// Returns the tensor with its axes in this order.
    fn ordered(self, letters: &[char]) -> Result<Tensor> {
        let place = |letter: &char| self.letters.iter().position(|own| own == letter).unwrap_or(0);
        self.tensor.permute(letters.iter().map(place).collect::<Vec<_>>())
    }

    /// Multiplies by another tensor, and sums over shared letters that are no longer needed.
    fn times(self, other: Self, needed: &[char]) -> Result<Self> {
        let of_both: Vec<char> = self.letters.iter().copied().filter(|letter| other.letters.contains(letter)).collect();
        // A letter of only one tensor that nothing else needs is summed first, which makes the product smaller.
        let own: Vec<char> = needed.iter().copied().chain(of_both.iter().copied()).collect();
        let (one, other) = (self.sum_others(&own)?, other.sum_others(&own)?);
        // Each letter has one role in a batched matmul: of both tensors and still needed (batch), of both and not
        // needed (contracted), of one only (rows or columns).
        let (batch, inner): (Vec<char>, Vec<char>) = of_both.into_iter().partition(|letter| needed.contains(letter));
        let free = |part: &Self, shared: &Self| -> Vec<char> {
            part.letters.iter().copied().filter(|letter| !shared.letters.contains(letter)).collect()
        };
        let (rows, columns) = (free(&one, &other), free(&other, &one));
        let lengths = |part: &Self, letters: &[char]| -> Vec<usize> {
            let place = |letter: &char| part.letters.iter().position(|own| own == letter).unwrap_or(0);
            letters.iter().map(|letter| part.tensor.shape()[place(letter)]).collect()
        };
        let (batch_lengths, row_lengths) = (lengths(&one, &batch), lengths(&one, &rows));
        let (inner_length, column_lengths) = (lengths(&one, &inner).iter().product(), lengths(&other, &columns));
        let (m, n): (usize, usize) = (row_lengths.iter().product(), column_lengths.iter().product());
        let shape =
            |rows: usize, columns: usize| -> Shape { batch_lengths.iter().copied().chain([rows, columns]).collect() };
        let letters = [&batch[..], &rows, &columns].concat();
        let left = one.ordered(&[&batch[..], &rows, &inner].concat())?.reshape(shape(m, inner_length))?;
        let right = other.ordered(&[&batch[..], &inner, &columns].concat())?.reshape(shape(inner_length, n))?;
        // Without a contracted letter the product is elementwise, which every dtype supports.
        let product = if inner.is_empty() { left.mul(&right)? } else { left.matmul(&right)? };
        let shape: Shape = [batch_lengths, row_lengths, column_lengths].concat().into();
        Ok(Self { tensor: product.reshape(shape)?, letters })
    }
}
