//! Operands, results and nested blocks of naga's statements and expressions.

use naga::{AtomicFunction, Block, Expression, Function, GatherMode, Handle, Statement};

/// Returns the operands of an expression.
pub(crate) fn operands_of(expression: &Expression) -> Vec<Handle<Expression>> {
    match *expression {
        // Exhaustive for compute shaders. Images, derivatives and ray queries are rejected by `emit`.
        Expression::Compose { ref components, .. } => components.clone(),
        Expression::Access { base, index } => vec![base, index],
        Expression::Binary { left, right, .. } => vec![left, right],
        Expression::Select { condition, accept, reject } => vec![condition, accept, reject],
        Expression::Math { arg, arg1, arg2, arg3, .. } => [Some(arg), arg1, arg2, arg3].into_iter().flatten().collect(),
        Expression::AccessIndex { base: operand, .. }
        | Expression::Splat { value: operand, .. }
        | Expression::Swizzle { vector: operand, .. }
        | Expression::Load { pointer: operand }
        | Expression::Unary { expr: operand, .. }
        | Expression::As { expr: operand, .. }
        | Expression::Relational { argument: operand, .. }
        | Expression::ArrayLength(operand) => vec![operand],
        _ => Vec::new(),
    }
}

/// Returns the expressions that a statement computes, excluding nested blocks.
pub(crate) fn results_of(statement: &Statement) -> Vec<Handle<Expression>> {
    match statement {
        Statement::Emit(range) => range.clone().collect(),
        Statement::Atomic { result, .. } | Statement::Call { result, .. } => result.iter().copied().collect(),
        Statement::WorkGroupUniformLoad { result, .. }
        | Statement::SubgroupBallot { result, .. }
        | Statement::SubgroupGather { result, .. }
        | Statement::SubgroupCollectiveOperation { result, .. } => vec![*result],
        _ => Vec::new(),
    }
}

/// Returns the expressions that a statement uses, excluding nested blocks.
pub(crate) fn uses_of(function: &Function, statement: &Statement) -> Vec<Handle<Expression>> {
    match *statement {
        Statement::Emit(ref range) => {
            range.clone().flat_map(|expression| operands_of(&function.expressions[expression])).collect()
        }
        Statement::Store { pointer, value } => vec![pointer, value],
        // The comparand of a compare-exchange is a field of the function.
        Statement::Atomic { pointer, fun: AtomicFunction::Exchange { compare: Some(compare) }, value, .. } => {
            vec![pointer, value, compare]
        }
        Statement::Atomic { pointer, value, .. } => vec![pointer, value],
        Statement::Call { ref arguments, .. } => arguments.clone(),
        Statement::SubgroupGather {
            mode:
                GatherMode::Broadcast(index)
                | GatherMode::Shuffle(index)
                | GatherMode::ShuffleDown(index)
                | GatherMode::ShuffleUp(index)
                | GatherMode::ShuffleXor(index)
                | GatherMode::QuadBroadcast(index),
            argument,
            ..
        } => vec![argument, index],
        Statement::If { condition: only, .. }
        | Statement::Switch { selector: only, .. }
        | Statement::Loop { break_if: Some(only), .. }
        | Statement::Return { value: Some(only) }
        | Statement::WorkGroupUniformLoad { pointer: only, .. }
        | Statement::SubgroupBallot { predicate: Some(only), .. }
        | Statement::SubgroupGather { argument: only, .. }
        | Statement::SubgroupCollectiveOperation { argument: only, .. } => vec![only],
        _ => Vec::new(),
    }
}

/// Returns the nested blocks of a statement.
pub(crate) fn blocks_of(statement: &Statement) -> Vec<&Block> {
    match statement {
        Statement::Block(block) => vec![block],
        Statement::If { accept, reject, .. } => vec![accept, reject],
        Statement::Switch { cases, .. } => cases.iter().map(|case| &case.body).collect(),
        Statement::Loop { body, continuing, .. } => vec![body, continuing],
        _ => Vec::new(),
    }
}
