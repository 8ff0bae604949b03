//! Random reads, writes, copies and fills of odd ranges, compared with plain vectors.

use crate::fixture::{WAYS, buffer, device};
use kiln_device::{Buffer, NullDevice};
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::Range;

/// Odd, so that no end is aligned.
const BYTES: u64 = 301;

#[derive(Clone, Debug)]
enum Operation {
    Write { buffer: usize, range: Range<u64>, seed: u8 },
    Read { buffer: usize, range: Range<u64> },
    ReadLater { buffer: usize, range: Range<u64> },
    MapWrite { buffer: usize, range: Range<u64>, seed: u8 },
    MapRead { buffer: usize, range: Range<u64> },
    Zero { buffer: usize, range: Range<u64> },
    Copy { from: usize, to: usize, at: u64, range: Range<u64> },
    Complete,
}

/// Returns unaligned and aligned ranges, so that fast and slow paths are both taken.
fn range() -> impl Strategy<Value = Range<u64>> {
    prop_oneof![
        (0..=BYTES, 0..=BYTES).prop_map(|(a, b)| a.min(b)..a.max(b)),
        (0..=BYTES / 4, 0..=BYTES / 4).prop_map(|(a, b)| 4 * a.min(b)..4 * a.max(b)),
        (0..=BYTES).prop_map(|start| start..BYTES),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let one = || (0_usize..4, range());
    prop_oneof![
        3 => (one(), any::<u8>()).prop_map(|((buffer, range), seed)| Operation::Write { buffer, range, seed }),
        2 => one().prop_map(|(buffer, range)| Operation::Read { buffer, range }),
        1 => one().prop_map(|(buffer, range)| Operation::ReadLater { buffer, range }),
        1 => (one(), any::<u8>()).prop_map(|((buffer, range), seed)| Operation::MapWrite { buffer, range, seed }),
        1 => one().prop_map(|(buffer, range)| Operation::MapRead { buffer, range }),
        1 => one().prop_map(|(buffer, range)| Operation::Zero { buffer, range }),
        4 => (one(), 0_usize..4, 0..=BYTES).prop_map(|((from, range), to, at)| {
            let at = if at % 3 == 0 { at / 4 * 4 } else { at };
            Operation::Copy { from, to, at: at.min(BYTES - (range.end - range.start)), range }
        }),
        1 => Just(Operation::Complete),
    ]
}

struct Model {
    null: NullDevice,
    buffers: Vec<Buffer>,
    expected: Vec<Vec<u8>>,
}

fn whole(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Model {
    /// Creates two host-visible buffers and two device-only ones.
    fn new(manual: bool, copy_alignment: u64, divisible: bool) -> Self {
        let null = NullDevice::new().with_properties(|properties| {
            properties.copy_alignment = copy_alignment;
            properties.divisible = divisible;
        });
        let null = if manual { null.manual_completion() } else { null };
        let device = device(&null);
        let usages = [WAYS[0], WAYS[1], WAYS[0], WAYS[1]];
        let buffers: Vec<Buffer> = usages.map(|usage| buffer(&device, BYTES, usage)).into();
        for buffer in &buffers {
            buffer.write(&[0; BYTES as usize]).unwrap();
        }
        Self { null, buffers, expected: vec![vec![0; BYTES as usize]; 4] }
    }

    fn slice(&self, buffer: usize, range: &Range<u64>) -> Buffer {
        self.buffers[buffer].slice(range.clone()).unwrap()
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Write { buffer, range, seed } => {
                let data: Vec<u8> = range.clone().map(|at| at as u8 ^ seed).collect();
                self.slice(*buffer, range).write(&data).unwrap();
                self.expected[*buffer][whole(range)].copy_from_slice(&data);
            }
            Operation::Read { buffer, range } => {
                assert_eq!(self.slice(*buffer, range).read().unwrap(), self.expected[*buffer][whole(range)]);
            }
            Operation::ReadLater { buffer, range } => {
                let pending = self.slice(*buffer, range).read_async().unwrap();
                self.null.complete(u64::MAX);
                assert_eq!(pending.wait().unwrap(), self.expected[*buffer][whole(range)]);
            }
            Operation::MapWrite { buffer, range, seed } => {
                let expected = &mut self.expected[*buffer][whole(range)];
                let slice = self.buffers[*buffer].slice(range.clone()).unwrap();
                slice
                    .map_write(|bytes| {
                        assert_eq!(bytes, expected);
                        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(*seed));
                    })
                    .unwrap();
                expected.iter_mut().for_each(|byte| *byte = byte.wrapping_add(*seed));
            }
            Operation::MapRead { buffer, range } => {
                let expected = &self.expected[*buffer][whole(range)];
                self.slice(*buffer, range).map_read(|bytes| assert_eq!(bytes, expected)).unwrap();
            }
            Operation::Zero { buffer, range } => {
                self.slice(*buffer, range).zero().unwrap();
                self.expected[*buffer][whole(range)].fill(0);
            }
            Operation::Copy { from, to, at, range } => {
                let target = *at..at + range.end - range.start;
                self.slice(*from, range).copy_to(&self.slice(*to, &target)).unwrap();
                let bytes = self.expected[*from][whole(range)].to_vec();
                self.expected[*to][whole(&target)].copy_from_slice(&bytes);
            }
            Operation::Complete => self.null.complete(u64::MAX),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// For all ranges, usages and completion times, buffers contain what vectors would.
    #[test]
    fn buffers_agree_with_vectors(
        manual in any::<bool>(),
        copy_alignment in prop_oneof![Just(1_u64), Just(4), Just(16)],
        divisible in any::<bool>(),
        operations in vec(operation(), 1..40),
    ) {
        let mut model = Model::new(manual, copy_alignment, divisible);
        for operation in &operations {
            model.apply(operation);
        }
        for (buffer, expected) in model.buffers.iter().zip(&model.expected) {
            prop_assert_eq!(&buffer.read().unwrap(), expected);
        }
    }
}
