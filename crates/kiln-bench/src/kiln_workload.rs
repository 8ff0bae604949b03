//! Kiln's implementation of each workload, as a user would write it.

use crate::{ElementType, Op, PreparedWorkload};
use kiln::nn::{AttentionOptions, PoolWindow};
use kiln::{DType, Device, Result, Status, Tensor};

/// A workload on a Kiln device, with its inputs uploaded.
///
/// See the [crate documentation](crate) for an example.
#[derive(Debug)]
pub struct KilnWorkload {
    op: Op,
    inputs: Vec<Tensor>,
    /// The tensors `a_i` of [`Op::TinyIndependent`].
    singles: Vec<Tensor>,
}

impl KilnWorkload {
    /// Uploads the inputs to the device.
    ///
    /// # Errors
    /// Returns the errors of [`Tensor::from_slice`].
    pub fn new(op: &Op, dtype: ElementType, device: &Device) -> Result<Self> {
        Self::with_data(op, dtype, &op.data(dtype), device)
    }

    /// Like [`new`](Self::new), but takes the elements of [`Op::data`].
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_data(op: &Op, dtype: ElementType, data: &[Vec<f32>], device: &Device) -> Result<Self> {
        let pairs = || op.inputs().into_iter().zip(data);
        let inputs = pairs().map(|(input, elements)| tensor(elements, &input.shape, dtype, device));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let singles = match *op {
            // One tensor each, created here so that creating them is not timed.
            Op::TinyIndependent { len, .. } => {
                data[0].chunks(len).map(|elements| tensor(elements, &[len], dtype, device)).collect::<Result<_>>()?
            }
            _ => Vec::new(),
        };
        Ok(Self { op: *op, inputs, singles })
    }

    /// Rebuilds the expression, computes it, waits for it and drops the result.
    ///
    /// # Errors
    /// Returns the errors of the ops and of [`Tensor::eval`].
    pub fn run(&self) -> Result<()> {
        self.computed().map(drop)
    }

    /// Rebuilds the expression and computes it, or submits it to the device without waiting.
    ///
    /// # Errors
    /// Returns the errors of the ops and of [`Tensor::eval`].
    pub fn compute(&self) -> Result<Vec<Tensor>> {
        let results = self.expression()?;
        match &results[..] {
            [result] => result.eval()?,
            // All results of a workload are one evaluation, so that small ops can share a plan.
            several => Tensor::eval_all(&several.iter().collect::<Vec<_>>())?,
        }
        Ok(results)
    }

    /// Returns the concatenated elements of the results, as `f32`.
    ///
    /// # Errors
    /// Returns an error if a result cannot be read.
    pub fn read(results: &[Tensor]) -> Result<Vec<f32>> {
        Ok(results.iter().map(elements).collect::<Result<Vec<_>>>()?.concat())
    }

    /// Computes and returns the concatenated elements of the results, as `f32`.
    ///
    /// # Errors
    /// As [`run`](Self::run) and [`read`](Self::read).
    pub fn output(&self) -> Result<Vec<f32>> {
        Self::read(&self.computed()?)
    }

    /// Converts to the form that all libraries share.
    pub fn into_prepared(self) -> PreparedWorkload {
        PreparedWorkload::new(move || Ok(self.computed()?), |result| Ok(elements(result)?))
    }

    /// Returns the expression, not yet computed, for [`Tensor::explain`].
    ///
    /// # Errors
    /// Returns the errors of the ops.
    pub fn expression(&self) -> Result<Vec<Tensor>> {
        let inputs: Vec<&Tensor> = self.inputs.iter().collect();
        Ok(match (self.op, &inputs[..]) {
            (Op::TinyIndependent { .. }, [_, b]) => {
                self.singles.iter().map(|single| single.add(*b)).collect::<Result<_>>()?
            }
            (Op::TinyChain { chains, steps, len }, [y]) => {
                let zeros = Tensor::zeros(len, y.dtype(), y.device())?;
                (0..chains).map(|_| (0..steps).try_fold(zeros.clone(), |x, _| x.add(*y))).collect::<Result<_>>()?
            }
            _ => vec![self.single(&inputs)?],
        })
    }

    fn computed(&self) -> Result<Vec<Tensor>> {
        let results = self.compute()?;
        // The CPU device computes synchronously; a GPU does not.
        if let Some(result) = results.last()
            && result.status() == Status::Submitted
        {
            result.device().synchronize()?;
        }
        Ok(results)
    }

    /// Builds the workloads with one result.
    fn single(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        match (self.op, inputs) {
            (Op::Matmul { .. }, [a, b]) => a.matmul(b),
            (Op::LinearGelu { .. }, [x, w, b]) => x.matmul(w)?.add(*b)?.gelu(),
            (Op::Add { .. }, [a, b]) => a.add(*b),
            (Op::MulAddRelu { .. }, [a, b, c]) => a.mul(*b)?.add(*c)?.relu(),
            (Op::Chain8 { .. }, [a, b]) => {
                a.mul(*b)?.add(*a)?.mul_scalar(0.5)?.sub(*b)?.abs()?.maximum(*a)?.minimum(0.75)?.neg()
            }
            (Op::Gelu { .. }, [x]) => x.gelu(),
            (Op::Sum { .. }, [x]) => x.sum_all(),
            (Op::RowSums { .. }, [x]) => x.sum(1),
            (Op::Softmax { .. }, [x]) => x.softmax(1),
            (Op::LayerNorm { .. }, [x, w, b]) => x.layer_norm(Some(w), Some(b), Op::EPS),
            (Op::Cumsum { .. }, [x]) => x.cumsum(1),
            (Op::Sort { .. }, [x]) => Ok(x.sort(1, false)?.0),
            (Op::Topk { k, .. }, [x]) => Ok(x.topk(k, 1, true)?.0),
            (Op::MaxPool { .. }, [x]) => x.max_pool2d(PoolWindow::new(3).stride(2).padding(1)),
            (Op::Attention { .. }, [q, k, v]) => Tensor::attention(q, k, v, AttentionOptions::new()),
            (Op::Mlp { .. }, [x, w1, b1, w2, b2]) => x.matmul(w1)?.add(*b1)?.relu()?.matmul(w2)?.add(*b2),
            (op, inputs) => unreachable!("{op:?} has {} inputs", inputs.len()),
        }
    }
}

fn elements(result: &Tensor) -> Result<Vec<f32>> {
    match result.dtype() {
        DType::F16 => Ok(result.to_vec::<kiln::f16>()?.into_iter().map(f32::from).collect()),
        _ => result.to_vec(),
    }
}

fn tensor(elements: &[f32], shape: &[usize], dtype: ElementType, device: &Device) -> Result<Tensor> {
    match dtype {
        ElementType::F32 => Tensor::from_slice(elements, shape, device),
        ElementType::F16 => {
            let halves: Vec<kiln::f16> = elements.iter().map(|element| kiln::f16::from_f32(*element)).collect();
            Tensor::from_slice(&halves, shape, device)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Closeness;
    use crate::op::small_ops;

    #[test]
    fn every_op_is_right_and_has_the_stated_shape() {
        let device = Device::cpu().unwrap();
        for (op, dtype) in small_ops() {
            let kiln = KilnWorkload::new(&op, dtype, &device).unwrap();
            assert_eq!(op.check(dtype, &kiln.output().unwrap()), Ok(Closeness::Close), "{op:?} {dtype}");
            let results = kiln.expression().unwrap();
            let shape: Vec<usize> = results[0].shape().to_vec();
            let wanted = op.output_shape();
            assert_eq!(shape, if results.len() > 1 { &wanted[1..] } else { &wanted[..] }, "{op:?}");
        }
    }
}
