//! Elementwise programs compiled to run over tiles: each value is assigned a register, and each op becomes a loop.

use super::blocks::Blocks;
use super::load::{Access, Load};
use super::loops::Loops;
use super::machine::{Argument, MachineCode, Parameter};
use kiln_ir::kernel::{Body, Instruction};
use kiln_ir::op::TileLoop;
use kiln_ir::{Class, DType, Error, ErrorKind, Result, SimdLevel};
use smallvec::SmallVec;

/// A virtual register: the memory of a value while a tile runs. Register `i` is the memory of operand `i`, followed
/// by the core's results, the output, and scratch tiles.
pub(crate) type Register = u16;

/// A compiled body.
pub(crate) struct TileProgram {
    /// The load of each operand.
    pub(crate) loads: Vec<Load>,
    /// Registers filled once, before the first tile.
    pub(crate) constants: Vec<(Register, Parameter)>,
    /// The steps that run for each tile.
    pub(crate) code: Vec<Code>,
    /// Machine code that computes the result after `code`, which then only gathers its inputs.
    pub(crate) machine: Option<Machine>,
    /// The register of the result. It is the output's register if nothing is left to store.
    pub(crate) result: Register,
    /// The output's dtype; `None` if the caller reads the result from its register.
    pub(crate) store: Option<DType>,
    /// A tile for narrow elements that are gathered before they are converted.
    pub(crate) narrow: Option<Register>,
    /// The division of the space into blocks, if it is not iterated by rows; all registers are then scratch tiles.
    pub(crate) blocks: Option<Blocks>,
    /// Number of scratch tiles.
    pub(crate) tiles: usize,
    /// Number of scalars that a run must pass.
    pub(crate) scalars: usize,
    /// Approximate cost of an element: 1 for a word loaded or stored, or for a cheap op.
    pub(crate) cost: usize,
    /// The class of the core's results, if the program reads them.
    pub(crate) core: Option<Class>,
    pub(crate) loops: &'static Loops,
}

/// Machine code, with the registers that it reads and writes.
pub(crate) struct Machine {
    pub(crate) code: MachineCode,
    /// The register of each argument and of the output, with its element size in bytes.
    pub(crate) registers: SmallVec<[(Register, usize); 6]>,
}

/// One step of a tile.
pub(crate) enum Code {
    /// Loads elements of an operand, converted to words; for machine code, unconverted.
    Load { operand: u16, out: Register },
    /// Writes the indices of the elements.
    Iota { out: Register },
    /// Runs a loop over other registers.
    Loop { run: TileLoop, args: [Register; 3], arity: u8, out: Register },
}

impl TileProgram {
    /// Returns the size of its allocations in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let lists = size_of_val(&*self.loads) + size_of_val(&*self.constants) + size_of_val(&*self.code);
        lists + self.machine.as_ref().map_or(0, |machine| machine.code.bytes())
    }

    /// Compiles a body. Its result is stored to an output of dtype `store`, or stays in its register.
    ///
    /// # Errors
    /// Returns `Internal` if the program is malformed, which is a bug of its producer.
    pub(crate) fn new(body: &Body, store: Option<DType>, level: SimdLevel) -> Result<Self> {
        let mut program = Self::of_loops(body, store, level)?;
        let has_loops = program.code.iter().any(|code| matches!(code, Code::Loop { .. }));
        // Machine code stores only contiguous words and `F16`: blocks are stored row by row, and other narrow
        // elements are converted from words.
        let store = store.filter(|&dtype| program.blocks.is_none() && (dtype.bytes() == 4 || dtype == DType::F16));
        // A program without loops only copies or converts, which its loads and stores already do in one pass.
        if has_loops && let Some(code) = MachineCode::new(body, store, level) {
            program.use_machine_code(code, store.is_some());
        }
        Ok(program)
    }

    /// Compiles the program to one loop per op.
    pub(super) fn of_loops(body: &Body, store: Option<DType>, level: SimdLevel) -> Result<Self> {
        let instructions = &body.program.instructions;
        check(body)?;
        let operands = body.operands.len() as Register;
        let blocks = store.and_then(|_| Blocks::of(body));
        let mut program = Self {
            loads: body.operands.iter().map(|operand| Load::new(operand, blocks)).collect(),
            constants: Vec::new(),
            code: Vec::new(),
            machine: None,
            result: 0,
            store,
            narrow: None,
            blocks,
            tiles: 0,
            scalars: 0,
            cost: store.map_or(0, |_| 1),
            core: None,
            loops: Loops::of(level),
        };
        let uses = Uses::new(instructions);
        let mut tiles = Tiles { first: program.output() + 1, free: Vec::new(), count: 0 };
        let mut registers: Vec<Register> = Vec::with_capacity(instructions.len());
        for (index, instruction) in instructions.iter().enumerate() {
            // 0 means unused, because instruction 0 has no earlier value to use. The placeholder keeps `registers`
            // parallel to the instructions; no used instruction refers to it.
            if uses.last[index] == 0 && index + 1 < instructions.len() {
                registers.push(Register::MAX);
                continue;
            }
            // The last value is written directly to an output of words, so nothing is left to store.
            let is_last = index + 1 == instructions.len();
            let is_direct = is_last && blocks.is_none() && store.is_some_and(|dtype| dtype.bytes() == 4);
            let direct = is_direct.then(|| program.output());
            let out = |tiles: &mut Tiles| direct.unwrap_or_else(|| tiles.take());
            let register = match instruction {
                &Instruction::Load { operand } => {
                    program.cost += 1;
                    match program.loads[operand].access {
                        Access::Direct if blocks.is_none() => operand as Register,
                        Access::Splat => program.constant(Parameter::Splat(operand), &mut tiles),
                        Access::Direct | Access::Contiguous | Access::Strided(_) => {
                            if program.loads[operand].needs_narrow_tile() && program.narrow.is_none() {
                                program.narrow = Some(tiles.take());
                            }
                            let out = out(&mut tiles);
                            program.code.push(Code::Load { operand: operand as u16, out });
                            out
                        }
                    }
                }
                &Instruction::Scalar { scalar, .. } => {
                    program.scalars = program.scalars.max(scalar + 1);
                    program.constant(Parameter::Scalar(scalar), &mut tiles)
                }
                Instruction::Iota => {
                    let out = out(&mut tiles);
                    program.code.push(Code::Iota { out });
                    out
                }
                &Instruction::Core { class } => {
                    program.core = Some(class);
                    operands
                }
                Instruction::Op { op, class, args } => {
                    let run = op
                        .tile(*class, level)
                        .ok_or_else(|| bug(format!("op `{}` does not support {class:?}", op.name)))?;
                    program.cost += if op.is_cheap() { 1 } else { 10 };
                    let out = out(&mut tiles);
                    let args: SmallVec<[Register; 3]> = args.iter().map(|&arg| registers[arg]).collect();
                    program.push_loop(run, &args, out);
                    out
                }
                &Instruction::Cast { arg, from, to } => {
                    program.cost += 1;
                    match program.loops.cast(from, to, level) {
                        // Shares the argument's register; `still_needed` keeps it until the last of both is dead.
                        [None, _] => registers[arg],
                        [Some(run), None] => {
                            let out = out(&mut tiles);
                            program.push_loop(run, &[registers[arg]], out);
                            out
                        }
                        [Some(first), Some(second)] => {
                            let (between, out) = (tiles.take(), out(&mut tiles));
                            program.push_loop(first, &[registers[arg]], between);
                            program.push_loop(second, &[between], out);
                            tiles.free.push(between);
                            out
                        }
                    }
                }
            };
            registers.push(register);
            // Only now, after the result has a register: a loop borrows its result mutably, so it must not share a
            // tile with an argument.
            for dead in uses.ending(index) {
                tiles.release(registers[dead], &program.constants, uses.still_needed(&registers, dead, index));
            }
        }
        program.result = *registers.last().ok_or_else(|| bug("a program has no instructions".into()))?;
        program.tiles = tiles.count;
        Ok(program)
    }

    /// Replaces the loops by machine code. Only operands that are not contiguous in the order of the space are
    /// gathered first.
    fn use_machine_code(&mut self, code: MachineCode, is_direct: bool) {
        let mut tiles = Tiles { first: self.output() + 1, free: Vec::new(), count: 0 };
        // Machine code converts narrow elements itself, and takes scalars and splats as parameters.
        (self.narrow, self.constants) = (None, Vec::new());
        self.code.clear();
        // All gathered inputs are live until the machine code runs, so no tile is reused.
        let mut registers = SmallVec::new();
        for &(argument, bytes) in code.arguments() {
            let register = match argument {
                Argument::Core => self.core_register(),
                Argument::Iota => {
                    let out = tiles.fresh();
                    self.code.push(Code::Iota { out });
                    out
                }
                Argument::Operand(operand) => match self.loads[operand].access {
                    Access::Direct | Access::Contiguous if self.blocks.is_none() => operand as Register,
                    _ => {
                        let out = tiles.fresh();
                        self.code.push(Code::Load { operand: operand as u16, out });
                        out
                    }
                },
            };
            registers.push((register, bytes));
        }
        self.result = if is_direct { self.output() } else { tiles.fresh() };
        registers.push((self.result, code.output_bytes()));
        self.tiles = tiles.count;
        self.machine = Some(Machine { code, registers });
    }

    /// Returns the register of the core's results.
    pub(crate) fn core_register(&self) -> Register {
        self.loads.len() as Register
    }

    /// Returns the register of the output.
    pub(crate) fn output(&self) -> Register {
        self.loads.len() as Register + 1
    }

    /// Returns whether the result is the core's, unmodified.
    pub(crate) fn is_identity(&self) -> bool {
        self.code.is_empty() && self.machine.is_none() && self.core.is_some() && self.result == self.core_register()
    }

    fn push_loop(&mut self, run: TileLoop, args: &[Register], out: Register) {
        let mut all = [0; 3];
        all[..args.len()].copy_from_slice(args);
        self.code.push(Code::Loop { run, args: all, arity: args.len() as u8, out });
    }

    fn constant(&mut self, constant: Parameter, tiles: &mut Tiles) -> Register {
        // Constants are filled before the first op runs, so their tile must never be reused.
        let register = tiles.fresh();
        self.constants.push((register, constant));
        register
    }
}

/// Allocator of scratch tiles during compilation.
struct Tiles {
    first: Register,
    free: Vec<Register>,
    count: usize,
}

impl Tiles {
    fn take(&mut self) -> Register {
        self.free.pop().unwrap_or_else(|| self.fresh())
    }

    /// Allocates a tile that was never used.
    fn fresh(&mut self) -> Register {
        self.count += 1;
        self.first + self.count as Register - 1
    }

    /// Frees a tile, unless it holds a constant.
    fn release(&mut self, register: Register, constants: &[(Register, Parameter)], is_needed: bool) {
        let is_constant = constants.iter().any(|&(constant, _)| constant == register);
        if register >= self.first
            && register != Register::MAX
            && !is_constant
            && !is_needed
            && !self.free.contains(&register)
        {
            self.free.push(register);
        }
    }
}

/// Liveness of values.
struct Uses {
    /// The last instruction that uses each value; 0 if unused.
    last: Vec<usize>,
}

impl Uses {
    fn new(instructions: &[Instruction]) -> Self {
        let mut last = vec![0; instructions.len()];
        // In reverse, so that inputs of unused values are unused too.
        for (index, instruction) in instructions.iter().enumerate().rev() {
            let is_used = last[index] > 0 || index + 1 == instructions.len();
            for arg in args(instruction).iter().copied().filter(|_| is_used) {
                last[arg] = last[arg].max(index);
            }
        }
        Self { last }
    }

    /// Returns the values whose last use is `index`.
    fn ending(&self, index: usize) -> impl Iterator<Item = usize> {
        (0..index).filter(move |&value| self.last[value] == index)
    }

    /// Returns whether another value that is live after `index` shares the register: the result of a cast that
    /// changes no bits.
    fn still_needed(&self, registers: &[Register], dead: usize, index: usize) -> bool {
        let is_last = |value| value + 1 == self.last.len();
        let shares = |value: usize| value != dead && registers[value] == registers[dead];
        (0..registers.len()).any(|value| shares(value) && (self.last[value] > index || is_last(value)))
    }
}

fn args(instruction: &Instruction) -> &[usize] {
    match instruction {
        Instruction::Op { args, .. } => args,
        Instruction::Cast { arg, .. } => std::slice::from_ref(arg),
        Instruction::Load { .. } | Instruction::Scalar { .. } | Instruction::Iota | Instruction::Core { .. } => &[],
    }
}

/// Checks what memory safety depends on.
fn check(body: &Body) -> Result<()> {
    for (index, instruction) in body.program.instructions.iter().enumerate() {
        if let &Instruction::Load { operand } = instruction
            && operand >= body.operands.len()
        {
            return Err(bug(format!("instruction {index} loads operand {operand} of {}", body.operands.len())));
        }
        if let Instruction::Op { op, args, .. } = instruction
            && (op.arity() != args.len() || args.len() > 3)
        {
            return Err(bug(format!("instruction {index} gives `{}` {} arguments", op.name, args.len())));
        }
        if let Some(&arg) = args(instruction).iter().find(|&&arg| arg >= index) {
            return Err(bug(format!("instruction {index} uses value {arg} before it is computed")));
        }
    }
    if let Some(operand) = body.operands.iter().find(|operand| *operand.layout.shape() != body.space) {
        let (shape, space) = (operand.layout.shape(), &body.space);
        return Err(bug(format!("an operand has shape {shape} in a space of {space}")));
    }
    // An instruction takes at most two tiles, so a quarter of the range keeps all registers below `MAX`, the
    // placeholder for unused values.
    if body.program.instructions.len() + body.operands.len() > usize::from(Register::MAX / 4) {
        return Err(bug(format!("a program has {} instructions", body.program.instructions.len())));
    }
    Ok(())
}

pub(crate) fn bug(message: String) -> Error {
    Error::new(ErrorKind::Internal, message)
}
