//! Register allocation and code emission.
//!
//! The program is a straight line, so a single pass suffices: when registers run out, the value with the furthest
//! next use is spilled.

use super::assembler::{self as asm, Assembler, General, Opcode, Source, VECTORS, Vector};
use super::lower::{Lowered, Value, VectorOp};
use smallvec::SmallVec;

/// Registers that hold the pointers of the first arguments.
const POINTERS: [General; 4] = [General::R8, General::R9, General::R10, General::R11];
/// Maximum spill slots: a larger frame would need stack probes on Windows.
const MAX_SLOTS: usize = 96;
/// Registers that an instruction may need besides those of its operands.
const SPARE: usize = 2;
/// Bytes per vector.
const VECTOR_BYTES: i32 = 32;

/// The format of stored results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// As words.
    Words,
    /// As `F16`.
    Halves,
}

/// Emits a loop over vectors. rdi points to the array of argument pointers, followed by the output's; rsi is the
/// number of elements, a nonzero multiple of eight; rdx points to the parameters. Returns `None` if it needs too many
/// spill slots.
///
/// The code saves no registers: all that it uses, except rsp, are caller-saved in the System V convention.
pub(super) fn emit(lowered: &Lowered, store: Store, is_streaming: bool) -> Option<Vec<u8>> {
    let mut emitter = Emitter::new(lowered);
    // The frame size is known only at the end; the instruction has the same length for any size.
    emitter.assembler.enter(0);
    for (index, &register) in POINTERS.iter().enumerate().take(lowered.arguments.len() + 1) {
        emitter.assembler.load_pointer(register, index);
    }
    emitter.hoist_constants();
    let start = emitter.assembler.begin_loop();
    for index in 0..lowered.ops.len() {
        emitter.op(index);
    }
    emitter.store(store, is_streaming);
    emitter.assembler.end_loop(start);
    let room = emitter.slots as i32 * VECTOR_BYTES;
    emitter.assembler.leave(room, is_streaming);
    let is_small = emitter.slots <= MAX_SLOTS;
    let mut entry = Assembler::default();
    entry.enter(room);
    emitter.assembler.bytes[..entry.bytes.len()].copy_from_slice(&entry.bytes);
    is_small.then(|| emitter.assembler.finish())
}

struct Emitter<'a> {
    lowered: &'a Lowered,
    assembler: Assembler,
    /// The ops that use each value, in reverse order, so that the next use is at the end.
    uses: Vec<SmallVec<[usize; 4]>>,
    /// The location of each value: a register, a stack slot, or both.
    homes: Vec<Home>,
    /// The value in each allocatable register.
    registers: [Option<Value>; VECTORS],
    /// Registers from this one on hold hoisted constants.
    end: usize,
    slots: usize,
}

#[derive(Clone, Copy, Default)]
struct Home {
    register: Option<Vector>,
    slot: Option<usize>,
}

/// Registers in use by the current instruction, which must not be reallocated.
type Held = SmallVec<[Vector; 4]>;

impl<'a> Emitter<'a> {
    fn new(lowered: &'a Lowered) -> Self {
        let ops = &lowered.ops;
        let mut uses = vec![SmallVec::new(); ops.len()];
        // The result is used at the end.
        if let Some(last) = uses.last_mut() {
            last.push(ops.len());
        }
        for (index, op) in ops.iter().enumerate().rev() {
            op.inputs().iter().for_each(|&input| uses[input].push(index));
        }
        let homes = vec![Home::default(); ops.len()];
        Self {
            lowered,
            assembler: Assembler::default(),
            uses,
            homes,
            registers: [None; VECTORS],
            end: VECTORS,
            slots: 0,
        }
    }

    /// Loads the most used constants into registers that no value will need.
    fn hoist_constants(&mut self) {
        let free = VECTORS.saturating_sub(self.pressure() + SPARE);
        let is_constant = |value: &Value| self.lowered.ops[*value].is_constant();
        let mut constants: Vec<Value> = (0..self.lowered.ops.len()).filter(is_constant).collect();
        constants.sort_by_key(|&value| std::cmp::Reverse(self.uses[value].len()));
        for value in constants.into_iter().take(free) {
            let source = self.source(value);
            self.end -= 1;
            let register = self.end as Vector;
            self.assembler.vector(asm::MOVUPS, register, None, source);
            // Not entered in `registers`: `take` allocates only below `end`, so it never spills a hoisted constant.
            self.homes[value].register = Some(register);
        }
    }

    /// Returns the register pressure: the maximum number of live values.
    fn pressure(&self) -> usize {
        let ops = &self.lowered.ops;
        let last_use = |value: Value| self.uses[value].first().copied().unwrap_or(value);
        // A difference array: +1 where a value is defined, -1 after its last use; the running sum is the number of live
        // values.
        let mut change = vec![0isize; ops.len() + 2];
        for value in (0..ops.len()).filter(|&value| !ops[value].is_constant()) {
            change[value] += 1;
            change[last_use(value) + 1] -= 1;
        }
        let counts = change.iter().scan(0, |count, change| {
            *count += change;
            Some(*count)
        });
        counts.max().unwrap_or(0) as usize
    }

    fn op(&mut self, index: usize) {
        let mut held = Held::new();
        match self.lowered.ops[index] {
            VectorOp::Literal(_) | VectorOp::Parameter(_) => {}
            VectorOp::Load { argument, opcode, bytes } => {
                let to = self.take(&held);
                let from = self.element(argument, bytes);
                self.assembler.vector(opcode, to, None, from);
                self.put(index, to);
            }
            VectorOp::One(opcode, byte, a) => {
                let a = self.source(a);
                let to = self.result(index);
                self.write(opcode, byte, to, None, a);
            }
            VectorOp::Two(opcode, byte, args) => {
                let [a, b] = if self.swaps(opcode, args) { [args[1], args[0]] } else { args };
                let a = self.register(a, &mut held);
                let b = self.source(b);
                let to = self.result(index);
                self.write(opcode, byte, to, Some(a), b);
            }
            VectorOp::Shift(shift, bits, a) => {
                let a = self.register(a, &mut held);
                let to = self.result(index);
                self.assembler.shift(shift, to, a, bits);
            }
            VectorOp::Blend([no, yes, mask]) => {
                let mask = self.register(mask, &mut held);
                let no = self.register(no, &mut held);
                let yes = self.source(yes);
                let to = self.result(index);
                // The fourth operand, the mask register, is encoded in the upper half of the immediate.
                self.write(asm::BLENDVPS, Some(mask << 4), to, Some(no), yes);
            }
            VectorOp::RoundHalf(a) => {
                let a = self.register(a, &mut held);
                let to = self.result(index);
                // `CVTPS2PH` encodes its source in the reg field and its destination in the r/m field.
                self.assembler.vector_byte(asm::CVTPS2PH, a, None, Source::Register(to), 0);
                self.assembler.vector(asm::CVTPH2PS, to, None, Source::Register(to));
            }
            VectorOp::MulAdd(args) => self.mul_add(index, args),
        }
    }

    /// Emits a fused multiply-add, which overwrites an operand: preferably one whose last use this is.
    fn mul_add(&mut self, index: usize, [a, b, c]: [Value; 3]) {
        let mut held = Held::new();
        // The factor whose last use this is comes first, and one in memory last.
        let [a, b] = if self.ends(b, index) && !self.ends(a, index) { [b, a] } else { [a, b] };
        if self.ends(c, index) && !self.is_in_memory(c) {
            let [a, b] = if self.is_in_memory(a) { [b, a] } else { [a, b] };
            let c = self.register(c, &mut held);
            let a = self.register(a, &mut held);
            let b = self.source(b);
            // c = a * b + c
            self.assembler.vector(asm::FMADD231, c, Some(a), b);
            self.finish_in(index, c);
        } else if self.ends(a, index) && a != b && a != c && !self.is_in_memory(a) {
            let a = self.register(a, &mut held);
            if self.is_in_memory(b) && !self.is_in_memory(c) {
                let c = self.register(c, &mut held);
                let b = self.source(b);
                // a = a * b + c, with b in memory
                self.assembler.vector(asm::FMADD132, a, Some(c), b);
            } else {
                let b = self.register(b, &mut held);
                let c = self.source(c);
                // a = a * b + c, where c may be in memory
                self.assembler.vector(asm::FMADD213, a, Some(b), c);
            }
            self.finish_in(index, a);
        } else {
            let [a, b] = if self.is_in_memory(a) { [b, a] } else { [a, b] };
            let a = self.register(a, &mut held);
            if let Source::Register(b) = self.source(b) {
                held.push(b);
            }
            if let Source::Register(c) = self.source(c) {
                held.push(c);
            }
            let to = self.take(&held);
            // `take` does not spill held registers, so the sources are still where they were.
            let (b, c) = (self.source(b), self.source(c));
            // The instruction overwrites an operand, so c is copied to a new register first: to = a * b + to.
            let copy = if matches!(c, Source::Register(_)) { asm::MOVAPS } else { asm::MOVUPS };
            self.assembler.vector(copy, to, None, c);
            self.assembler.vector(asm::FMADD231, to, Some(a), b);
            self.finish_in(index, to);
        }
    }

    fn is_in_memory(&self, value: Value) -> bool {
        self.homes[value].register.is_none()
    }

    fn write(&mut self, opcode: Opcode, byte: Option<u8>, to: Vector, first: Option<Vector>, last: Source) {
        match byte {
            Some(byte) => self.assembler.vector_byte(opcode, to, first, last, byte),
            None => self.assembler.vector(opcode, to, first, last),
        }
    }

    /// Returns whether to swap operands, so that one in memory comes last.
    fn swaps(&self, opcode: Opcode, [a, b]: [Value; 2]) -> bool {
        const COMMUTE: [Opcode; 9] = [
            asm::ADDPS,
            asm::MULPS,
            asm::PADDD,
            asm::PMULLD,
            asm::PAND,
            asm::POR,
            asm::PXOR,
            asm::PCMPEQD,
            asm::PMINUD,
        ];
        COMMUTE.contains(&opcode) && self.is_in_memory(a) && !self.is_in_memory(b)
    }

    /// Stores the last value.
    fn store(&mut self, store: Store, is_streaming: bool) {
        let mut held = Held::new();
        let result = self.register(self.lowered.ops.len() - 1, &mut held);
        let output = self.lowered.arguments.len();
        match (store, is_streaming) {
            (Store::Words, is_streaming) => {
                let to = self.element(output, 4);
                let opcode = if is_streaming { asm::MOVNTPS } else { asm::MOVUPS_TO };
                self.assembler.vector(opcode, result, None, to);
            }
            (Store::Halves, false) => {
                let to = self.element(output, 2);
                self.assembler.vector_byte(asm::CVTPS2PH, result, None, to, 0);
            }
            (Store::Halves, true) => {
                let halves = self.take(&held);
                self.assembler.vector_byte(asm::CVTPS2PH, result, None, Source::Register(halves), 0);
                let to = self.element(output, 2);
                self.assembler.half(asm::MOVNTPS, halves, to);
            }
        }
    }

    /// Returns the address of an argument's or the output's elements.
    fn element(&mut self, argument: usize, bytes: usize) -> Source {
        let pointer = POINTERS.get(argument).copied().unwrap_or_else(|| {
            self.assembler.load_pointer(General::Rax, argument);
            General::Rax
        });
        Source::Element(pointer, bytes)
    }

    /// Returns where a value can be read.
    fn source(&mut self, value: Value) -> Source {
        match (self.homes[value], self.lowered.ops[value]) {
            (Home { register: Some(register), .. }, _) => Source::Register(register),
            (Home { slot: Some(slot), .. }, _) => stack(slot),
            (_, VectorOp::Parameter(index)) => Source::Memory(General::Rdx, index as i32 * VECTOR_BYTES),
            (_, VectorOp::Literal(word)) => self.assembler.literal(word),
            _ => unreachable!("a value is made before it is used"),
        }
    }

    /// Returns the register of a value, loading it if it is in memory, and marks it as held.
    fn register(&mut self, value: Value, held: &mut Held) -> Vector {
        let register = match self.source(value) {
            Source::Register(register) => register,
            from => {
                let register = self.take(held);
                // Not recorded as the value's home: only `held` reserves the register, until the end of this instruction.
                self.assembler.vector(asm::MOVUPS, register, None, from);
                register
            }
        };
        held.push(register);
        register
    }

    /// Returns whether this op is the last use of a value.
    fn ends(&self, value: Value, index: usize) -> bool {
        !self.lowered.ops[value].is_constant() && self.uses[value].first() == Some(&index)
    }

    /// Allocates the result register of a single instruction whose sources are already resolved. It may be an
    /// operand's register, because the operand is read before the result is written.
    fn result(&mut self, index: usize) -> Vector {
        self.release_inputs(index);
        let to = self.take(&Held::new());
        self.put(index, to);
        to
    }

    /// Records that an op's result overwrote an operand.
    fn finish_in(&mut self, index: usize, register: Vector) {
        self.release_inputs(index);
        self.put(index, register);
    }

    fn put(&mut self, value: Value, register: Vector) {
        self.registers[usize::from(register)] = Some(value);
        self.homes[value].register = Some(register);
    }

    /// Removes the op's uses of its inputs, and frees the registers of those that are now dead.
    fn release_inputs(&mut self, index: usize) {
        for &input in self.lowered.ops[index].inputs() {
            // `retain`, because an op may use a value twice.
            self.uses[input].retain(|at| *at != index);
            if self.uses[input].is_empty()
                && !self.lowered.ops[input].is_constant()
                && let Some(register) = self.homes[input].register.take()
            {
                self.registers[usize::from(register)] = None;
            }
        }
    }

    /// Returns a free register, spilling the value with the furthest next use if there is none.
    fn take(&mut self, held: &Held) -> Vector {
        let is_held = |register: &usize| held.contains(&(*register as Vector));
        let range = 0..self.end;
        if let Some(free) = range.clone().find(|&at| self.registers[at].is_none() && !is_held(&at)) {
            return free as Vector;
        }
        // Belady's rule: evict the value with the furthest next use. In a straight line the next uses are known.
        let next_use = |&at: &usize| self.registers[at].and_then(|value| self.uses[value].last().copied());
        let latest = range.filter(|at| !is_held(at)).max_by_key(next_use);
        let register = latest.expect("an instruction holds fewer registers than there are");
        if let Some(value) = self.registers[register].take() {
            self.homes[value].register = None;
            // A value is assigned once, so a slot from an earlier spill is still valid.
            if self.homes[value].slot.is_none() {
                self.assembler.vector(asm::MOVUPS_TO, register as Vector, None, stack(self.slots));
                self.homes[value].slot = Some(self.slots);
                self.slots += 1;
            }
        }
        register as Vector
    }
}

/// Returns the address of a stack slot.
fn stack(slot: usize) -> Source {
    Source::Memory(General::Rsp, slot as i32 * VECTOR_BYTES)
}
