//! Test support shared by all kernels: threads, operands of every layout, and an output that checks how it is written.

use half::{bf16, f16};
use kiln_ir::graph::TensorType;
use kiln_ir::host::{HostCall, HostOperand, HostOutput, Workers};
use kiln_ir::kernel::{self, Body, Instruction, Program};
use kiln_ir::wgsl::{WgslCall, WgslFeatures, WgslKernel};
use kiln_ir::{Class, DType, KernelOp, Layout, Result, Shape, SimdLevel, round_to_odd};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Workers that spawn threads for each loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    pub(crate) count: usize,
    pub(crate) simd: SimdLevel,
}

impl Threads {
    /// Returns one and eight threads, each with and without SIMD.
    pub(crate) fn all() -> Vec<Self> {
        let levels = [SimdLevel::Scalar, SimdLevel::detect()];
        [1, 8].into_iter().flat_map(|count| levels.map(|simd| Self { count, simd })).collect()
    }
}

impl Workers for Threads {
    fn count(&self) -> usize {
        self.count
    }

    fn simd(&self) -> SimdLevel {
        self.simd
    }

    fn run(&self, parts: usize, task: &(dyn Fn(usize) + Sync)) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let part = next.fetch_add(1, Ordering::Relaxed);
                if part >= parts {
                    break;
                }
                task(part);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.count.min(parts) {
                scope.spawn(work);
            }
            work();
        });
        Ok(())
    }
}

/// A deterministic random number generator.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns a number between -1 and 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// A buffer of elements.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) dtype: DType,
    /// Aligned for elements of every dtype.
    words: Vec<u64>,
}

impl Memory {
    /// Creates a buffer with every bit set, which is NaN for floats.
    pub(crate) fn poisoned(dtype: DType, elements: usize) -> Self {
        Self { dtype, words: vec![u64::MAX; (elements * dtype.bytes()).div_ceil(8)] }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words)
    }

    pub(crate) fn get(&self, index: usize) -> f64 {
        match self.dtype {
            DType::F16 => bytemuck::cast_slice::<_, f16>(&self.words)[index].to_f64(),
            DType::BF16 => bytemuck::cast_slice::<_, bf16>(&self.words)[index].to_f64(),
            DType::F32 => f64::from(bytemuck::cast_slice::<_, f32>(&self.words)[index]),
            DType::I32 => f64::from(bytemuck::cast_slice::<_, i32>(&self.words)[index]),
            DType::U32 => f64::from(bytemuck::cast_slice::<_, u32>(&self.words)[index]),
            DType::U8 | DType::Bool => f64::from(self.bytes()[index]),
            DType::I8 => f64::from(self.bytes()[index] as i8),
            DType::I64 => self.words[index] as i64 as f64,
            DType::F64 => f64::from_bits(self.words[index]),
        }
    }

    /// Returns the first `elements` elements.
    pub(crate) fn values(&self, elements: usize) -> Vec<f64> {
        (0..elements).map(|index| self.get(index)).collect()
    }

    /// Returns the bits of a 64-bit element.
    pub(crate) fn bits(&self, index: usize) -> u64 {
        self.words[index]
    }

    pub(crate) fn set_bits(&mut self, index: usize, bits: u64) {
        self.words[index] = bits;
    }

    pub(crate) fn set(&mut self, index: usize, value: f64) {
        match self.dtype {
            DType::F16 => {
                bytemuck::cast_slice_mut::<_, f16>(&mut self.words)[index] = f16::from_f32(round_to_odd::f32_of(value));
            }
            DType::BF16 => {
                bytemuck::cast_slice_mut::<_, bf16>(&mut self.words)[index] =
                    bf16::from_f32(round_to_odd::f32_of(value));
            }
            DType::F32 => bytemuck::cast_slice_mut::<_, f32>(&mut self.words)[index] = value as f32,
            DType::I32 => bytemuck::cast_slice_mut::<_, i32>(&mut self.words)[index] = value as i32,
            DType::U32 => bytemuck::cast_slice_mut::<_, u32>(&mut self.words)[index] = value as u32,
            DType::I8 => bytemuck::cast_slice_mut::<_, i8>(&mut self.words)[index] = value as i8,
            DType::Bool => bytemuck::cast_slice_mut::<_, u8>(&mut self.words)[index] = u8::from(value != 0.0),
            DType::I64 => self.words[index] = value as i64 as u64,
            DType::F64 => self.words[index] = value.to_bits(),
            DType::U8 => bytemuck::cast_slice_mut::<_, u8>(&mut self.words)[index] = value as u8,
        }
    }
}

/// An operand. Memory between its elements is poisoned.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) memory: Memory,
    pub(crate) layout: Layout,
}

impl Operand {
    /// Fills each element from `value`, which is called once per memory location, in row-major order.
    pub(crate) fn new(dtype: DType, layout: Layout, mut value: impl FnMut() -> f64) -> Self {
        let mut memory = Memory::poisoned(dtype, layout.range().end + 1);
        let mut is_set = vec![false; layout.range().end];
        for offset in offsets(&layout) {
            if !std::mem::replace(&mut is_set[offset], true) {
                memory.set(offset, value());
            }
        }
        Self { memory, layout }
    }

    /// Creates an operand of random elements between -1 and 1.
    pub(crate) fn random(seed: u64, dtype: DType, layout: Layout) -> Self {
        let mut numbers = Numbers::new(seed);
        Self::new(dtype, layout, || numbers.unit())
    }

    /// Creates an operand of random integers below `end`. Those below 256 are exact in every dtype; indices are below a length.
    pub(crate) fn whole(seed: u64, dtype: DType, layout: Layout, end: usize) -> Self {
        let mut numbers = Numbers::new(seed);
        Self::new(dtype, layout, || numbers.below(end) as f64)
    }

    pub(crate) fn ty(&self) -> TensorType {
        TensorType { shape: self.layout.shape().clone(), dtype: self.memory.dtype }
    }

    /// Returns the elements in row-major order.
    pub(crate) fn values(&self) -> Vec<f64> {
        offsets(&self.layout).map(|offset| self.memory.get(offset)).collect()
    }
}

/// An operand of gather or scatter with its indices.
pub(crate) struct Indexed {
    pub(crate) x: Operand,
    pub(crate) index: Operand,
    pub(crate) axis: usize,
    /// A different layout of the index shape.
    pub(crate) other: Layout,
    pub(crate) context: String,
}

/// Operand shapes, index shapes and axes: indices longer and shorter than the axis, with many duplicates, and empty.
pub(crate) const INDEXED: [(&[usize], &[usize], usize); 12] = [
    (&[9], &[5], 0),
    (&[3], &[8], 0),
    (&[4], &[0], 0),
    (&[0, 4], &[0, 3], 1),
    (&[4, 7], &[4, 3], 1),
    (&[4, 3], &[4, 7], 1),
    (&[4, 7], &[9, 5], 0),
    (&[4, 40], &[9, 35], 0),
    (&[3, 4, 5], &[2, 6, 5], 1),
    (&[3, 4, 5], &[3, 2, 8], 2),
    (&[2, 3, 4, 5], &[7, 2, 3, 4], 0),
    (&[1, 3, 1, 2], &[1, 5, 1, 2], 1),
];

/// Calls `check` with operands of every dtype and layout, filled with integers below `end`, and indices in varying layouts.
pub(crate) fn indexed(cases: &[(&[usize], &[usize], usize)], end: usize, mut check: impl FnMut(Indexed)) {
    for &(shape, index_shape, axis) in cases {
        let ways = layouts(&Shape::new(index_shape));
        for (number, layout) in layouts(&Shape::new(shape)).into_iter().enumerate() {
            for (dtype, index_dtype) in DType::ALL.into_iter().zip([DType::U32, DType::I32].into_iter().cycle()) {
                let [index, other] = [number, number + 1].map(|number| ways[number % ways.len()].clone());
                check(Indexed {
                    x: Operand::whole(1, dtype, layout.clone(), end),
                    index: Operand::whole(2, index_dtype, index, shape[axis]),
                    axis,
                    other,
                    context: format!("{layout:?} {index_shape:?} {axis} {dtype}"),
                });
            }
        }
    }
}

/// Iterates over the offsets of all elements in row-major order.
pub(crate) fn offsets(layout: &Layout) -> impl Iterator<Item = usize> {
    (0..layout.shape().elem_count()).map(|mut index| {
        let mut offset = layout.offset() as isize;
        for (&length, &stride) in layout.shape().iter().zip(layout.strides()).rev() {
            offset += (index % length) as isize * stride;
            index /= length;
        }
        offset as usize
    })
}

/// Returns layouts of a shape: contiguous, with an offset, with the last two axes swapped, with the axes reversed, with negative strides, with gaps,
/// and broadcast along the first axis.
pub(crate) fn layouts(shape: &Shape) -> Vec<Layout> {
    let rank = shape.rank();
    let in_order = Layout::contiguous(shape.clone());
    let mut all = vec![in_order.clone(), Layout::strided(shape.clone(), &shape.strides(), 5)];
    let permuted = |axes: &[usize]| {
        let moved = Layout::contiguous(axes.iter().map(|&axis| shape[axis]).collect());
        let back: Vec<usize> = (0..rank).filter_map(|axis| axes.iter().position(|&from| from == axis)).collect();
        moved.permuted(&back)
    };
    if rank >= 2 {
        let mut axes: Vec<usize> = (0..rank).collect();
        axes.swap(rank - 1, rank - 2);
        all.push(permuted(&axes));
        axes = (0..rank).rev().collect();
        all.push(permuted(&axes));
    }
    if rank >= 1 && shape.elem_count() > 0 {
        let backwards: Vec<isize> = shape.strides().iter().map(|&stride| -stride).collect();
        all.push(Layout::strided(shape.clone(), &backwards, shape.elem_count() - 1));
        let gaps: Vec<isize> = shape.strides().iter().map(|&stride| 3 * stride).collect();
        all.push(Layout::strided(shape.clone(), &gaps, 1));
        let mut spread = shape.with(0, 1).strides();
        spread[0] = 0;
        all.push(Layout::strided(shape.clone(), &spread, 2));
    }
    all
}

/// An output that applies `after` to each result, like a fused epilogue, and counts how often each element is stored.
struct Output {
    dtype: DType,
    memory: *mut u8,
    bytes: usize,
    stored: Vec<AtomicUsize>,
    after: fn(usize, f32) -> f32,
    is_direct: bool,
}

// SAFETY: the memory is written only through `store` and `bytes`, whose callers write disjoint elements.
unsafe impl Sync for Output {}

impl HostOutput for Output {
    unsafe fn store(&self, start: usize, values: &mut [f32]) {
        for (index, value) in (start..).zip(values.iter()) {
            self.stored[index].fetch_add(1, Ordering::Relaxed);
            let value = (self.after)(index, *value);
            // SAFETY: `stored` was indexed with `index`, and it is as long as the output.
            unsafe {
                match self.dtype {
                    DType::F16 => self.memory.cast::<f16>().add(index).write(f16::from_f32(value)),
                    DType::BF16 => self.memory.cast::<bf16>().add(index).write(bf16::from_f32(value)),
                    DType::F32 => self.memory.cast::<f32>().add(index).write(value),
                    other => panic!("a kernel that computes in f32 has an output of {other}"),
                }
            }
        }
        // Poisons the scratch buffer, because kernels must not rely on its content after a store.
        values.fill(f32::NAN);
    }

    fn floats(&self) -> Option<*mut f32> {
        (self.is_direct && self.dtype == DType::F32).then_some(self.memory.cast())
    }

    fn bytes(&self) -> (*mut u8, usize) {
        (self.memory, self.bytes)
    }
}

/// Runs an op whose results go through `store`, and checks that each is stored once.
pub(crate) fn run_stored(op: &dyn KernelOp, operands: &[Operand], threads: Threads) -> Memory {
    run_with(op, operands, threads, |_, value| value)
}

/// Runs an op like [`run_stored`], with a fused epilogue.
pub(crate) fn run_with(
    op: &dyn KernelOp,
    operands: &[Operand],
    threads: Threads,
    after: fn(usize, f32) -> f32,
) -> Memory {
    let (memory, stored) = run_counted(op, operands, threads, after, false).unwrap();
    assert!(stored.iter().all(|&times| times == 1), "each element is stored once: {stored:?}");
    memory
}

/// Runs an op like [`run_stored`], with an output that may be written directly. Elements that are not written stay poisoned.
pub(crate) fn run_direct(op: &dyn KernelOp, operands: &[Operand], threads: Threads) -> Memory {
    let (memory, stored) = run_counted(op, operands, threads, |_, value| value, true).unwrap();
    assert!(stored.iter().all(|&times| times <= 1), "no element is stored twice: {stored:?}");
    memory
}

/// Runs an op that only moves elements.
///
/// # Errors
/// Returns the error of an op that rejects its operands.
pub(crate) fn run_moved(op: &dyn KernelOp, operands: &[Operand], threads: Threads) -> Result<Memory> {
    let (memory, stored) = run_counted(op, operands, threads, |_, value| value, false)?;
    assert!(stored.iter().all(|&times| times == 0), "an op that moves elements stores none");
    Ok(memory)
}

fn run_counted(
    op: &dyn KernelOp,
    operands: &[Operand],
    threads: Threads,
    after: fn(usize, f32) -> f32,
    is_direct: bool,
) -> Result<(Memory, Vec<usize>)> {
    let types: Vec<TensorType> = operands.iter().map(Operand::ty).collect();
    let ty = op.infer(&types)?;
    let elements = ty.shape.elem_count();
    let mut memory = Memory::poisoned(ty.dtype, elements);
    let output = Output {
        dtype: ty.dtype,
        memory: memory.words.as_mut_ptr().cast(),
        bytes: elements * ty.dtype.bytes(),
        stored: (0..elements).map(|_| AtomicUsize::new(0)).collect(),
        after,
        is_direct,
    };
    let host: Vec<HostOperand<'_>> = operands
        .iter()
        .map(|operand| HostOperand {
            dtype: operand.memory.dtype,
            layout: &operand.layout,
            bytes: operand.memory.bytes(),
        })
        .collect();
    for (index, operand) in operands.iter().enumerate() {
        assert!(op.takes(index, &operand.layout), "operand {index} of {} as {:?}", op.name(), operand.layout);
    }
    op.run(&HostCall { workers: &threads, operands: &host, output: &output })?;
    let stored = output.stored.into_iter().map(AtomicUsize::into_inner).collect();
    Ok((memory, stored))
}

/// Renders the WGSL of an op with `f32` results and no epilogue, and validates it for adapters with and without f16 and subgroups. Returns the kernel
/// for an adapter with both.
pub(crate) fn render_checked(op: &dyn KernelOp, operands: &[(DType, Layout)]) -> Result<WgslKernel> {
    let operands: Vec<kernel::Operand> =
        operands.iter().map(|(dtype, layout)| kernel::Operand { dtype: *dtype, layout: layout.clone() }).collect();
    let types: Vec<TensorType> = operands
        .iter()
        .map(|operand| TensorType { shape: operand.layout.shape().clone(), dtype: operand.dtype })
        .collect();
    let output = TensorType { dtype: DType::F32, ..op.infer(&types)? };
    let program = Program { instructions: vec![Instruction::Core { class: Class::Float }] };
    let body = Body { space: output.shape.clone(), operands: Vec::new(), program };
    let render = |has: bool| {
        let features = WgslFeatures { f16: has, subgroup_size: has.then_some(32) };
        let kernel = op.wgsl(&WgslCall { features, operands: &operands, body: &body, output: &output })?;
        let module = naga::front::wgsl::parse_str(&kernel.source)
            .unwrap_or_else(|error| panic!("{}\n{}", error.emit_to_string(&kernel.source), kernel.source));
        let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        capabilities.set(Capabilities::SHADER_FLOAT16, has);
        capabilities.set(Capabilities::SUBGROUP, has);
        let checked = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
        assert!(checked.is_ok(), "{checked:?}\n{}", kernel.source);
        Ok(kernel)
    };
    render(false)?;
    render(true)
}
