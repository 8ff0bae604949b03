//! rten: its operators that can be called without a model, with its thread pool.

use super::{Prepared, Task, Unavailable};
use kiln_bench::{ElementType, Fault, Op, PreparedWorkload};
use rten::{FloatOperators, Operators};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;

pub(super) fn prepare(task: &Task<'_>) -> Prepared {
    if task.dtype == ElementType::F16 {
        return Err(Unavailable::Unsupported("it has no f16"));
    }
    let pairs = task.op.inputs().into_iter().zip(task.data);
    let inputs: Vec<Tensor> = pairs.map(|(input, data)| Tensor::from_data(&input.shape[..], data.clone())).collect();
    let compute: fn(&[Tensor]) -> Result<Tensor, Fault> = match task.op {
        Op::Matmul { .. } => |inputs| Ok(inputs[0].matmul(inputs[1].view())?),
        Op::Sum { .. } => |inputs| Ok(inputs[0].reduce_sum(None, false)?),
        Op::RowSums { .. } => |inputs| Ok(inputs[0].reduce_sum(Some(&[1]), false)?),
        Op::Softmax { .. } => |inputs| Ok(inputs[0].softmax(1)?),
        _ => return Err(Unavailable::Unsupported("only available in models")),
    };
    Ok(PreparedWorkload::new(move || Ok(vec![compute(&inputs)?]), |result| Ok(result.to_vec())))
}
