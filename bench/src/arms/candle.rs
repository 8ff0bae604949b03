//! candle: eager, rayon, gemm for matmul.

use super::{Prepared, Task, Unavailable};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::ops;
use kiln_bench::{ElementType, Op, PreparedWorkload};

pub(super) fn prepare(task: &Task<'_>) -> Prepared {
    let op = task.op;
    if matches!(op, Op::Cumsum { .. } | Op::Topk { .. } | Op::MaxPool { .. }) {
        return Err(Unavailable::Unsupported("its cumsum is a matmul; it has no topk and no padded pooling"));
    }
    let inputs = inputs(task)?;
    let singles = match op {
        Op::TinyIndependent { count, .. } => (0..count).map(|i| inputs[0].get(i)?.copy()).collect::<Result<_>>()?,
        _ => Vec::new(),
    };
    Ok(PreparedWorkload::new(move || Ok(compute(op, &inputs, &singles)?), |result| Ok(read(result)?)))
}

fn inputs(task: &Task<'_>) -> Result<Vec<Tensor>> {
    let dtype = match task.dtype {
        ElementType::F32 => DType::F32,
        ElementType::F16 => DType::F16,
    };
    let pairs = task.op.inputs().into_iter().zip(task.data);
    let tensor = |(input, data): (kiln_bench::Input, &Vec<f32>)| {
        Tensor::from_slice(data, input.shape, &Device::Cpu)?.to_dtype(dtype)
    };
    pairs.map(tensor).collect()
}

fn read(result: &Tensor) -> Result<Vec<f32>> {
    result.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

fn compute(op: Op, inputs: &[Tensor], singles: &[Tensor]) -> Result<Vec<Tensor>> {
    match (op, inputs) {
        (Op::TinyChain { chains, steps, .. }, [y]) => {
            let zeros = y.zeros_like()?;
            (0..chains).map(|_| (0..steps).try_fold(zeros.clone(), |x, _| x + y)).collect()
        }
        (Op::TinyIndependent { .. }, [_, b]) => singles.iter().map(|a| a + b).collect(),
        _ => Ok(vec![single(op, inputs)?]),
    }
}

fn single(op: Op, inputs: &[Tensor]) -> Result<Tensor> {
    match (op, inputs) {
        (Op::Matmul { .. }, [a, b]) => a.matmul(b),
        (Op::LinearGelu { .. }, [x, w, b]) => x.matmul(w)?.broadcast_add(b)?.gelu(),
        (Op::Add { .. }, [a, b]) => a + b,
        (Op::MulAddRelu { .. }, [a, b, c]) => ((a * b)? + c)?.relu(),
        (Op::Chain8 { .. }, [a, b]) => {
            let halved = ((a * b)? + a)?.affine(0.5, 0.0)?;
            (halved - b)?.abs()?.maximum(a)?.minimum(0.75)?.neg()
        }
        (Op::Gelu { .. }, [x]) => x.gelu(),
        (Op::Sum { .. }, [x]) => x.sum_all(),
        (Op::RowSums { .. }, [x]) => x.sum(1),
        (Op::Softmax { .. }, [x]) => ops::softmax_last_dim(x),
        (Op::Sort { .. }, [x]) => Ok(x.sort_last_dim(true)?.0),
        (Op::LayerNorm { .. }, [x, w, b]) => ops::layer_norm(x, w, b, Op::EPS),
        // candle's fused attention for the CPU takes two to ten times as long as this.
        (Op::Attention { width, .. }, [q, k, v]) => {
            let scores = q.matmul(&k.t()?)?.affine(1.0 / (width as f64).sqrt(), 0.0)?;
            ops::softmax_last_dim(&scores)?.matmul(v)
        }
        (Op::Mlp { .. }, [x, w1, b1, w2, b2]) => x.matmul(w1)?.broadcast_add(b1)?.relu()?.matmul(w2)?.broadcast_add(b2),
        (op, inputs) => unreachable!("{op:?} has {} inputs", inputs.len()),
    }
}
