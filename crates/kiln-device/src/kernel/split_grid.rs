//! Splits grids that exceed the device's limit along an axis.
//!
//! A dispatch has a limit along each axis (65,535 workgroups on many devices), and WGSL numbers the workgroups of each
//! dispatch from zero. A larger grid runs as several dispatches of a variant of the kernel: the original entry point
//! becomes a function, and a new entry point calls it with the workgroup ids of the whole grid.

use super::grid::GridPart;
use kiln_ir::{Result, bail};
use naga::{
    AddressSpace, ArraySize, BinaryOperator, Binding, Block, BuiltIn, Expression, Function, FunctionArgument,
    GlobalVariable, Handle, Literal, Module, ResourceBinding, Scalar, Span, Statement, SwizzleComponent, Type,
    TypeInner, VectorSize,
};
use std::collections::HashSet;
use std::num::NonZeroU32;

/// The uniform with the first workgroup of the part, then the workgroups of the whole grid.
const VARIABLE: &str = "kiln_grid";

/// Encodes the uniform for a part of a grid.
pub(super) fn encode(GridPart { first, total, .. }: GridPart) -> Vec<u8> {
    // Two `vec4`, because the elements of a uniform array are aligned to 16 bytes.
    let words = [first[0], first[1], first[2], 0, total[0], total[1], total[2], 0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Adds the grid uniform to the only entry point of `module`, and returns its variable.
pub(super) fn add_grid_offset(module: &mut Module) -> Result<Handle<GlobalVariable>> {
    let Some(point) = module.entry_points.first().cloned() else {
        bail!(Internal, "splitting a grid expected an entry point, found none");
    };
    // For `fn main(@builtin(workgroup_id) id: vec3<u32>)` the module becomes, in WGSL:
    //     fn kiln_main(id: vec3<u32>) { … }
    //     @compute fn main(@builtin(workgroup_id) id: vec3<u32>) { kiln_main(id + kiln_grid[0].xyz); }
    let variable = add_variable(module);
    let mut inner = point.function;
    let arguments = inner.arguments.clone();
    for argument in &mut inner.arguments {
        // Only entry points may have builtins as arguments.
        argument.binding = None;
    }
    inner.name = Some(format!("kiln_{}", point.name));
    let inner = module.functions.append(inner, Span::UNDEFINED);

    let mut outer = Function { arguments: arguments.clone(), ..Function::default() };
    let mut builder = Builder { function: &mut outer, types: &module.types };
    let (first, total) = builder.load_grid(variable);
    // Does not wrap: `Grid::resolve` allows at most 2^32 invocations along an axis.
    let first_invocation = builder.scale(first, point.workgroup_size);
    let builtins = GridBuiltins { first, first_invocation, total };
    let values = arguments.iter().enumerate().map(|(index, argument)| builder.argument(index, argument, &builtins));
    let values = values.collect();
    outer.body.push(Statement::Call { function: inner, arguments: values, result: None }, Span::UNDEFINED);
    outer.body.push(Statement::Return { value: None }, Span::UNDEFINED);
    module.entry_points[0].function = outer;
    Ok(variable)
}

fn add_variable(module: &mut Module) -> Handle<GlobalVariable> {
    let four = TypeInner::Vector { size: VectorSize::Quad, scalar: Scalar::U32 };
    let three = TypeInner::Vector { size: VectorSize::Tri, scalar: Scalar::U32 };
    let four = module.types.insert(Type { name: None, inner: four }, Span::UNDEFINED);
    // Inserted here, because `Builder` borrows the types and `scale` needs this one.
    module.types.insert(Type { name: None, inner: three }, Span::UNDEFINED);
    let size = ArraySize::Constant(NonZeroU32::MIN.saturating_add(1));
    let pair = TypeInner::Array { base: four, size, stride: 16 };
    let pair = module.types.insert(Type { name: None, inner: pair }, Span::UNDEFINED);
    // Any unused binding number works: the bindings are renumbered later, with this one last.
    let taken: HashSet<u32> = module.global_variables.iter().filter_map(|(_, it)| Some(it.binding?.binding)).collect();
    let number = (0..=u32::MAX).find(|number| !taken.contains(number)).unwrap_or_default();
    let variable = GlobalVariable {
        name: Some(VARIABLE.to_string()),
        space: AddressSpace::Uniform,
        binding: Some(ResourceBinding { group: 0, binding: number }),
        ty: pair,
        init: None,
        memory_decorations: naga::MemoryDecorations::empty(),
    };
    module.global_variables.append(variable, Span::UNDEFINED)
}

/// The values that replace the builtins.
struct GridBuiltins {
    first: Handle<Expression>,
    first_invocation: Handle<Expression>,
    total: Handle<Expression>,
}

struct Builder<'a> {
    function: &'a mut Function,
    types: &'a naga::UniqueArena<Type>,
}

impl Builder<'_> {
    /// Appends an expression that needs no evaluation.
    fn append(&mut self, expression: Expression) -> Handle<Expression> {
        self.function.expressions.append(expression, Span::UNDEFINED)
    }

    /// Appends an expression and a statement that evaluates it.
    fn emit(&mut self, expression: Expression) -> Handle<Expression> {
        let handle = self.append(expression);
        let mut range = Block::new();
        range.push(Statement::Emit(naga::Range::new_from_bounds(handle, handle)), Span::UNDEFINED);
        self.function.body.append(&mut range);
        handle
    }

    fn load_grid(&mut self, variable: Handle<GlobalVariable>) -> (Handle<Expression>, Handle<Expression>) {
        let base = self.append(Expression::GlobalVariable(variable));
        let mut part = |index| {
            let pointer = self.emit(Expression::AccessIndex { base, index });
            let vector = self.emit(Expression::Load { pointer });
            use SwizzleComponent::{W, X, Y, Z};
            self.emit(Expression::Swizzle { size: VectorSize::Tri, vector, pattern: [X, Y, Z, W] })
        };
        (part(0), part(1))
    }

    fn scale(&mut self, vector: Handle<Expression>, factors: [u32; 3]) -> Handle<Expression> {
        let components = factors.map(|factor| self.append(Expression::Literal(Literal::U32(factor)))).to_vec();
        let three = TypeInner::Vector { size: VectorSize::Tri, scalar: Scalar::U32 };
        // `add_variable` inserted this type.
        let Some(ty) = self.types.get(&Type { name: None, inner: three }) else { return vector };
        let right = self.emit(Expression::Compose { ty, components });
        self.emit(Expression::Binary { op: BinaryOperator::Multiply, left: vector, right })
    }

    /// Returns the value of an argument of the original function.
    fn argument(&mut self, index: usize, argument: &FunctionArgument, builtins: &GridBuiltins) -> Handle<Expression> {
        let value = self.append(Expression::FunctionArgument(index as u32));
        let types = self.types;
        match &types[argument.ty].inner {
            TypeInner::Struct { members, .. } => {
                let components = (members.iter().enumerate())
                    .map(|(index, member)| {
                        let base = self.emit(Expression::AccessIndex { base: value, index: index as u32 });
                        self.replace(base, member.binding.as_ref(), builtins)
                    })
                    .collect();
                self.emit(Expression::Compose { ty: argument.ty, components })
            }
            _ => self.replace(value, argument.binding.as_ref(), builtins),
        }
    }

    fn replace(
        &mut self,
        value: Handle<Expression>,
        binding: Option<&Binding>,
        builtins: &GridBuiltins,
    ) -> Handle<Expression> {
        let mut plus = |right| self.emit(Expression::Binary { op: BinaryOperator::Add, left: value, right });
        match binding {
            Some(Binding::BuiltIn(BuiltIn::WorkGroupId)) => plus(builtins.first),
            Some(Binding::BuiltIn(BuiltIn::GlobalInvocationId)) => plus(builtins.first_invocation),
            Some(Binding::BuiltIn(BuiltIn::NumWorkGroups)) => builtins.total,
            _ => value,
        }
    }
}
