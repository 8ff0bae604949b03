//! `kiln check`: one kernel from a file, run by the sanitizer.

use super::dims::{Dims, Workgroups};
use super::{arrays, launch, plan::Plan, value};
use crate::source_args::{Named, SourceArgs};
use crate::terminal::{self, Report, count, plain};
use crate::{Fallible, settings};
use kiln::{BindingKind, Finding, Invocation, Reflection};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  kiln check reduce.wgsl                                  some work-groups, with numbers made up for what they read
  kiln check saxpy.wgsl --size 1000 --value alpha=2
  kiln check blur.wgsl --in from=image.npy --size 640x480 --constant RADIUS=3
  kiln check scan.wgsl --workgroups 4 --shape x=1000 --json

Exit status:
  0  the kernel ran, and nothing was found
  1  something was found
  2  the kernel could not be read, compiled or run, or the command line was not understood";

/// The exit status where the kernel did not run.
const COULD_NOT_RUN: u8 = 2;

/// Runs a kernel written in WGSL on the processor, and says what is wrong with it.
///
/// Finds indices out of bounds, races between invocations, reads of workgroup memory and of variables that nothing was written
/// to, barriers that not all invocations reach, and NaN made of numbers; each with its line, the variable, the index and the
/// invocations. What the command line does not give is made up: numbers that count up in buffers, as many as there are
/// invocations, the length of the problem in whole numbers, 1 in others.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file with the kernel.
    #[arg(value_name = "KERNEL.wgsl")]
    kernel: PathBuf,
    #[command(flatten)]
    source: SourceArgs,
    /// The array that a buffer begins with: f16, f32, i32 or u32, as the kernel has it. May be given several times.
    #[arg(long = "in", value_name = "BUFFER=FILE.npy", value_parser = Named::<PathBuf>::parse)]
    inputs: Vec<Named<PathBuf>>,
    /// The shape of a buffer in elements: `y=10x20`. May be given several times.
    #[arg(long = "shape", value_name = "BUFFER=SHAPE", value_parser = Named::<Dims>::parse)]
    shapes: Vec<Named<Dims>>,
    /// The number, or the numbers with commas, of a uniform: `n=1000`, `params.scale=0.5`, `v=1,2,3`. May be given several
    /// times.
    #[arg(long = "value", value_name = "UNIFORM=NUMBER", value_parser = Named::<String>::parse)]
    values: Vec<Named<String>>,
    /// The problem: 1000, or 64x32 for x and y, or x, y and z. The kernel runs at least once for each item.
    #[arg(long, value_name = "ITEMS")]
    size: Option<Dims>,
    /// Or how many workgroups run, along x, y and z: `4,1,1`. Two along each axis that a workgroup has, unless one of these
    /// is given.
    #[arg(long, value_name = "X,Y,Z", conflicts_with = "size")]
    workgroups: Option<Workgroups>,
    /// Write one JSON object with the fields `format`, `kernel`, `entry`, `made_up` and `findings`.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    match check(args) {
        Ok(report) => {
            terminal::show(&report, args.json)?;
            Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            // Where standard error is closed too, the exit status still tells.
            let _ = writeln!(io::stderr(), "error: {error}");
            Ok(ExitCode::from(COULD_NOT_RUN))
        }
    }
}

fn check(args: &Args) -> Fallible<CheckReport> {
    let source = args.source.read(&args.kernel)?;
    let text = source.text().to_string();
    let device = settings::open_cpu_with(settings::cpu_options()?.sanitized(true))?;
    let kernel = device.kernel(source)?;
    let wants = kernel.reflection();
    let (problem, mut made_up) = args.complete(wants);
    let plan = Plan::new(kernel.name(), wants, &problem)?;
    let mut bound = arrays::upload(&device, &plan)?;
    for bound in bound.iter().filter(|bound| bound.place.input.is_none()) {
        made_up.push(format!("{} of {} bytes", bound.place.binding.name, bound.buffer.bytes()));
    }
    launch(&kernel, &plan, &mut bound)?;
    let findings = device.take_findings();
    let findings = findings.into_iter().map(|finding| FindingReport::new(finding, &text)).collect();
    Ok(CheckReport { kernel: kernel.name().to_string(), entry: wants.entry.clone(), made_up, findings })
}

impl Args {
    /// The command line of `kiln run` for this kernel, with what is not given made up, and what that is.
    fn complete(&self, kernel: &Reflection) -> (super::Args, Vec<String>) {
        let mut made_up = Vec::new();
        let mut workgroups = self.workgroups;
        if self.size.is_none() && workgroups.is_none() {
            let [x, y, z] = kernel.workgroup_size;
            let count = [2, 1 + u32::from(y > 1), 1 + u32::from(z > 1)];
            workgroups = Some(Workgroups(count));
            made_up.push(format!("{}x{}x{} workgroups of {x}x{y}x{z}", count[0], count[1], count[2]));
        }
        let extent: [u64; 3] = match (&self.size, workgroups) {
            (Some(size), _) => size.extent().into(),
            (None, Some(Workgroups(count))) => {
                std::array::from_fn(|axis| u64::from(count[axis]) * u64::from(kernel.workgroup_size[axis]))
            }
            (None, None) => [1; 3],
        };
        let mut values = self.values.clone();
        let uniforms = kernel.bindings.iter().filter(|binding| binding.kind == BindingKind::Value);
        let names = uniforms.flat_map(|binding| match &binding.members[..] {
            [] => vec![(binding.name.clone(), &binding.type_name)],
            members => {
                members.iter().map(|member| (format!("{}.{}", binding.name, member.name), &member.type_name)).collect()
            }
        });
        for (name, type_name) in names {
            // A struct as a whole is refused where it is given.
            let is_given = self.values.iter().any(|given| given.name == name);
            if let (false, Some(value)) = (is_given, value::make_up(type_name, extent)) {
                made_up.push(format!("{name} = {value}"));
                values.push(Named { name, value });
            }
        }
        let items = extent.iter().fold(1u64, |items, length| items.saturating_mul(*length));
        let problem = super::Args {
            kernel: self.kernel.clone(),
            device: None,
            source: self.source.clone(),
            inputs: self.inputs.clone(),
            outputs: Vec::new(),
            shapes: self.shapes.clone(),
            values,
            size: self.size.clone(),
            workgroups,
            json: self.json,
            fill: Some(items),
        };
        (problem, made_up)
    }
}

/// What was found. The JSON form is this struct.
#[derive(Debug, Serialize)]
struct CheckReport {
    kernel: String,
    entry: String,
    /// What the command line did not give.
    made_up: Vec<String>,
    findings: Vec<FindingReport>,
}

#[derive(Debug, Serialize)]
struct FindingReport {
    kind: &'static str,
    line: u32,
    column: u32,
    variable: Option<String>,
    index: Option<u64>,
    length: Option<u64>,
    invocation: InvocationReport,
    other: Option<InvocationReport>,
    other_line: Option<u32>,
    message: String,
    count: u64,
    /// The line of the source.
    source: String,
    #[serde(skip)]
    text: String,
}

#[derive(Debug, Serialize)]
struct InvocationReport {
    global_id: [u32; 3],
    local_index: u32,
    workgroup_id: [u32; 3],
}

impl From<Invocation> for InvocationReport {
    fn from(Invocation { global_id, local_index, workgroup_id }: Invocation) -> Self {
        Self { global_id, local_index, workgroup_id }
    }
}

impl FindingReport {
    fn new(finding: Finding, source: &str) -> Self {
        let line = (finding.line as usize).checked_sub(1).and_then(|line| source.lines().nth(line));
        Self {
            text: finding.to_string(),
            kind: finding.kind.name(),
            line: finding.line,
            column: finding.column,
            variable: finding.variable,
            index: finding.index,
            length: finding.length,
            invocation: finding.invocation.into(),
            other: finding.other.map(Into::into),
            other_line: finding.other_line,
            message: finding.message,
            count: finding.count,
            source: line.unwrap_or_default().trim().to_string(),
        }
    }
}

impl Report for CheckReport {
    fn text(&self) -> String {
        let finding = |finding: &FindingReport| format!("{}\n    {}\n", plain(&finding.text), plain(&finding.source));
        let findings: String = self.findings.iter().map(finding).collect();
        let made_up = match &self.made_up[..] {
            [] => String::new(),
            made_up => format!("; made up: {}", plain(&made_up.join(", "))),
        };
        let found = match self.findings.len() {
            0 => "nothing was found".to_string(),
            number => format!("{} found", count(number as u64, "fault")),
        };
        format!("{findings}kernel {}: {found}{made_up}\n", plain(&self.kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_check() {
        let invocation = Invocation { global_id: [5, 0, 0], local_index: 1, workgroup_id: [1, 0, 0] };
        let finding = Finding {
            kind: kiln::FindingKind::OutOfBounds,
            kernel: "k.wgsl".to_string(),
            line: 2,
            column: 3,
            variable: Some("x".to_string()),
            index: Some(10),
            length: Some(4),
            invocation,
            other: None,
            other_line: None,
            message: format!("{invocation} reads index 10 of `x`, which has 4 elements"),
            count: 3,
        };
        let report = |findings: Vec<Finding>, made_up: &[&str]| CheckReport {
            kernel: "k.wgsl".to_string(),
            entry: "main".to_string(),
            made_up: made_up.iter().map(ToString::to_string).collect(),
            findings: findings.into_iter().map(|finding| FindingReport::new(finding, "a\n  y = x[i];\n")).collect(),
        };
        assert_eq!(
            report(vec![finding], &["n = 8", "x of 16 bytes"]).text(),
            "k.wgsl:2:3: out-of-bounds: invocation (5, 0, 0) of work-group (1, 0, 0) reads index 10 of `x`, which has 4 elements (3 \
             times)\n    y = x[i];\nkernel k.wgsl: 1 fault found; made up: n = 8, x of 16 bytes\n"
        );
        assert_eq!(report(Vec::new(), &[]).text(), "kernel k.wgsl: nothing was found\n");
    }
}
