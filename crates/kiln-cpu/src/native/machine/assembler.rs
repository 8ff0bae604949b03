//! An assembler for the AVX2, FMA and F16C instructions of elementwise programs, and a loop around them.

/// A general-purpose register, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum General {
    Rax = 0,
    Rdx = 2,
    Rsp = 4,
    Rdi = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
    R11 = 11,
}

/// A vector register, by its number.
pub(super) type Vector = u8;

/// A shift of all lanes, with the opcode extension of the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shift {
    Right = 2,
    /// Arithmetic shift.
    RightSigned = 4,
    Left = 6,
}

/// Number of vector registers.
pub(super) const VECTORS: usize = 16;

/// The last operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Register(Vector),
    /// Memory at a register plus an offset in bytes.
    Memory(General, i32),
    /// Memory at a register plus the loop counter, in elements of this many bytes.
    Element(General, usize),
    /// A vector stored after the code.
    Literal(usize),
}

/// The encoding of an instruction: mandatory prefix, opcode map and opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opcode {
    prefix: u8,
    map: u8,
    byte: u8,
}

/// Defines opcodes, named as in the processor's manuals.
macro_rules! opcodes {
    ($($name:ident $prefix:literal $map:literal $byte:literal;)*) => {
        $(pub(super) const $name: Opcode = Opcode { prefix: $prefix, map: $map, byte: $byte };)*
    };
}

// Prefixes: 0 none, 1 for 66, 2 for F3. Maps: 1 for 0F, 2 for 0F38, 3 for 0F3A.
opcodes! {
    MOVUPS 0 1 0x10;
    MOVUPS_TO 0 1 0x11;
    MOVAPS 0 1 0x28;
    MOVNTPS 0 1 0x2b;
    SQRTPS 0 1 0x51;
    ADDPS 0 1 0x58;
    MULPS 0 1 0x59;
    CVTDQ2PS 0 1 0x5b;
    SUBPS 0 1 0x5c;
    MINPS 0 1 0x5d;
    DIVPS 0 1 0x5e;
    MAXPS 0 1 0x5f;
    CMPPS 0 1 0xc2;
    CVTPS2DQ 1 1 0x5b;
    PCMPGTD 1 1 0x66;
    PSHIFTD 1 1 0x72;
    PCMPEQD 1 1 0x76;
    PAND 1 1 0xdb;
    POR 1 1 0xeb;
    PXOR 1 1 0xef;
    PSUBD 1 1 0xfa;
    PADDD 1 1 0xfe;
    CVTPH2PS 1 2 0x13;
    PMOVSXBD 1 2 0x21;
    PMOVZXBD 1 2 0x31;
    PMOVZXWD 1 2 0x33;
    PMINUD 1 2 0x3b;
    PMULLD 1 2 0x40;
    PSRLVD 1 2 0x45;
    PSLLVD 1 2 0x47;
    FMADD132 1 2 0x98;
    FMADD213 1 2 0xa8;
    FMADD231 1 2 0xb8;
    ROUNDPS 1 3 0x08;
    CVTPS2PH 1 3 0x1d;
    BLENDVPS 1 3 0x4a;
}

/// The register number of the loop counter: rcx. The number of elements is in rsi.
const COUNTER: u8 = 1;

/// Assembles machine code.
#[derive(Default)]
pub(super) struct Assembler {
    pub(super) bytes: Vec<u8>,
    literals: Vec<u32>,
    /// Relocations of literals: position of the displacement, end of its instruction, and index of the literal.
    fixes: Vec<(usize, usize, usize)>,
}

impl Assembler {
    /// Emits an instruction on 256-bit vectors: destination, first source if there are two, last source.
    pub(super) fn vector(&mut self, opcode: Opcode, to: Vector, first: Option<Vector>, last: Source) {
        self.encode(opcode, true, to, first, last, None);
    }

    /// Emits an instruction on 256-bit vectors with an immediate byte.
    pub(super) fn vector_byte(&mut self, opcode: Opcode, to: Vector, first: Option<Vector>, last: Source, byte: u8) {
        self.encode(opcode, true, to, first, last, Some(byte));
    }

    /// Emits an instruction on the lower half of a vector.
    pub(super) fn half(&mut self, opcode: Opcode, to: Vector, last: Source) {
        self.encode(opcode, false, to, None, last, None);
    }

    /// Emits a shift of all lanes by the same number of bits.
    pub(super) fn shift(&mut self, shift: Shift, to: Vector, from: Vector, bits: u8) {
        self.encode(PSHIFTD, true, shift as Vector, Some(to), Source::Register(from), Some(bits));
    }

    fn encode(
        &mut self,
        opcode: Opcode,
        wide: bool,
        register: Vector,
        first: Option<Vector>,
        last: Source,
        byte: Option<u8>,
    ) {
        let (index, base) = match last {
            Source::Register(register) => (0, register),
            Source::Memory(base, _) => (0, base as u8),
            Source::Element(base, _) => (COUNTER, base as u8),
            Source::Literal(_) => (0, 0),
        };
        // VEX stores the high bits of register numbers, and the first source, inverted.
        let high = |number: u8, at: u8| (!number >> 3 & 1) << at;
        // Always the three-byte form, which can encode every register and opcode map. Without a first source its field
        // must be 1111, which is 0 inverted.
        let second = high(register, 7) | high(index, 6) | high(base, 5) | opcode.map;
        let third = (!first.unwrap_or(0) & 15) << 3 | u8::from(wide) << 2 | opcode.prefix;
        self.bytes.extend([0xc4, second, third, opcode.byte]);
        let register = (register & 7) << 3;
        match last {
            Source::Register(from) => self.bytes.push(0xc0 | register | from & 7),
            Source::Memory(base, offset) => {
                // A 32-bit displacement always, so that the length does not depend on the offset.
                self.bytes.push(0x80 | register | base as u8 & 7);
                // As a base, the number of rsp means that a SIB byte follows; 0x24 encodes rsp without an index.
                if base == General::Rsp {
                    self.bytes.push(0x24);
                }
                self.bytes.extend(offset.to_le_bytes());
            }
            Source::Element(base, size) => {
                // Without a displacement, a base of rbp or r13 would mean something else; pointers are never in them.
                let scale = size.trailing_zeros() as u8;
                self.bytes.extend([0x04 | register, scale << 6 | COUNTER << 3 | base as u8 & 7]);
            }
            Source::Literal(literal) => {
                // Relative to the end of the instruction, which includes the immediate byte.
                self.bytes.push(0x05 | register);
                let at = self.bytes.len();
                self.bytes.extend([0; 4]);
                self.fixes.push((at, at + 4 + usize::from(byte.is_some()), literal));
            }
        }
        self.bytes.extend(byte);
    }

    /// Loads a pointer: element `index` of the array at rdi.
    pub(super) fn load_pointer(&mut self, to: General, index: usize) {
        let to = to as u8;
        // mov to, [rdi + 8 * index]: REX.W, and REX.R for r8 and above.
        self.bytes.extend([0x48 | to >> 3 << 2, 0x8b, 0x80 | (to & 7) << 3 | General::Rdi as u8]);
        self.bytes.extend((8 * index as i32).to_le_bytes());
    }

    /// Allocates stack memory.
    pub(super) fn enter(&mut self, bytes: i32) {
        // sub rsp, bytes. The frame is not aligned to vectors, so spills use unaligned moves.
        self.bytes.extend([0x48, 0x81, 0xec]);
        self.bytes.extend(bytes.to_le_bytes());
    }

    /// Begins a loop over elements, and returns its position.
    pub(super) fn begin_loop(&mut self) -> usize {
        // xor ecx, ecx
        self.bytes.extend([0x31, 0xc9]);
        self.bytes.len()
    }

    /// Ends the loop that begins at `start`: adds eight to the counter and jumps back while elements are left.
    pub(super) fn end_loop(&mut self, start: usize) {
        // add rcx, 8; cmp rcx, rsi; jb start
        self.bytes.extend([0x48, 0x83, 0xc1, 0x08, 0x48, 0x39, 0xf1, 0x0f, 0x82]);
        let distance = start as i32 - (self.bytes.len() as i32 + 4);
        self.bytes.extend(distance.to_le_bytes());
    }

    /// Frees the stack memory and returns. Fences non-temporal stores, so that they are visible to the caller.
    pub(super) fn leave(&mut self, bytes: i32, is_streaming: bool) {
        if is_streaming {
            // sfence
            self.bytes.extend([0x0f, 0xae, 0xf8]);
        }
        // Without `vzeroupper`, SSE code of the caller would pay for the dirty upper halves of the registers.
        // vzeroupper; add rsp, bytes; ret
        self.bytes.extend([0xc5, 0xf8, 0x77, 0x48, 0x81, 0xc4]);
        self.bytes.extend(bytes.to_le_bytes());
        self.bytes.push(0xc3);
    }

    /// Returns a literal: this word broadcast to eight lanes.
    pub(super) fn literal(&mut self, word: u32) -> Source {
        let found = self.literals.iter().position(|&literal| literal == word);
        Source::Literal(found.unwrap_or_else(|| {
            self.literals.push(word);
            self.literals.len() - 1
        }))
    }

    /// Returns the code, followed by its literals.
    pub(super) fn finish(mut self) -> Vec<u8> {
        // Aligned to a vector, so that no literal crosses a cache line: code begins at a page, and the streaming copy
        // follows literals of 32 bytes.
        let first = self.bytes.len().next_multiple_of(32);
        for (at, end, literal) in self.fixes {
            let distance = (first + 32 * literal) as i32 - end as i32;
            self.bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        // Padding of `int3`, which traps if it is ever executed.
        self.bytes.resize(first, 0xcc);
        self.bytes.extend(self.literals.iter().flat_map(|word| [word.to_le_bytes(); 8]).flatten());
        self.bytes
    }
}
