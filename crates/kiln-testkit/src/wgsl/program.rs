//! Whole programs: declarations, functions and the kernel.

use super::Features;
use super::case::Binding;
use super::exact::quantizer_text;
use super::scope::{Access, Context, Generator, Return, Variable};
use super::types::{Projection, Scalar, Struct, Type};
use Scalar::{Bool, F16, F32, I32, U32};
use std::rc::Rc;

/// The workgroup sizes of programs.
const SIZES: [[usize; 3]; 9] =
    [[1, 1, 1], [8, 1, 1], [64, 1, 1], [7, 1, 1], [4, 4, 1], [3, 5, 2], [256, 1, 1], [16, 1, 1], [1, 1, 33]];
const GRIDS: [[usize; 3]; 5] = [[1, 1, 1], [2, 1, 1], [1, 3, 1], [2, 1, 2], [4, 1, 1]];
/// Elements of each input.
pub(super) const INPUT_LEN: usize = 48;

/// Maximum numbers of a variable that a program outputs.
const MAX_TERMS: usize = 5;

/// Generates a random program that is valid and deterministic. The same seed gives the same program.
pub fn generate(seed: u64, features: Features) -> String {
    let mut rng = crate::Rng::new(seed);
    let has_f16 = features.f16 && rng.below(3) == 0;
    let mut generator = Generator::new(rng.bits(), has_f16);
    let size = if features.subgroups {
        generator.choose(&[[8, 1, 1], [64, 1, 1], [32, 1, 1]])
    } else {
        generator.choose(&SIZES)
    };
    let grid = generator.choose(&GRIDS);
    generator.size = size.iter().product();
    (generator.has_subgroups, generator.gives_parts) = (features.subgroups, features.pointers_to_parts);
    generator.header.push(format!("//: seed {seed}"));
    generator.header.push(format!("//: grid {} {} {}", grid[0], grid[1], grid[2]));
    generator.program(size, grid);
    let enables = has_f16.then(|| "enable f16;".to_string()).into_iter();
    let quantizers = std::mem::take(&mut generator.quantizers);
    let quantizers = quantizers.into_iter().map(|(is_f32, width, is_small)| quantizer_text(is_f32, width, is_small));
    let parts = enables.chain(generator.header).chain(generator.items).chain(quantizers).chain(generator.lines);
    indented(&parts.collect::<Vec<_>>().join("\n"))
}

/// Indents the text by its braces.
fn indented(text: &str) -> String {
    let (mut depth, mut result) = (0, String::new());
    for line in text.lines() {
        depth -= usize::from(line.starts_with('}') && depth > 0);
        result.push_str(&"    ".repeat(depth));
        result.push_str(line);
        result.push('\n');
        depth += usize::from(line.ends_with('{'));
    }
    result
}

impl Generator {
    fn program(&mut self, size: [usize; 3], grid: [usize; 3]) {
        let all = self.size * grid.iter().product::<usize>();
        self.structs();
        self.inputs();
        self.constants();
        self.private();
        self.buffer("sum_i", "array<atomic<i32>, 6>", "i", 6);
        self.buffer("sum_u", "array<atomic<u32>, 6>", "u", 6);
        self.buffer("scratch", "array<u32>", "u", all);
        self.buffer("own_i32", "array<atomic<i32>>", "i", all);
        self.buffer("own_u32", "array<atomic<u32>>", "u", all);
        self.module_variables = self.variables.len();
        for _ in 0..self.rng.below(4) {
            self.function();
        }
        self.kernel(size, all);
    }

    fn structs(&mut self) {
        for number in 0..1 + self.rng.below(3) {
            let members = (0..1 + self.rng.below(4)).map(|_| self.shared_type(1)).collect::<Vec<_>>();
            let most = members.iter().map(Type::align).max().unwrap_or(4);
            let attributes = members.iter().map(|member| self.attributes(member, most)).collect();
            let structure = Struct { name: format!("S{number}"), members, attributes };
            self.items.push(structure.declaration());
            self.structs.push(Type::Struct(Rc::new(structure)));
        }
        if self.chance(40) {
            let members = (0..1 + self.rng.below(4)).map(|_| self.any_type()).collect::<Vec<_>>();
            let structure = Struct { name: "Local".into(), attributes: vec![(0, 0); members.len()], members };
            self.items.push(structure.declaration());
            self.local_structs.push(Type::Struct(Rc::new(structure)));
        }
    }

    /// Returns the `@align` and `@size` attributes of a member; 0 for most. An alignment never exceeds that of the struct: naga ignores a larger one
    /// if the struct is nested, and would read integers as floats.
    fn attributes(&mut self, member: &Type, most: usize) -> (usize, usize) {
        match self.rng.below(12) {
            0 => ((member.align() * self.choose(&[1, 2])).min(most), 0),
            1 => (0, member.bytes() + 4 * self.rng.below(4)),
            _ => (0, 0),
        }
    }

    fn bind(&mut self, space: &str, name: &str, ty: &str, pattern: &str, len: usize) {
        let binding = Binding { name: name.into(), is_value: space == "uniform", pattern: pattern.into(), len };
        self.header.push(binding.to_string());
        self.items.push(format!("@group(0) @binding({}) var<{space}> {name}: {ty};", self.next_binding));
        self.next_binding += 1;
    }

    fn buffer(&mut self, name: &str, ty: &str, pattern: &str, len: usize) {
        self.bind("storage, read_write", name, ty, pattern, len);
    }

    fn inputs(&mut self) {
        for (name, ty) in [("in_i", Type::Scalar(I32)), ("in_u", Type::Scalar(U32)), ("in_f", Type::Scalar(F32))] {
            self.input(name, ty);
        }
        let (structure, vector) = (self.structs[0].clone(), self.plain_type());
        self.input("in_s", structure);
        self.input("in_v", vector);
        self.tail();
        // Every program has the first members of these.
        let mut members = vec![Type::Scalar(I32), Type::Scalar(U32), Type::Scalar(F32)];
        members.extend((0..self.rng.below(3)).map(|_| self.plain_type()));
        members.push(Type::Matrix(F32, 2 + self.rng.below(3), 2 + self.rng.below(3)));
        members.push(Type::array(Type::Vector(self.choose(&[I32, U32, F32]), 4), 1 + self.rng.below(4)));
        let params = Struct { name: "Params".into(), attributes: vec![(0, 0); members.len()], members };
        self.items.push(params.declaration());
        let params = Type::Struct(Rc::new(params));
        self.bind("uniform", "params", "Params", &params.pattern(), 1);
        self.declare("params", params, Access::Read);
    }

    /// Declares a struct that ends with a runtime-sized array.
    fn tail(&mut self) {
        let (first, of) = (self.plain_type(), self.plain_type());
        self.items.push(format!("struct Tail {{ m0: {first}, m1: array<{of}> }}"));
        let tail = Type::structure("Tail", vec![first, Type::array(of, INPUT_LEN)]);
        self.bind("storage, read", "in_t", "Tail", &tail.pattern(), 1);
        self.declare("in_t", tail, Access::Read);
    }

    fn input(&mut self, name: &str, ty: Type) {
        self.bind("storage, read", name, &format!("array<{ty}>"), &ty.pattern(), INPUT_LEN);
        self.declare(name, Type::array(ty, INPUT_LEN), Access::Read);
    }

    /// Declares module constants and `override` constants.
    fn constants(&mut self) {
        for _ in 0..self.rng.below(3) {
            let scalar = self.choose(&[Bool, I32, U32, F32]);
            let (name, ty) = (self.name("o"), Type::Scalar(scalar));
            let value = self.literal(&ty);
            self.items.push(format!("override {name}: {ty} = {value};"));
            if self.chance(60) {
                let value = match scalar {
                    Bool => self.rng.below(2) as f64,
                    F32 => (self.rng.below(257) as f64 - 128.0) / 16.0,
                    I32 => self.rng.below(2001) as f64 - 1000.0,
                    _ => self.rng.below(1 << 32) as f64,
                };
                self.header.push(format!("//: constant {name} {value}"));
            }
            if scalar == U32 && self.chance(40) {
                let other = self.name("o");
                self.items.push(format!("override {other} = ({name} >> 3u) ^ 5u;"));
                self.declare(&other, ty.clone(), Access::Constant);
            }
            self.declare(&name, ty, Access::Constant);
        }
        for _ in 0..self.rng.below(3) {
            let (name, ty) = (self.name("c"), self.shared_type(1));
            let value = self.literal(&ty);
            self.items.push(format!("const {name} = {value};"));
            self.declare(&name, ty, Access::Constant);
        }
    }

    fn private(&mut self) {
        for _ in 0..1 + self.rng.below(3) {
            let (name, ty) = (self.name("g"), self.any_type());
            let value = if self.chance(50) { format!(" = {}", self.literal(&ty)) } else { String::new() };
            self.items.push(format!("var<private> {name}: {ty}{value};"));
            self.declare(&name, ty, Access::Write);
        }
        // Only the index statements of `carried` write it.
        let name = self.name("gat");
        self.items.push(format!("var<private> {name}: u32;"));
        self.declare(&name, Type::Scalar(U32), Access::Read);
        let mut types = vec![Type::Scalar(F32), Type::Vector(F32, 2 + self.rng.below(3))];
        if self.has_f16 {
            types.extend([Type::Scalar(F16), Type::Vector(F16, 2 + self.rng.below(3))]);
        }
        for ty in types {
            let name = self.name("a");
            self.items.push(format!("var<private> {name}: {ty};"));
            let variable = Variable { access: Access::Write, is_approximate: true, ..Variable::read(&name, &ty) };
            self.variables.push(variable);
        }
    }

    fn kernel(&mut self, size: [usize; 3], all: usize) {
        self.context = Context { rounds: 1, ..Context::default() };
        self.cost = 0;
        let mut builtins = vec![
            ("global_invocation_id", "gid", Type::Vector(U32, 3)),
            ("local_invocation_id", "pos", Type::Vector(U32, 3)),
            ("local_invocation_index", "lid", Type::Scalar(U32)),
            ("workgroup_id", "group", Type::Vector(U32, 3)),
            ("num_workgroups", "groups", Type::Vector(U32, 3)),
        ];
        if self.has_subgroups {
            builtins.extend([
                ("subgroup_invocation_id", "lane", Type::Scalar(U32)),
                ("subgroup_id", "subgroup", Type::Scalar(U32)),
                ("subgroup_size", "lanes", Type::Scalar(U32)),
                ("num_subgroups", "subgroups", Type::Scalar(U32)),
            ]);
        }
        let size = size.map(|size| self.axis(size)).join(", ");
        let texts: Vec<String> =
            builtins.iter().map(|(builtin, name, ty)| format!("@builtin({builtin}) {name}: {ty}")).collect();
        let is_struct = self.chance(25);
        let parameters = if is_struct {
            self.items.push(format!("struct Ids {{ {} }}", texts.join(", ")));
            "ids: Ids".to_string()
        } else {
            texts.join(", ")
        };
        let mut locals: Vec<Variable> = builtins.iter().map(|(_, name, ty)| Variable::read(name, ty)).collect();
        locals.push(Variable::read("me", &Type::Scalar(U32)));
        let head = format!("@compute @workgroup_size({size}) fn main({parameters})");
        self.block(&head, &locals, |this| {
            for (_, name, _) in builtins.iter().filter(|_| is_struct) {
                this.line(format!("let {name} = ids.{name}; // keep"));
            }
            this.line(format!(
                "let me = ((group.z * groups.y + group.y) * groups.x + group.x) * {}u + lid; // keep",
                this.size
            ));
            this.own_element(all);
            this.statements(2, 1);
            if this.has_subgroups || this.chance(75) {
                this.exchanges();
            }
            // From here on there are no barriers.
            this.context.result = Some(None);
            let (statements, depth) = (1 + this.rng.below(4), 1 + this.rng.below(2));
            this.statements(statements, depth);
            this.outputs(all);
        });
    }

    /// Generates exchanges between invocations.
    fn exchanges(&mut self) {
        self.uniform_variable();
        if self.chance(15) {
            self.context.exits.result = Some(Return::Nothing);
        }
        if self.chance(40) {
            self.hold();
        }
        for _ in 0..1 + self.rng.below(2) {
            self.exchange_step();
            self.statements(1, 1);
            if self.chance(30) {
                self.uniform_exit(false);
            }
        }
        self.context.exits.result = None;
    }

    /// Returns the workgroup size along an axis, as a literal or as an `override` constant.
    fn axis(&mut self, size: usize) -> String {
        if !self.chance(10) {
            return size.to_string();
        }
        let name = self.name("axis");
        self.items.push(format!("override {name}: u32 = 2u;"));
        self.header.push(format!("//: constant {name} {size}"));
        name
    }

    /// Declares a buffer element that only this invocation accesses.
    fn own_element(&mut self, all: usize) {
        if self.chance(50) {
            let ty = self.shared_type(1);
            self.buffer("own", &format!("array<{ty}>"), &ty.pattern(), all);
            self.declare("own[me]", ty, Access::Write);
        }
    }

    /// Outputs everything that is in scope at the end.
    fn outputs(&mut self, all: usize) {
        let visible = self.variables.clone();
        self.buffer("out_sum", "array<u32>", "u", all);
        self.line("var sum = 0u; // keep");
        let is_made = |variable: &&Variable| variable.access.can_write() || is_result(&variable.name);
        for variable in visible.iter().filter(is_made).filter(|variable| !variable.is_approximate) {
            let mut terms = Vec::new();
            terms_of(&variable.name, &variable.ty, &mut terms);
            while terms.len() > MAX_TERMS {
                terms.remove(self.rng.below(terms.len()));
            }
            self.line(format!("sum = sum * 31u + {};", terms.join(" * 7u + ")));
        }
        self.line("out_sum[me] = sum;");
        let mut types = vec![self.plain_type(), self.plain_type()];
        if self.chance(40) {
            types.push(self.shared_type(1));
        }
        for (number, ty) in types.into_iter().enumerate() {
            let name = format!("out_{number}");
            let value = if number == 0 { self.dynamic(&ty, 3) } else { self.stored(&ty, 2) };
            self.buffer(&name, &format!("array<{ty}>"), &ty.pattern(), all);
            self.line(format!("{name}[me] = {value};"));
        }
        let is_used = |name: &str| self.lines.iter().any(|line| line.trim_start().starts_with(name));
        let written: Vec<&Variable> =
            visible.iter().filter(|variable| variable.is_approximate && is_used(&variable.name)).collect();
        for variable in written {
            let name = format!("out_{}", variable.name);
            let pattern = variable.ty.pattern().replace('f', "a").replace('h', "g");
            self.buffer(&name, &format!("array<{}>", variable.ty), &pattern, all);
            self.line(format!("{name}[me] = {};", variable.name));
        }
    }
}

/// Returns whether the variable of this name is computed, although ordinary statements do not write to it.
fn is_result(name: &str) -> bool {
    ["v", "same", "at", "gat"].iter().any(|prefix| name.starts_with(prefix))
}

/// Collects the numbers of a variable as integer expressions.
pub(super) fn terms_of(path: &str, ty: &Type, terms: &mut Vec<String>) {
    let Type::Scalar(scalar) = ty else {
        for (projection, inner) in ty.inner() {
            match projection {
                Projection::Member(number) => terms_of(&format!("{path}.m{number}"), &inner, terms),
                Projection::Index(len) => {
                    (0..len).for_each(|index| terms_of(&format!("{path}[{index}]"), &inner, terms));
                }
            }
        }
        return;
    };
    terms.push(match scalar {
        Bool | I32 | U32 => format!("u32({path})"),
        F32 => format!("u32(i32({path} * 16.0f))"),
        F16 => format!("u32(i32({path} * 4.0h))"),
    });
}
