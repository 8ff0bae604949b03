//! Planning targets.

use crate::DType;

/// The limits of the device that a plan is made for, and whether to fuse.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Target {
    /// Maximum operands of a kernel.
    pub max_operands: usize,
    /// Maximum instructions of a kernel's programs, including loads.
    pub max_instructions: usize,
    /// The dtypes that a kernel with a core can store. Others are stored in the dtype of their class and converted by
    /// a following map.
    pub stores: &'static [DType],
    /// Whether ops are fused. Disabled to check fused results against unfused ones.
    pub fuse: bool,
    /// Maximum elements per result of a single reduction kernel, for reductions with too few results to keep the
    /// device busy. Larger ones are reduced in two stages.
    pub split_reduce: Option<usize>,
    /// Size of the largest tensor that a kernel can read or write, in bytes.
    pub max_tensor_bytes: u64,
    /// Alignment of input buffers, in bytes.
    pub input_alignment_bytes: usize,
    /// Granularity in bytes at which kernels access buffers, including the tail.
    pub access_bytes: u64,
    /// Whether hand-written kernels run their CPU code, if they have any, instead of WGSL.
    pub runs_host_code: bool,
}

/// `F16`, which not every GPU supports natively, and the dtypes that are whole words.
const GPU_STORES: [DType; 6] = [DType::F16, DType::F32, DType::I32, DType::U32, DType::I64, DType::F64];

impl Target {
    /// The CPU: only memory is limited, but programs are interpreted per tile, and a long one falls out of the L1
    /// cache.
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

    /// A GPU with this many storage buffers per kernel, one of which is the output. Kernels with a core may store
    /// single elements, so they cannot store dtypes that share a word. `f16` is whether `F16` is a native type.
    pub fn gpu(storage_buffers: usize, f16: bool) -> Self {
        let stores: &[DType] = if f16 { &GPU_STORES } else { &GPU_STORES[1..] };
        Self {
            max_operands: storage_buffers.saturating_sub(1),
            max_instructions: 96,
            stores,
            fuse: true,
            split_reduce: Some(1 << 16),
            max_tensor_bytes: u64::MAX,
            // The largest offset alignment that WebGPU allows a device to require.
            input_alignment_bytes: 256,
            access_bytes: 16,
            runs_host_code: false,
        }
    }

    /// Returns the target without fusion: every op is its own kernel.
    pub fn unfused(self) -> Self {
        Self { fuse: false, ..self }
    }
}
