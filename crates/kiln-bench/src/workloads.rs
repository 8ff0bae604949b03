//! The table of workloads.

use crate::{ElementType, Op};

/// A row of the table.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Name, such as `matmul-1024`.
    pub id: &'static str,
    /// The computed op.
    pub op: Op,
    /// Minimum speedup over the best peer, for `f32` and for `f16`.
    targets: [f64; 2],
}

impl Workload {
    /// Returns the minimum speedup over the best peer.
    pub fn target(&self, dtype: ElementType) -> f64 {
        match dtype {
            ElementType::F32 => self.targets[0],
            ElementType::F16 => self.targets[1],
        }
    }
}

const M: usize = 1 << 20;

const fn workload(id: &'static str, op: Op, targets: [f64; 2]) -> Workload {
    Workload { id, op, targets }
}

const fn square(id: &'static str, n: usize) -> Workload {
    workload(id, Op::Matmul { m: n, k: n, n }, [1.0, 1.0])
}

/// All workloads, smaller ones of a kind first.
static WORKLOADS: [Workload; 33] = [
    square("matmul-128", 128),
    square("matmul-256", 256),
    square("matmul-512", 512),
    square("matmul-1024", 1024),
    square("matmul-2048", 2048),
    workload("linear-gelu-128x384x1536", Op::LinearGelu { m: 128, k: 384, n: 1536 }, [1.1, 1.1]),
    workload("linear-gelu-128x1536x384", Op::LinearGelu { m: 128, k: 1536, n: 384 }, [1.1, 1.1]),
    workload("row-576x1536", Op::Matmul { m: 1, k: 576, n: 1536 }, [1.0, 1.5]),
    workload("add-1m", Op::Add { len: M }, [1.0, 1.0]),
    workload("add-16m", Op::Add { len: 16 * M }, [1.0, 1.0]),
    workload("mul-add-relu-1m", Op::MulAddRelu { len: M }, [1.0, 1.0]),
    workload("mul-add-relu-16m", Op::MulAddRelu { len: 16 * M }, [1.0, 1.0]),
    workload("chain8-1m", Op::Chain8 { len: M }, [1.2, 2.0]),
    workload("chain8-16m", Op::Chain8 { len: 16 * M }, [1.2, 2.0]),
    workload("gelu-1m", Op::Gelu { len: M }, [1.0, 2.0]),
    workload("gelu-16m", Op::Gelu { len: 16 * M }, [1.0, 2.0]),
    workload("sum-1m", Op::Sum { len: M }, [1.0, 1.0]),
    workload("sum-16m", Op::Sum { len: 16 * M }, [1.0, 1.0]),
    workload("row-sums-4096x1024", Op::RowSums { rows: 4096, columns: 1024 }, [1.0, 1.0]),
    workload("softmax-1024", Op::Softmax { rows: 1024, columns: 1024 }, [1.0, 1.5]),
    workload("layer-norm-1024", Op::LayerNorm { rows: 1024, columns: 1024 }, [1.0, 1.5]),
    workload("cumsum-1024", Op::Cumsum { rows: 1024, columns: 1024 }, [1.0, 1.0]),
    workload("cumsum-1m", Op::Cumsum { rows: 1, columns: M }, [1.0, 1.0]),
    workload("sort-1024", Op::Sort { rows: 1024, columns: 1024 }, [1.0, 1.0]),
    workload("sort-1m", Op::Sort { rows: 1, columns: M }, [1.0, 1.0]),
    workload("topk-50-of-32x32768", Op::Topk { rows: 32, columns: 32_768, k: 50 }, [1.0, 1.0]),
    workload("max-pool-64x112", Op::MaxPool { planes: 64, size: 112 }, [1.0, 1.0]),
    workload("attention-512", Op::Attention { heads: 8, len: 512, width: 64 }, [1.2, 1.2]),
    workload("attention-2048", Op::Attention { heads: 8, len: 2048, width: 64 }, [1.2, 1.2]),
    workload("tiny-chain", Op::TinyChain { chains: 5, steps: 2000, len: 16 }, [1.0, 1.0]),
    workload("tiny-independent", Op::TinyIndependent { count: 10_000, len: 16 }, [1.0, 1.0]),
    workload("mlp-1x64x64", Op::Mlp { batch: 1, width: 64 }, [1.0, 1.0]),
    workload("mlp-64x64x64", Op::Mlp { batch: 64, width: 64 }, [1.0, 1.0]),
];

/// Returns all workloads, smaller ones of a kind first.
///
/// See the [crate documentation](crate) for an example.
pub fn workloads() -> &'static [Workload] {
    &WORKLOADS
}

/// Returns the workload with this name.
///
/// See the [crate documentation](crate) for an example.
pub fn find(id: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.id == id)
}
