//! Matches the command line with the kernel's bindings. Reads no file and opens no device.

use super::dims::Dims;
use super::element::Element;
use super::files;
use super::problem::{Problem, Request};
use super::value::Uniform;
use crate::Fallible;
use crate::npy::tuple;
use crate::source_args::{Named, repeated};
use crate::terminal::table;
use kiln::kernel::{Binding, BindingKind, Grid, Reflection, Value};
use std::path::Path;

/// The arguments of a launch, as far as they are known before files are read.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) buffers: Vec<BufferArgs<'a>>,
    pub(super) values: Vec<(&'a str, Value)>,
    pub(super) grid: Grid,
    /// Problem size, if given instead of workgroups.
    pub(super) size: Option<&'a Dims>,
    /// Number of elements for buffers without an input, if they are filled with numbers and not zeros.
    pub(super) fill: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BufferArgs<'a> {
    pub(super) binding: &'a Binding,
    /// Initial contents; zeros if absent.
    pub(super) input: Option<&'a Path>,
    /// Destination of its contents after the run.
    pub(super) output: Option<&'a Path>,
    /// In elements.
    pub(super) shape: Option<&'a Dims>,
}

impl<'a> Plan<'a> {
    /// Matches the arguments with the kernel. One error lists everything that is missing.
    pub(super) fn new(name: &str, kernel: &'a Reflection, request: Request<'a>) -> Fallible<Self> {
        let problem = request.problem;
        if let Some(size) = &problem.size {
            size.check_problem().map_err(|error| format!("`--size`: {error}"))?;
        }
        check_names(kernel, request)?;
        files::check(request)?;
        kernel.bindings.iter().try_for_each(|binding| check_shape(binding, request))?;
        let values = problem.values.iter().map(|given| parse_value(kernel, given)).collect::<Fallible<Vec<_>>>()?;
        let visible = || kernel.bindings.iter().filter(|binding| binding.kind != BindingKind::Grid);
        let buffers: Vec<BufferArgs<'_>> =
            visible().filter(|binding| binding.kind.is_buffer()).map(|b| buffer_args(b, request)).collect();
        let mut missing: Vec<Vec<String>> = Vec::new();
        for binding in visible() {
            match buffers.iter().find(|args| args.binding.name == binding.name) {
                Some(args) => missing.extend(missing_of_buffer(args, request)),
                None => missing.extend(missing_of_value(binding, problem)),
            }
        }
        let grid = problem.grid();
        if grid.is_none() {
            missing.push(["problem size", "--size ITEMS, or --workgroups X,Y,Z"].map(str::to_string).to_vec());
        }
        match grid {
            Some(grid) if missing.is_empty() => {
                Ok(Self { buffers, values, grid, size: problem.size.as_ref(), fill: request.fill })
            }
            _ => Err(format!("kernel `{name}` has missing arguments:\n{}", indented(&missing)).into()),
        }
    }
}

fn indented(rows: &[Vec<String>]) -> String {
    let lines: Vec<String> = table(rows).lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

/// Checks that every name is a buffer that accepts the argument, and is given once.
fn check_names(kernel: &Reflection, request: Request<'_>) -> Fallible<()> {
    let Request { problem, outputs, .. } = request;
    let files = |given: &[Named<std::path::PathBuf>]| given.iter().map(|named| named.name.clone()).collect::<Vec<_>>();
    let shapes = problem.shapes.iter().map(|named| named.name.clone()).collect();
    for (option, names) in [("--in", files(&problem.inputs)), ("--out", files(outputs)), ("--shape", shapes)] {
        for name in &names {
            let (_, binding) =
                kernel.find(name.as_str().into()).map_err(|error| error.context(format!("`{option}`")))?;
            if !binding.kind.is_buffer() {
                return Err(format!("binding {binding} expected `--value {name}=…`, found `{option}`").into());
            }
            if repeated(&names) == Some(name) {
                return Err(format!("binding {binding} expected `{option}` once, found it twice").into());
            }
            if option == "--out" && binding.kind == BindingKind::Read {
                return Err(
                    format!("binding {binding} expected no `--out`, because the kernel does not write it").into()
                );
            }
        }
    }
    if let Some(name) = repeated(problem.values.iter().map(|named| &named.name)) {
        return Err(format!("value `{name}` expected `--value` once, found it twice").into());
    }
    Ok(())
}

/// Refuses a shape without effect: the type fixes the number of elements, and there is no file to match.
fn check_shape(binding: &Binding, request: Request<'_>) -> Fallible<()> {
    let BufferArgs { input, shape, .. } = buffer_args(binding, request);
    let Some(shape) = shape.filter(|_| input.is_none() && binding.stride_bytes.is_none() && binding.tail.is_none())
    else {
        return Ok(());
    };
    let count: u64 = Element::of(binding).count.map_or(1, |count| count.iter().product());
    if shape.elem_count() == Some(count) {
        return Ok(());
    }
    let (wanted, found) = (crate::terminal::count(count, "element"), tuple(&shape.0));
    Err(format!("binding {binding} expected a `--shape` of {wanted}, the length of its type, found {found}").into())
}

/// Parses the value of a uniform, or of a member of one (`params.scale`).
fn parse_value<'a>(kernel: &'a Reflection, given: &'a Named<String>) -> Fallible<(&'a str, Value)> {
    let Named { name, value: text } = given;
    let (variable, member) = name.split_once('.').map_or((name.as_str(), None), |(name, member)| (name, Some(member)));
    let (_, binding) = kernel.find(variable.into()).map_err(|error| error.context("`--value`"))?;
    if binding.kind.is_buffer() {
        return Err(format!(
            "binding {binding} expected an array, as with `--in {variable}=FILE.npy`, found `--value`"
        )
        .into());
    }
    let members = || binding.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join(", ");
    let uniform = Uniform::all(binding).into_iter().find(|uniform| uniform.name == *name);
    let uniform = uniform.ok_or_else(|| {
        let found = member.map_or_else(|| "the whole struct".to_string(), |member| format!("`{member}`"));
        format!("value `{variable}` expected one of its members ({}), found {found}", members())
    })?;
    let value = uniform.parse(text).map_err(|error| format!("value `{name}`: {error}"))?;
    Ok((name, value))
}

fn buffer_args<'a>(binding: &'a Binding, request: Request<'a>) -> BufferArgs<'a> {
    BufferArgs {
        binding,
        input: find(&request.problem.inputs, &binding.name).map(AsRef::as_ref),
        output: find(request.outputs, &binding.name).map(AsRef::as_ref),
        shape: find(&request.problem.shapes, &binding.name),
    }
}

fn find<'a, T>(given: &'a [Named<T>], name: &str) -> Option<&'a T> {
    given.iter().find(|named| named.name == name).map(|named| &named.value)
}

/// Returns what a buffer lacks: its description, and the option to write.
fn missing_of_buffer(args: &BufferArgs<'_>, request: Request<'_>) -> Option<Vec<String>> {
    let BufferArgs { binding, input, output, shape } = args;
    let name = &binding.name;
    let hint = match binding.kind {
        _ if input.is_some() || request.fill.is_some() => return None,
        BindingKind::Read => format!("--in {name}=FILE.npy"),
        // Scratch memory, zeroed.
        _ if output.is_none() && shape.is_some() => return None,
        // Its elements are structs, which `.npy` files do not support.
        _ if binding.scalar.is_none() => {
            let has_length = binding.stride_bytes.is_some() || binding.tail.is_some();
            let zeros = if has_length { format!("; or --shape {name}=LENGTH") } else { String::new() };
            format!("--in {name}=FILE.npy, optionally with --out {name}=FILE.npy{zeros}")
        }
        _ if output.is_none() && shape.is_none() => format!("--in {name}=FILE.npy, or --out {name}=FILE.npy, or both"),
        // Neither the kernel, nor the problem, nor the user gives a length.
        _ if binding.stride_bytes.is_some() && shape.is_none() && request.problem.workgroups.is_some() => {
            format!("--shape {name}=LENGTH")
        }
        _ => return None,
    };
    Some(vec![binding.to_string(), hint])
}

fn missing_of_value(binding: &Binding, problem: &Problem) -> Vec<Vec<String>> {
    let missing = Uniform::all(binding).into_iter().filter(|uniform| find(&problem.values, &uniform.name).is_none());
    let row = |uniform: Uniform<'_>| {
        let Uniform { name, type_name, .. } = &uniform;
        vec![format!("{name}: {type_name} (value)"), format!("--value {name}={}", uniform.placeholder())]
    };
    missing.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Args;
    use super::*;
    use clap::Parser;
    use kiln::kernel::{Member, Scalar, Tail, ValueLayout};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn binding(name: &str, kind: BindingKind, type_name: &str, scalar: Option<Scalar>) -> Binding {
        Binding {
            name: name.to_string(),
            group: 0,
            binding: 0,
            kind,
            type_name: type_name.to_string(),
            scalar,
            min_bytes: 4,
            stride_bytes: type_name.starts_with("array").then_some(4),
            tail: None,
            layout: scalar.map(ValueLayout::One),
            members: Vec::new(),
        }
    }

    fn kernel() -> Reflection {
        let one = |scalar: Scalar| ValueLayout::One(scalar);
        let repeated = |count, stride_bytes, of| ValueLayout::Repeated { count, stride_bytes, of: Box::new(of) };
        let member = |name: &str, type_name: &str, bytes: u32, numbers: ValueLayout| Member {
            name: name.to_string(),
            type_name: type_name.to_string(),
            offset: 0,
            bytes,
            layout: Some(numbers),
        };
        let members = vec![
            member("scale", "f32", 4, one(Scalar::F32)),
            member("shift", "vec2<i32>", 8, repeated(2, 4, one(Scalar::I32))),
        ];
        let matrix = repeated(2, 8, repeated(2, 4, one(Scalar::F32)));
        Reflection {
            entry: "main".to_string(),
            workgroup_size: [64, 1, 1],
            workgroup_bytes: 0,
            bindings: vec![
                binding("x", BindingKind::Read, "array<f32>", Some(Scalar::F32)),
                binding("y", BindingKind::ReadWrite, "array<f32>", Some(Scalar::F32)),
                binding("points", BindingKind::ReadWrite, "array<Point>", None),
                binding("n", BindingKind::Value, "u32", Some(Scalar::U32)),
                Binding { members, ..binding("params", BindingKind::Value, "Params", None) },
                Binding {
                    layout: Some(matrix),
                    min_bytes: 16,
                    ..binding("m", BindingKind::Value, "mat2x2<f32>", Some(Scalar::F32))
                },
                Binding {
                    stride_bytes: None,
                    tail: Some(Tail { offset: 16, stride_bytes: 32 }),
                    ..binding("world", BindingKind::ReadWrite, "World", None)
                },
                Binding {
                    stride_bytes: None,
                    ..binding("four", BindingKind::ReadWrite, "array<f32, 4>", Some(Scalar::F32))
                },
                binding("part", BindingKind::Grid, "vec3<u32>", Some(Scalar::U32)),
            ],
        }
    }

    /// Returns the error of a command line, or the planned buffers.
    fn outcome(line: &str) -> String {
        let args = Line::try_parse_from(["kiln", "k.wgsl"].into_iter().chain(line.split_whitespace())).unwrap().args;
        match Plan::new("k.wgsl", &kernel(), args.request()) {
            Ok(plan) => format!("{:?}", plan.buffers.iter().map(|args| &args.binding.name).collect::<Vec<_>>()),
            Err(error) => error.to_string(),
        }
    }

    /// Missing, unknown and mismatched arguments are reported before anything is submitted.
    #[test]
    fn command_lines_that_a_kernel_does_not_take() {
        let lines = [
            "",
            "--in x=x.npy --out y=y.npy --value n=1 --value params.scale=2 --workgroups 4",
            "--in x=x.npy --out points=p.npy --shape y=5 --shape points=5 --workgroups 4",
            "--in z=x.npy",
            "--out n=n.npy",
            "--out x=x.npy",
            "--in x=a.npy --in x=b.npy",
            "--out y=a.npy --out points=./a.npy",
            "--in x=a.npy --out y=a.npy",
            "--in x=a.npy --in y=a.npy --in points=a.npy --out y=a.npy --out points=a.npy",
            "--out y=../kiln-command/k.wgsl",
            "--value n=1 --value n=1",
            "--value params.scale=1 --value params.shift=1,1 --value params.scale=1",
            "--shape q=5",
            "--value q=5",
            "--value x=5",
            "--value n=-5",
            "--value n=1,2",
            "--value params=1",
            "--value params.size=1",
            "--value params.shift=1",
            "--value m=1,2,3",
            "--value part=1,2,3",
            "--size 2x2x2x2",
            "--in x=x.npy --shape y=5 --shape points=5 --shape world=5 --shape four=2x2 --value n=1 --value params.scale=2 --value \
             params.shift=1,1 --value m=1,2,3,4 --size 8",
            "--out world=w.npy --shape world=5 --shape four=5",
            "--shape four=3",
        ];
        let outcomes: Vec<String> = lines.iter().map(|line| format!("$ {line}\n{}", outcome(line))).collect();
        insta::assert_snapshot!("refused", outcomes.join("\n\n"));
    }

    #[test]
    fn buffer_with_a_shape_alone_is_scratch_memory() {
        let mut kernel = kernel();
        kernel.bindings.retain(|binding| ["y", "n"].contains(&binding.name.as_str()));
        let line = ["kiln", "k.wgsl", "--shape", "y=5", "--value", "n=1", "--size", "8x2"];
        let args = Line::try_parse_from(line).unwrap().args;
        let plan = Plan::new("k.wgsl", &kernel, args.request()).unwrap();
        assert_eq!((plan.buffers.len(), plan.values.len(), plan.grid), (1, 1, Grid::over((8, 2))));
        assert!(plan.buffers[0].input.is_none() && plan.buffers[0].output.is_none());
    }
}
