//! candle: eager, rayon, gemm for products.

use super::{NotThere, Prepared, Task};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::attention::AttnMask;
use candle_nn::ops;
use kiln_bench::{Number, Op, Ready};

pub(super) fn prepare(task: &Task<'_>) -> Prepared {
    let op = task.op;
    let inputs = inputs(task)?;
    let singles = match op {
        Op::TinyIndependent { count, .. } => (0..count).map(|i| inputs[0].get(i)?.copy()).collect::<Result<_>>()?,
        _ => Vec::new(),
    };
    Ok(Ready::new(move || Ok(compute(op, &inputs, &singles)?), |result| Ok(read(result)?)))
}

/// candle's own kernel for attention on the CPU, which takes its inputs with the axes of heads and places exchanged.
pub(super) fn prepare_flash(task: &Task<'_>) -> Prepared {
    let Op::Attention { width, .. } = task.op else {
        return Err(NotThere::Lacks("it is only attention"));
    };
    let exchanged = |input: &Tensor| input.transpose(1, 2)?.contiguous();
    let inputs = inputs(task)?.iter().map(exchanged).collect::<Result<Vec<_>>>()?;
    let scale = 1.0 / (width as f32).sqrt();
    let number = task.number;
    let compute = move || {
        let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
        let result = match number {
            Number::F32 => candle_nn::attention::flash_attn::<f32>(q, k, v, scale, AttnMask::None, None, None)?,
            Number::F16 => candle_nn::attention::flash_attn::<half::f16>(q, k, v, scale, AttnMask::None, None, None)?,
        };
        Ok(vec![result])
    };
    Ok(Ready::new(compute, |result| Ok(read(result)?)))
}

fn inputs(task: &Task<'_>) -> Result<Vec<Tensor>> {
    let dtype = match task.number {
        Number::F32 => DType::F32,
        Number::F16 => DType::F16,
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
        (Op::LayerNorm { .. }, [x, w, b]) => ops::layer_norm(x, w, b, Op::EPS),
        (Op::Attention { width, .. }, [q, k, v]) => {
            let scores = q.matmul(&k.t()?)?.affine(1.0 / (width as f64).sqrt(), 0.0)?;
            ops::softmax_last_dim(&scores)?.matmul(v)
        }
        (Op::Mlp { .. }, [x, w1, b1, w2, b2]) => x.matmul(w1)?.broadcast_add(b1)?.relu()?.matmul(w2)?.broadcast_add(b2),
        (op, inputs) => unreachable!("{op:?} has {} inputs", inputs.len()),
    }
}
