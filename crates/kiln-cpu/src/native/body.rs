//! Elementwise programs made ready to run over tiles: every value has its place, every op its loop.

use super::blocks::Blocks;
use super::load::{Access, Load};
use super::loops::Loops;
use super::machine::{Argument, MachineCode, Parameter};
use kiln_ir::kernel::{Body, Instruction};
use kiln_ir::op::TileLoop;
use kiln_ir::{Class, DType, Error, ErrorKind, Result, SimdLevel};
use smallvec::SmallVec;

/// Where a value is while a tile runs: the memory of operand `i` has number `i`, then come the core's results and the
/// output, then scratch tiles.
pub(crate) type Place = u16;

/// A body, ready to run.
pub(crate) struct TileProgram {
    /// How each operand is read.
    pub(crate) loads: Vec<Load>,
    /// What is filled once, before the first tile.
    pub(crate) constants: Vec<(Place, Parameter)>,
    /// What runs for each tile.
    pub(crate) code: Vec<Code>,
    /// What computes the result after that, where the code only brings together what it reads.
    pub(crate) machine: Option<Machine>,
    /// Where the result is after that. The output's place where nothing is left to store.
    pub(crate) result: Place,
    /// What the output's elements are; `None` where the caller takes the result from its place.
    pub(crate) store: Option<DType>,
    /// A tile for elements that are gathered before they are converted.
    pub(crate) narrow: Option<Place>,
    /// How the space is cut where rows do not serve; then no value is in memory of its own.
    pub(crate) blocks: Option<Blocks>,
    /// How many scratch tiles there are.
    pub(crate) tiles: usize,
    /// How many scalars a run must bring.
    pub(crate) scalars: usize,
    /// What one element costs, roughly: 1 for a word that is loaded or stored, or for a cheap op.
    pub(crate) cost: usize,
    /// What the core's results are, where the program takes them.
    pub(crate) core: Option<Class>,
    pub(crate) loops: &'static Loops,
}

/// Machine code, and the places that it reads and writes.
pub(crate) struct Machine {
    pub(crate) code: MachineCode,
    /// Where each argument and the output is, with the bytes of an element.
    pub(crate) places: SmallVec<[(Place, usize); 6]>,
}

/// One step for a tile.
pub(crate) enum Code {
    /// Elements of an operand, converted to words; for machine code, as they are.
    Load { operand: u16, out: Place },
    /// The numbers of the elements.
    Iota { out: Place },
    /// A loop over other places.
    Loop { run: TileLoop, args: [Place; 3], arity: u8, out: Place },
}

impl TileProgram {
    /// Bytes that it owns.
    pub(crate) fn bytes(&self) -> usize {
        let lists = size_of_val(&*self.loads) + size_of_val(&*self.constants) + size_of_val(&*self.code);
        lists + self.machine.as_ref().map_or(0, |machine| machine.code.bytes())
    }

    /// Makes a body ready; its result goes to an output of dtype `store`, or stays in its place.
    ///
    /// # Errors
    /// `Internal` where the program is not one: a bug of whoever made it.
    pub(crate) fn new(body: &Body, store: Option<DType>, level: SimdLevel) -> Result<Self> {
        let mut program = Self::of_loops(body, store, level)?;
        let has_loops = program.code.iter().any(|code| matches!(code, Code::Loop { .. }));
        // Blocks are stored row by row, and other narrow elements from words.
        let store = store.filter(|&dtype| program.blocks.is_none() && (dtype.bytes() == 4 || dtype == DType::F16));
        if has_loops && let Some(code) = MachineCode::new(body, store, level) {
            program.use_machine_code(code, store.is_some());
        }
        Ok(program)
    }

    /// The program as a loop for each op.
    pub(super) fn of_loops(body: &Body, store: Option<DType>, level: SimdLevel) -> Result<Self> {
        let instructions = &body.program.instructions;
        check(body)?;
        let operands = body.operands.len() as Place;
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
        let mut places: Vec<Place> = Vec::with_capacity(instructions.len());
        for (index, instruction) in instructions.iter().enumerate() {
            if uses.last[index] == 0 && index + 1 < instructions.len() {
                places.push(Place::MAX);
                continue;
            }
            // The last value goes straight to an output of words; so nothing is left to store.
            let is_last = index + 1 == instructions.len();
            let is_direct = is_last && blocks.is_none() && store.is_some_and(|dtype| dtype.bytes() == 4);
            let direct = is_direct.then(|| program.output());
            let out = |tiles: &mut Tiles| direct.unwrap_or_else(|| tiles.take());
            let place = match instruction {
                &Instruction::Load { operand } => {
                    program.cost += 1;
                    match program.loads[operand].access {
                        Access::Direct if blocks.is_none() => operand as Place,
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
                    let run =
                        op.tile(*class, level).ok_or_else(|| bug(format!("op `{}` has no {class:?}", op.name)))?;
                    program.cost += if op.is_cheap() { 1 } else { 10 };
                    let out = out(&mut tiles);
                    let args: SmallVec<[Place; 3]> = args.iter().map(|&arg| places[arg]).collect();
                    program.push_loop(run, &args, out);
                    out
                }
                &Instruction::Cast { arg, from, to } => {
                    program.cost += 1;
                    match program.loops.cast(from, to, level) {
                        [None, _] => places[arg],
                        [Some(run), None] => {
                            let out = out(&mut tiles);
                            program.push_loop(run, &[places[arg]], out);
                            out
                        }
                        [Some(first), Some(second)] => {
                            let (between, out) = (tiles.take(), out(&mut tiles));
                            program.push_loop(first, &[places[arg]], between);
                            program.push_loop(second, &[between], out);
                            tiles.free.push(between);
                            out
                        }
                    }
                }
            };
            places.push(place);
            for dead in uses.ending(index) {
                tiles.release(places[dead], &program.constants, uses.still_needed(&places, dead, index));
            }
        }
        program.result = *places.last().ok_or_else(|| bug("a program has no instruction".into()))?;
        program.tiles = tiles.count;
        Ok(program)
    }

    /// Lets machine code do what the loops do. Only what does not lie in the order of the space is brought together before.
    fn use_machine_code(&mut self, code: MachineCode, is_direct: bool) {
        let mut tiles = Tiles { first: self.output() + 1, free: Vec::new(), count: 0 };
        (self.narrow, self.constants) = (None, Vec::new());
        self.code.clear();
        let mut places = SmallVec::new();
        for &(argument, bytes) in code.arguments() {
            let place = match argument {
                Argument::Core => self.core_place(),
                Argument::Iota => {
                    let out = tiles.fresh();
                    self.code.push(Code::Iota { out });
                    out
                }
                Argument::Operand(operand) => match self.loads[operand].access {
                    Access::Direct | Access::Contiguous if self.blocks.is_none() => operand as Place,
                    _ => {
                        let out = tiles.fresh();
                        self.code.push(Code::Load { operand: operand as u16, out });
                        out
                    }
                },
            };
            places.push((place, bytes));
        }
        self.result = if is_direct { self.output() } else { tiles.fresh() };
        places.push((self.result, code.output_bytes()));
        self.tiles = tiles.count;
        self.machine = Some(Machine { code, places });
    }

    /// The place of the core's results.
    pub(crate) fn core_place(&self) -> Place {
        self.loads.len() as Place
    }

    /// The place of the output.
    pub(crate) fn output(&self) -> Place {
        self.loads.len() as Place + 1
    }

    /// Whether the result is the core's, as it is.
    pub(crate) fn is_identity(&self) -> bool {
        self.code.is_empty() && self.machine.is_none() && self.core.is_some() && self.result == self.core_place()
    }

    fn push_loop(&mut self, run: TileLoop, args: &[Place], out: Place) {
        let mut all = [0; 3];
        all[..args.len()].copy_from_slice(args);
        self.code.push(Code::Loop { run, args: all, arity: args.len() as u8, out });
    }

    fn constant(&mut self, constant: Parameter, tiles: &mut Tiles) -> Place {
        // Filled before the first op runs, so no op may write there.
        let place = tiles.fresh();
        self.constants.push((place, constant));
        place
    }
}

/// Scratch tiles while values are placed.
struct Tiles {
    first: Place,
    free: Vec<Place>,
    count: usize,
}

impl Tiles {
    fn take(&mut self) -> Place {
        self.free.pop().unwrap_or_else(|| self.fresh())
    }

    /// A tile that no value had before.
    fn fresh(&mut self) -> Place {
        self.count += 1;
        self.first + self.count as Place - 1
    }

    /// Takes a tile back, where the place is one that is not filled for the whole run.
    fn release(&mut self, place: Place, constants: &[(Place, Parameter)], is_needed: bool) {
        let is_constant = constants.iter().any(|&(constant, _)| constant == place);
        if place >= self.first && place != Place::MAX && !is_constant && !is_needed && !self.free.contains(&place) {
            self.free.push(place);
        }
    }
}

/// When values are used.
struct Uses {
    /// For each instruction the last one that takes its value; 0 where none does.
    last: Vec<usize>,
}

impl Uses {
    fn new(instructions: &[Instruction]) -> Self {
        let mut last = vec![0; instructions.len()];
        // From the end, so that what only unused values use is unused too.
        for (index, instruction) in instructions.iter().enumerate().rev() {
            let is_used = last[index] > 0 || index + 1 == instructions.len();
            for arg in args(instruction).iter().copied().filter(|_| is_used) {
                last[arg] = last[arg].max(index);
            }
        }
        Self { last }
    }

    /// The values that `index` uses last.
    fn ending(&self, index: usize) -> impl Iterator<Item = usize> {
        (0..index).filter(move |&value| self.last[value] == index)
    }

    /// Whether another value that is needed after `index` is in the same place: a conversion that changes no bit.
    fn still_needed(&self, places: &[Place], dead: usize, index: usize) -> bool {
        let is_last = |value| value + 1 == self.last.len();
        let shares = |value: usize| value != dead && places[value] == places[dead];
        (0..places.len()).any(|value| shares(value) && (self.last[value] > index || is_last(value)))
    }
}

fn args(instruction: &Instruction) -> &[usize] {
    match instruction {
        Instruction::Op { args, .. } => args,
        Instruction::Cast { arg, .. } => std::slice::from_ref(arg),
        Instruction::Load { .. } | Instruction::Scalar { .. } | Instruction::Iota | Instruction::Core { .. } => &[],
    }
}

/// What the rest relies on to reach memory that is there.
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
            return Err(bug(format!("instruction {index} takes value {arg}, which is not there yet")));
        }
    }
    if let Some(operand) = body.operands.iter().find(|operand| *operand.layout.shape() != body.space) {
        let (shape, space) = (operand.layout.shape(), &body.space);
        return Err(bug(format!("an operand has shape {shape} in a space of {space}")));
    }
    if body.program.instructions.len() + body.operands.len() > usize::from(Place::MAX / 4) {
        return Err(bug(format!("a program has {} instructions", body.program.instructions.len())));
    }
    Ok(())
}

pub(crate) fn bug(message: String) -> Error {
    Error::new(ErrorKind::Internal, message)
}
