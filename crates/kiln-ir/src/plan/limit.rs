//! Target limits: if a kernel is too large, a part of it is stored first.

use super::Target;
use super::fuse::StoreReason;
use super::lower::Lowered;
use crate::graph::{NodeId, OpGraph};
use crate::kernel::{Body, Core, Instruction};
use crate::{Error, ErrorKind, Result};
use std::collections::BTreeSet;

/// Transitive dependencies of a value.
#[derive(Clone, Default)]
struct Needs {
    operands: BTreeSet<usize>,
    instructions: BTreeSet<usize>,
}

/// Returns the node to store first if the kernel exceeds a limit of the target: the largest part within the
/// limits.
pub(super) fn excess(graph: &OpGraph, target: &Target, kernel: &Lowered) -> Result<Option<(NodeId, StoreReason)>> {
    let prologue = if let Core::Reduce { input, .. } = &kernel.core { Some(input) } else { None };
    let core_operands = kernel.core_nodes.leaves.len();
    let operands = core_operands + kernel.body_nodes.leaves.len();
    let count = |body: &Body| body.program.instructions.len();
    let instructions = prologue.map_or(0, count) + count(&kernel.body);
    if operands <= target.max_operands && instructions <= target.max_instructions {
        return Ok(None);
    }
    // The prologue and the epilogue count against one limit: whatever uses the core's result needs
    // all operands of the core and the whole prologue.
    let mut core = Needs { operands: (0..core_operands).collect(), instructions: BTreeSet::new() };
    let mut parts = Vec::new();
    if let Some(prologue) = prologue {
        let needs = needs(prologue, &Needs::default(), 0, 0);
        core = needs.last().cloned().unwrap_or_default();
        parts.extend(kernel.core_nodes.computed.iter().map(|&(node, value)| (node, needs[value].clone())));
    }
    let epilogue = needs(&kernel.body, &core, core_operands, prologue.map_or(0, count));
    parts.extend(kernel.body_nodes.computed.iter().map(|&(node, value)| (node, epilogue[value].clone())));
    let too_many_operands = operands > target.max_operands;
    // The largest part leaves the least for the rest, so that few extra kernels are needed.
    let largest = parts
        .into_iter()
        .filter(|(node, needs)| {
            *node != kernel.root
                && needs.operands.len() <= target.max_operands
                && needs.instructions.len() <= target.max_instructions
                // Storing a value with a single operand removes one operand and adds one.
                && if too_many_operands { needs.operands.len() > 1 } else { needs.instructions.len() > 1 }
        })
        .max_by_key(|(_, needs)| {
            let (operands, instructions) = (needs.operands.len(), needs.instructions.len());
            if too_many_operands { (operands, instructions) } else { (instructions, operands) }
        });
    match largest {
        Some((node, _)) => {
            Ok(Some((node, if too_many_operands { StoreReason::Operands } else { StoreReason::Instructions })))
        }
        None => {
            let name = graph.nodes[kernel.root].op.name();
            let message = format!(
                "`{name}` expected at most {} operands and {} instructions in a kernel, found {operands} and {instructions}",
                target.max_operands, target.max_instructions
            );
            Err(Error::new(ErrorKind::Unsupported, message))
        }
    }
}

/// Returns the dependencies of each instruction. Operands and instructions are numbered from the given offsets.
fn needs(body: &Body, core: &Needs, operands: usize, instructions: usize) -> Vec<Needs> {
    let mut all: Vec<Needs> = Vec::new();
    for (index, instruction) in body.program.instructions.iter().enumerate() {
        let mut own = Needs::default();
        let mut take = |needs: &Needs| {
            own.operands.extend(&needs.operands);
            own.instructions.extend(&needs.instructions);
        };
        match instruction {
            Instruction::Op { args, .. } => args.iter().for_each(|&arg| take(&all[arg])),
            Instruction::Cast { arg, .. } => take(&all[*arg]),
            Instruction::Core { .. } => take(core),
            Instruction::Load { .. } | Instruction::Scalar { .. } | Instruction::Iota => {}
        }
        if let Instruction::Load { operand } = instruction {
            own.operands.insert(operands + operand);
        }
        own.instructions.insert(instructions + index);
        all.push(own);
    }
    all
}
