//! A whole program: what it declares, its functions, and the kernel.

use super::Features;
use super::case::Binding;
use super::exact::quantizer_text;
use super::scope::{Access, Function, Generator, Place, Variable};
use super::types::{Scalar, Step, Struct, Type};
use Scalar::{Bool, F16, F32, I32, U32};
use std::rc::Rc;

/// The sizes of workgroups that programs have.
const SIZES: [[usize; 3]; 9] =
    [[1, 1, 1], [8, 1, 1], [64, 1, 1], [7, 1, 1], [4, 4, 1], [3, 5, 2], [256, 1, 1], [16, 1, 1], [1, 1, 33]];
const GRIDS: [[usize; 3]; 5] = [[1, 1, 1], [2, 1, 1], [1, 3, 1], [2, 1, 2], [4, 1, 1]];
/// Elements of each input.
const INPUT_LEN: usize = 48;

/// The most numbers of a variable that a program tells in the end.
const MAX_TERMS: usize = 5;

/// A random program that is valid and has one result. The same seed gives the same program.
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
    generator.header.push(format!("//: seed {seed}"));
    generator.header.push(format!("//: grid {} {} {}", grid[0], grid[1], grid[2]));
    generator.program(size, grid, features.subgroups);
    let enables = has_f16.then(|| "enable f16;".to_string()).into_iter();
    let quantizers = std::mem::take(&mut generator.quantizers);
    let quantizers = quantizers.into_iter().map(|(is_f32, width, is_small)| quantizer_text(is_f32, width, is_small));
    let parts = enables.chain(generator.header).chain(generator.items).chain(quantizers).chain(generator.lines);
    indented(&parts.collect::<Vec<_>>().join("\n"))
}

/// The text with what is in braces moved to the right.
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
    fn program(&mut self, size: [usize; 3], grid: [usize; 3], has_subgroups: bool) {
        let count = size.iter().product::<usize>();
        let all = count * grid.iter().product::<usize>();
        self.structs();
        self.inputs();
        self.constants();
        self.private();
        self.buffer("sum_i", "array<atomic<i32>, 6>", "i", 6);
        self.buffer("sum_u", "array<atomic<u32>, 6>", "u", 6);
        self.buffer("scratch", "array<u32>", "u", all);
        for _ in 0..self.rng.below(3) {
            self.function();
        }
        self.kernel(size, count, all, has_subgroups);
    }

    fn structs(&mut self) {
        for number in 0..1 + self.rng.below(3) {
            let members = (0..1 + self.rng.below(4)).map(|_| self.shared_type(1)).collect::<Vec<_>>();
            let name = format!("S{number}");
            let texts: Vec<String> =
                members.iter().enumerate().map(|(number, ty)| format!("m{number}: {ty}")).collect();
            self.items.push(format!("struct {name} {{ {} }}", texts.join(", ")));
            self.structs.push(Type::Struct(Rc::new(Struct { name, members })));
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
        // Every program has the first members of these.
        let mut members = vec![Type::Scalar(I32), Type::Scalar(U32), Type::Scalar(F32)];
        members.extend((0..self.rng.below(3)).map(|_| self.plain_type()));
        members.push(Type::Matrix(F32, 2 + self.rng.below(3), 2 + self.rng.below(3)));
        members.push(Type::array(Type::Vector(self.choose(&[I32, U32, F32]), 4), 1 + self.rng.below(4)));
        let texts: Vec<String> = members.iter().enumerate().map(|(number, ty)| format!("m{number}: {ty}")).collect();
        self.items.push(format!("struct Params {{ {} }}", texts.join(", ")));
        let params = Type::Struct(Rc::new(Struct { name: "Params".into(), members }));
        self.bind("uniform", "params", "Params", &params.pattern(), 1);
        self.declare("params", params, Access::Read);
    }

    fn input(&mut self, name: &str, ty: Type) {
        self.bind("storage, read", name, &format!("array<{ty}>"), &ty.pattern(), INPUT_LEN);
        self.declare(name, Type::array(ty, INPUT_LEN), Access::Read);
    }

    /// Constants of the module, and such that the caller may set.
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
        let mut types = vec![Type::Scalar(F32), Type::Vector(F32, 2 + self.rng.below(3))];
        if self.has_f16 {
            types.extend([Type::Scalar(F16), Type::Vector(F16, 2 + self.rng.below(3))]);
        }
        for ty in types {
            let name = self.name("a");
            self.items.push(format!("var<private> {name}: {ty};"));
            self.variables.push(Variable { name, ty, access: Access::Write, is_approximate: true });
        }
    }

    fn function(&mut self) {
        let name = self.name("fun");
        let result = if self.chance(85) {
            Some(if self.chance(70) { self.plain_type() } else { self.any_type() })
        } else {
            None
        };
        let parameters: Vec<(Type, bool)> =
            (0..1 + self.rng.below(3)).map(|_| (self.any_type(), self.chance(25))).collect();
        let (mut texts, mut locals) = (Vec::new(), Vec::new());
        for (number, (ty, is_pointer)) in parameters.iter().enumerate() {
            let parameter = format!("p{number}");
            let written = if *is_pointer { format!("ptr<function, {ty}>") } else { ty.to_string() };
            texts.push(format!("{parameter}: {written}"));
            let (name, access) =
                if *is_pointer { (format!("(*{parameter})"), Access::Write) } else { (parameter, Access::Read) };
            locals.push(Variable { name, ty: ty.clone(), access, is_approximate: false });
        }
        let arrow = result.as_ref().map_or(String::new(), |ty| format!(" -> {ty}"));
        self.place = Place { rounds: 1, result: Some(result.clone()), ..Place::default() };
        self.cost = 1;
        let count = 1 + self.rng.below(3);
        self.block(&format!("fn {name}({}){arrow}", texts.join(", ")), &locals, |this| {
            this.statements(count, 1);
            if let Some(ty) = &result {
                let value = this.stored(ty, 2);
                this.line(format!("return {value}; // keep"));
            }
        });
        self.functions.push(Function { name, parameters, result, cost: self.cost });
    }

    fn kernel(&mut self, size: [usize; 3], count: usize, all: usize, has_subgroups: bool) {
        let [x, y, z] = size;
        let subgroup = if has_subgroups { ", @builtin(subgroup_invocation_id) lane: u32" } else { "" };
        self.place = Place { rounds: 1, ..Place::default() };
        self.cost = 0;
        let locals: Vec<Variable> = [
            ("gid", Type::Vector(U32, 3)),
            ("pos", Type::Vector(U32, 3)),
            ("lid", Type::Scalar(U32)),
            ("me", Type::Scalar(U32)),
        ]
        .into_iter()
        .chain(has_subgroups.then_some(("lane", Type::Scalar(U32))))
        .map(|(name, ty)| Variable { name: name.into(), ty, access: Access::Read, is_approximate: false })
        .collect();
        let head = format!(
            "@compute @workgroup_size({x}, {y}, {z}) fn main(@builtin(global_invocation_id) gid: vec3<u32>, \
             @builtin(local_invocation_id) pos: vec3<u32>, @builtin(local_invocation_index) lid: u32, \
             @builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>{subgroup})"
        );
        self.block(&head, &locals, |this| {
            this.line(format!(
                "let me = ((group.z * groups.y + group.y) * groups.x + group.x) * {count}u + lid; // keep"
            ));
            this.statements(2, 1);
            for _ in 0..this.rng.below(2) + usize::from(has_subgroups) {
                this.phase(count, has_subgroups);
                this.statements(1, 1);
            }
            // From here on no invocation waits for another.
            this.place.result = Some(None);
            let (statements, depth) = (1 + this.rng.below(4), 1 + this.rng.below(2));
            this.statements(statements, depth);
            this.outputs(all);
        });
    }

    /// Everything that is in scope, in the end.
    fn outputs(&mut self, all: usize) {
        let visible = self.variables.clone();
        self.buffer("out_sum", "array<u32>", "u", all);
        self.line("var sum = 0u; // keep");
        let is_made = |variable: &&Variable| {
            matches!(variable.access, Access::Write | Access::Local) || variable.name.starts_with('v')
        };
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

/// The numbers of a variable as integers.
fn terms_of(path: &str, ty: &Type, terms: &mut Vec<String>) {
    let Type::Scalar(scalar) = ty else {
        for (step, inner) in ty.inner() {
            match step {
                Step::Member(number) => terms_of(&format!("{path}.m{number}"), &inner, terms),
                Step::Index(len) => (0..len).for_each(|index| terms_of(&format!("{path}[{index}]"), &inner, terms)),
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
