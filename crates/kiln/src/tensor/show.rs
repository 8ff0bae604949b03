//! Formats tensors: shape, dtype, device, and an excerpt of the elements.

use super::{Status, Tensor};
use crate::{DType, Result};
use std::fmt;

/// Maximum number of elements shown at either end of each axis.
const EDGE_ITEMS: usize = 3;
/// Tensors of at most this many elements are shown in full.
const MAX_FULL_ELEMENTS: usize = 64;

impl fmt::Debug for Tensor {
    /// Formats shape, dtype, device and status, and an excerpt of the elements if they are computed. Runs no pending
    /// ops.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = match self.status() {
            Status::Planned => "planned",
            Status::Submitted => "submitted",
            Status::Ready => "ready",
        };
        let (shape, dtype, device) = (self.shape(), self.dtype(), &self.device().info().id);
        write!(f, "Tensor({shape}, {dtype}, {device}, {status})")?;
        match self.status() {
            Status::Ready => self.excerpt().map_or(Ok(()), |excerpt| write!(f, " {excerpt}")),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Tensor {
    /// Formats the elements, abbreviated if there are many, then shape, dtype and device. Runs pending ops; if that
    /// fails, the error is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.excerpt() {
            Ok(excerpt) => writeln!(f, "{excerpt}")?,
            Err(error) => writeln!(f, "<{error}>")?,
        }
        write!(f, "{}, {}, {}", self.shape(), self.dtype(), self.device().info().id)
    }
}

impl Tensor {
    fn excerpt(&self) -> Result<String> {
        if self.elem_count() == 0 {
            return Ok("[]".to_string());
        }
        let mut shown = self.clone();
        let is_cut = self.elem_count() > MAX_FULL_ELEMENTS;
        self.eval()?;
        // Read only the elements that are shown: both ends of each axis.
        for axis in 0..self.rank() {
            let length = self.shape()[axis];
            if is_cut && length > 2 * EDGE_ITEMS {
                shown =
                    Self::cat(&[&shown.slice(axis, ..EDGE_ITEMS)?, &shown.slice(axis, length - EDGE_ITEMS..)?], axis)?;
            }
        }
        let texts: Vec<String> = match self.dtype() {
            DType::F16 | DType::BF16 | DType::F32 => {
                shown.to_dtype(DType::F32)?.to_vec::<f32>()?.iter().map(|&value| number(value.into())).collect()
            }
            DType::F64 => shown.to_vec::<f64>()?.iter().map(|&value| number(value)).collect(),
            DType::Bool => shown.to_vec::<bool>()?.iter().map(bool::to_string).collect(),
            _ => shown.to_vec::<i64>()?.iter().map(i64::to_string).collect(),
        };
        let width = texts.iter().map(String::len).max().unwrap_or(0);
        let mut text = String::new();
        let cut: Vec<bool> = (0..self.rank()).map(|axis| shown.shape()[axis] < self.shape()[axis]).collect();
        write_axis(&mut text, &mut texts.iter(), &shown.shape()[..], &cut, width, 0);
        Ok(text)
    }
}

/// Formats a float with few digits.
fn number(value: f64) -> String {
    // Compare as `f32`, so that a value equal to a limit is within it.
    let size = value.abs() as f32;
    if value == value.trunc() && size < 1e6 {
        format!("{value:.1}")
    } else if value.is_finite() && !(1e-4..1e6).contains(&size) {
        format!("{value:.4e}")
    } else {
        format!("{value:.4}")
    }
}

fn write_axis<'a>(
    text: &mut String,
    numbers: &mut impl Iterator<Item = &'a String>,
    shape: &[usize],
    cut: &[bool],
    width: usize,
    depth: usize,
) {
    let Some((&length, inner)) = shape.split_first() else {
        let number = numbers.next().map_or("", String::as_str);
        text.push_str(&format!("{number:>width$}"));
        return;
    };
    let between = if inner.is_empty() { " ".to_string() } else { format!("\n{}", " ".repeat(depth + 1)) };
    text.push('[');
    for index in 0..length {
        if index > 0 {
            text.push(',');
            text.push_str(&between);
        }
        if cut[0] && index == EDGE_ITEMS {
            text.push_str("...,");
            text.push_str(&between);
        }
        write_axis(text, numbers, inner, &cut[1..], width, depth + 1);
    }
    text.push(']');
}
