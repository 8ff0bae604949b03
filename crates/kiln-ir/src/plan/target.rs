//! What a plan is made for.

use crate::DType;

/// What a plan is made for: the limits of a device, and whether to fuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Target {
    /// How many operands a kernel reads at most.
    pub max_operands: usize,
    /// How many instructions the programs of a kernel have at most, loads included.
    pub max_instructions: usize,
    /// The dtypes that a kernel with a core stores. What it lacks is stored in the dtype of its class, and converted by a map behind it.
    pub stores: &'static [DType],
    /// Whether ops share kernels. Without, each has its own, to check one way of computing against the other.
    pub fuse: bool,
    /// How many elements become one in one kernel at most, where there are so few results that a device would idle; more are reduced in parts
    /// first.
    pub split_reduce: Option<usize>,
    /// Bytes of the largest tensor that a kernel can read or write.
    pub max_tensor_bytes: u64,
    /// Buffers of inputs start at multiples of this many bytes.
    pub input_alignment_bytes: usize,
    /// Kernels access buffers in groups of this many bytes, the last elements too.
    pub access_bytes: u64,
    /// Whether hand-written kernels run their CPU code, where they have it, instead of WGSL.
    pub runs_host_code: bool,
}

/// `F16`, which not every GPU has as a type, and the dtypes that are whole words.
const GPU_STORES: [DType; 6] = [DType::F16, DType::F32, DType::I32, DType::U32, DType::I64, DType::F64];

impl Target {
    /// A processor: memory is its only limit, but a program is interpreted tile by tile, and a long one leaves the first-level cache.
    pub const CPU: Self = Self {
        max_operands: 32,
        max_instructions: 96,
        stores: &DType::ALL,
        fuse: true,
        split_reduce: None,
        max_tensor_bytes: u64::MAX,
        input_alignment_bytes: 1,
        access_bytes: 1,
        runs_host_code: true,
    };

    /// A GPU with so many storage buffers in a kernel, one of which is the output. Kernels with a core may store single elements, so that dtypes
    /// which share a word are not among what they store; `f16` says that `F16` is a type of its own there.
    pub fn gpu(storage_buffers: usize, f16: bool) -> Self {
        let stores: &[DType] = if f16 { &GPU_STORES } else { &GPU_STORES[1..] };
        Self {
            max_operands: storage_buffers.saturating_sub(1),
            max_instructions: 96,
            stores,
            fuse: true,
            split_reduce: Some(1 << 16),
            max_tensor_bytes: u64::MAX,
            // The largest offset alignment that WebGPU lets a device ask for.
            input_alignment_bytes: 256,
            access_bytes: 16,
            runs_host_code: false,
        }
    }

    /// The same with every op in a kernel of its own.
    pub fn unfused(self) -> Self {
        Self { fuse: false, ..self }
    }
}
