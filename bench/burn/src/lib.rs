//! The workloads in burn, on any of its devices. Shared by the CPU and the GPU benchmark.

use burn::tensor::ops::{AttentionModuleOptions, MaxPoolOptions};
use burn::tensor::{DType, Device, Tensor, TensorData, activation, module};
use kiln_bench::{ElementType, Fault, Op, PreparedWorkload};

/// Prepares a workload on a device of burn, from the elements of its inputs.
pub fn prepare(op: &Op, dtype: ElementType, data: &[Vec<f32>], device: &Device) -> PreparedWorkload {
    let inputs = Inputs { op, dtype, data, device };
    let device = device.clone();
    match *op {
        Op::Matmul { .. } => {
            let (a, b) = (inputs.tensor::<2>(0), inputs.tensor::<2>(1));
            prepared(device, move || vec![a.clone().matmul(b.clone())])
        }
        Op::LinearGelu { .. } => {
            let (x, w, b) = (inputs.tensor::<2>(0), inputs.tensor::<2>(1), inputs.row(2));
            prepared(device, move || vec![activation::gelu_approximate(x.clone().matmul(w.clone()) + b.clone())])
        }
        Op::Add { .. } => {
            let (a, b) = (inputs.tensor::<1>(0), inputs.tensor::<1>(1));
            prepared(device, move || vec![a.clone() + b.clone()])
        }
        Op::MulAddRelu { .. } => {
            let [a, b, c] = [0, 1, 2].map(|input| inputs.tensor::<1>(input));
            prepared(device, move || vec![activation::relu(a.clone() * b.clone() + c.clone())])
        }
        Op::Chain8 { .. } => {
            let (a, b) = (inputs.tensor::<1>(0), inputs.tensor::<1>(1));
            prepared(device, move || vec![chain(a.clone(), b.clone())])
        }
        Op::Gelu { .. } => {
            let x = inputs.tensor::<1>(0);
            prepared(device, move || vec![activation::gelu_approximate(x.clone())])
        }
        Op::Sum { .. } => {
            let x = inputs.tensor::<1>(0);
            prepared(device, move || vec![x.clone().sum()])
        }
        Op::RowSums { .. } => {
            let x = inputs.tensor::<2>(0);
            prepared(device, move || vec![x.clone().sum_dim(1)])
        }
        Op::Softmax { .. } => {
            let x = inputs.tensor::<2>(0);
            prepared(device, move || vec![activation::softmax(x.clone(), 1)])
        }
        Op::Cumsum { .. } => {
            let x = inputs.tensor::<2>(0);
            prepared(device, move || vec![x.clone().cumsum(1)])
        }
        Op::Sort { .. } => {
            let x = inputs.tensor::<2>(0);
            prepared(device, move || vec![x.clone().sort(1)])
        }
        Op::Topk { k, .. } => {
            let x = inputs.tensor::<2>(0);
            prepared(device, move || vec![x.clone().topk(k, 1)])
        }
        Op::MaxPool { .. } => {
            let x = inputs.tensor::<4>(0);
            let options = MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding([1, 1]);
            prepared(device, move || vec![module::max_pool2d(x.clone(), options.clone())])
        }
        Op::LayerNorm { .. } => layer_norm(&inputs, device),
        Op::Attention { .. } => {
            let [q, k, v] = [0, 1, 2].map(|input| inputs.tensor::<4>(input));
            let options = AttentionModuleOptions::default;
            prepared(device, move || vec![module::attention(q.clone(), k.clone(), v.clone(), None, None, options())])
        }
        Op::TinyChain { chains, steps, .. } => {
            let y = inputs.tensor::<1>(0);
            let chain = move |_| (0..steps).fold(y.zeros_like(), |x, _| x + y.clone());
            prepared(device, move || (0..chains).map(&chain).collect())
        }
        Op::TinyIndependent { len, .. } => {
            let b = inputs.tensor::<1>(1);
            let singles: Vec<Tensor<1>> = data[0].chunks(len).map(|row| inputs.of(row, [len])).collect();
            prepared(device, move || singles.iter().map(|a| a.clone() + b.clone()).collect())
        }
        Op::Mlp { .. } => {
            let [x, w1, w2] = [0, 1, 3].map(|input| inputs.tensor::<2>(input));
            let (b1, b2) = (inputs.row(2), inputs.row(4));
            prepared(device, move || {
                let hidden = activation::relu(x.clone().matmul(w1.clone()) + b1.clone());
                vec![hidden.matmul(w2.clone()) + b2.clone()]
            })
        }
    }
}

fn chain(a: Tensor<1>, b: Tensor<1>) -> Tensor<1> {
    ((a.clone() * b.clone() + a.clone()) * 0.5 - b).abs().max_pair(a).clamp_max(0.75).neg()
}

/// Like burn's own module: `f16` is widened to `f32` for the sums.
fn layer_norm(inputs: &Inputs<'_>, device: Device) -> PreparedWorkload {
    let (x, w, b) = (inputs.tensor::<2>(0), inputs.tensor::<1>(1), inputs.tensor::<1>(2));
    let eps = f64::from(Op::EPS);
    match inputs.dtype {
        ElementType::F32 => {
            prepared(device, move || vec![module::layer_norm(x.clone(), w.clone(), Some(b.clone()), eps)])
        }
        ElementType::F16 => prepared(device, move || {
            let [w, b] = [&w, &b].map(|row| row.clone().cast(DType::F32));
            vec![module::layer_norm(x.clone().cast(DType::F32), w, Some(b), eps).cast(DType::F16)]
        }),
    }
}

struct Inputs<'a> {
    op: &'a Op,
    dtype: ElementType,
    data: &'a [Vec<f32>],
    device: &'a Device,
}

impl Inputs<'_> {
    fn tensor<const D: usize>(&self, input: usize) -> Tensor<D> {
        let shape = &self.op.inputs()[input].shape;
        self.of(&self.data[input], std::array::from_fn(|axis| shape[axis]))
    }

    /// Returns a bias with a leading axis, along which it broadcasts.
    fn row(&self, input: usize) -> Tensor<2> {
        self.of(&self.data[input], [1, self.data[input].len()])
    }

    fn of<const D: usize>(&self, elements: &[f32], shape: [usize; D]) -> Tensor<D> {
        let dtype = match self.dtype {
            ElementType::F32 => DType::F32,
            ElementType::F16 => DType::F16,
        };
        Tensor::from_data(TensorData::new(elements.to_vec(), shape), (self.device, dtype))
    }
}

/// Waits for the results: a GPU is still computing when the calls return.
fn prepared<const D: usize>(device: Device, compute: impl Fn() -> Vec<Tensor<D>> + 'static) -> PreparedWorkload {
    let compute = move || {
        let results = compute();
        device.sync().map_err(|error| format!("{error:?}"))?;
        Ok(results)
    };
    PreparedWorkload::new(compute, read)
}

fn read<const D: usize>(result: &Tensor<D>) -> Result<Vec<f32>, Fault> {
    let data = result.clone().into_data().convert::<f32>();
    data.try_to_vec::<f32>().map_err(|error| format!("{error:?}").into())
}
