//! `kiln check`: runs one kernel from a file under the sanitizer.

use super::dims::{Dims, Workgroups};
use super::problem::{Problem, Request};
use super::value::{Uniform, in_short};
use super::{arrays, launch, plan::Plan};
use crate::source_args::{Named, SourceArgs, compile};
use crate::terminal::{self, Report, count, plain};
use crate::{Fallible, settings};
use kiln::kernel::{BindingKind, Finding, Invocation, Reflection};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  kiln check reduce.wgsl                                  a few workgroups on generated inputs
  kiln check saxpy.wgsl --size 1000 --value alpha=2       the last workgroup is partial, which shows faults at the edge
  kiln check blur.wgsl --in from=image.npy --size 640x480 --constant RADIUS=3
  kiln check scan.wgsl --workgroups 4 --shape x=1000 --json

Exit status:
  0  the kernel ran, and no fault was found
  1  a fault was found
  2  the kernel could not be read, compiled or run to completion, or the command line is invalid";

/// Runs a WGSL kernel under the sanitizer and reports its faults.
///
/// Finds out-of-bounds indices, data races between invocations, reads of uninitialised workgroup memory and variables, barriers in
/// non-uniform control flow, and NaN that is computed from numbers and then stored, compared or used as an index. Each fault is reported with its line,
/// variable, index and invocations. Missing arguments are generated: two workgroups along each axis that the workgroup uses; buffers with
/// ascending numbers, one per invocation, or as many as the longest array; the problem size in integer uniforms, 1 in others.
///
/// A comparison of NaN with a number counts as a fault, even as a guard such as `!(x >= 0.0)`. `x != x` tests for NaN and does not count.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// File with the kernel.
    #[arg(value_name = "KERNEL.wgsl")]
    kernel: PathBuf,
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    problem: Problem,
    /// Write one JSON object with the fields `format`, `kernel`, `entry`, `generated`, `findings` and `error`.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Fallible<ExitCode> {
    let report = match check(args) {
        Ok(report) => report,
        Err(error) => return Ok(terminal::could_not_run(&error.to_string())),
    };
    let status = terminal::show(&report, args.json)?;
    Ok(report.error.map_or(status, |error| terminal::could_not_run(&error)))
}

fn check(args: &Args) -> Fallible<CheckReport> {
    // A problem without items runs nothing, so nothing could be found.
    if let Some(Dims(lengths)) = args.problem.size.as_ref().filter(|size| size.0.contains(&0)) {
        let size = lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join("x");
        return Err(format!("`--size` expected at least one item, found `{size}`").into());
    }
    let source = args.source.read(&args.kernel)?;
    let text = source.text().to_string();
    let mut options = settings::cpu_options()?.sanitized(true);
    if args.problem.time_limit.is_some() {
        options = options.time_limit(args.problem.time_limit);
    }
    let device = settings::open_cpu_with(options)?;
    let kernel = compile(&device, source)?;
    let wants = kernel.reflection();
    let (problem, items, mut generated) = args.complete(wants);
    let request = Request { kernel: &args.kernel, problem: &problem, outputs: &[], fill: Some(items) };
    let plan = Plan::new(kernel.name(), wants, request)?;
    let mut bound = arrays::upload(&device, &plan)?;
    for bound in bound.iter().filter(|bound| bound.args.input.is_none()) {
        let name = &bound.args.binding.name;
        generated
            .push(GeneratedInput { name: name.clone(), text: format!("{name} of {} bytes", bound.buffer.bytes()) });
    }
    let outcome = launch(&kernel, &plan, &mut bound);
    // Findings are valid even if the launch failed later.
    let findings = device.take_findings();
    let error = match outcome {
        Err(error) if findings.is_empty() => return Err(error),
        outcome => outcome.err().map(|error| error.to_string()),
    };
    let findings = findings.into_iter().map(|finding| FindingReport::new(finding, &text, &generated)).collect();
    let (kernel, entry) = (kernel.name().to_string(), wants.entry.clone());
    let generated = generated.into_iter().map(|generated| generated.text).collect();
    Ok(CheckReport { kernel, entry, generated, findings, error, has_edges: args.problem.grid().is_some() })
}

/// A value that the command line did not give.
#[derive(Debug)]
struct GeneratedInput {
    /// Name in the kernel; empty if it has none.
    name: String,
    /// `n = 8`
    text: String,
}

impl Args {
    /// Fills in missing values; returns the problem, its number of items, and the generated values.
    fn complete(&self, kernel: &Reflection) -> (Problem, u64, Vec<GeneratedInput>) {
        let mut generated = Vec::new();
        let mut problem = self.problem.clone();
        if problem.grid().is_none() {
            let [x, y, z] = kernel.workgroup_size;
            // Races between workgroups need at least two of them. An axis along which a workgroup has length 1 is
            // assumed to be unused, except x.
            let count = [2, 1 + u32::from(y > 1), 1 + u32::from(z > 1)];
            problem.workgroups = Some(Workgroups(count));
            let text = format!("{}x{}x{} workgroups of {x}x{y}x{z}", count[0], count[1], count[2]);
            generated.push(GeneratedInput { name: String::new(), text });
        }
        let extent: [u64; 3] = match (&problem.size, problem.workgroups) {
            (Some(size), _) => size.extent().into(),
            (None, Some(Workgroups(count))) => {
                std::array::from_fn(|axis| u64::from(count[axis]) * u64::from(kernel.workgroup_size[axis]))
            }
            (None, None) => [1; 3],
        };
        let uniforms = kernel.bindings.iter().filter(|binding| binding.kind == BindingKind::Value);
        for uniform in uniforms.flat_map(Uniform::all) {
            // A struct as a whole is rejected when it is given.
            if self.problem.values.iter().all(|given| given.name != uniform.name) {
                let (value, name) = (uniform.generate(extent), uniform.name);
                generated.push(GeneratedInput { text: format!("{name} = {}", in_short(&value)), name: name.clone() });
                problem.values.push(Named { name, value });
            }
        }
        let items = extent.iter().fold(1u64, |items, length| items.saturating_mul(*length));
        (problem, items, generated)
    }
}

/// The findings. The JSON format is this struct.
#[derive(Debug, Serialize)]
struct CheckReport {
    kernel: String,
    entry: String,
    /// Values that the command line did not give.
    generated: Vec<String>,
    findings: Vec<FindingReport>,
    /// Why the kernel did not run to completion.
    error: Option<String>,
    /// Whether the problem may end within a workgroup; a generated one does not.
    #[serde(skip)]
    has_edges: bool,
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
    source: String,
    /// Made-up values that occur in that line.
    generated: Vec<String>,
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
    fn new(finding: Finding, source: &str, generated: &[GeneratedInput]) -> Self {
        let line = (finding.line as usize).checked_sub(1).and_then(|line| source.lines().nth(line)).unwrap_or_default();
        let used = generated.iter().filter(|generated| mentions(line, &generated.name));
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
            source: line.trim().to_string(),
            generated: used.map(|generated| generated.text.clone()).collect(),
        }
    }
}

/// Returns whether a line of a kernel contains this name.
fn mentions(line: &str, name: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let mut matches = line.match_indices(name).map(|(begin, _)| (&line[..begin], &line[begin + name.len()..]));
    // A member `s.x` does not match `x`.
    !name.is_empty()
        && matches.any(|(before, after)| !before.ends_with(|c| is_part(c) || c == '.') && !after.starts_with(is_part))
}

impl Report for CheckReport {
    fn text(&self) -> String {
        let finding = |finding: &FindingReport| {
            let with = match &finding.generated[..] {
                [] => String::new(),
                generated => format!("    with generated {}\n", plain(&generated.join(", "))),
            };
            format!("{}\n    {}\n{with}", plain(&finding.text), plain(&finding.source))
        };
        let findings: String = self.findings.iter().map(finding).collect();
        let number = self.findings.len() as u64;
        let generated = match (&self.generated[..], number) {
            ([], _) => String::new(),
            (generated, 0) => format!("; generated inputs: {}", plain(&generated.join(", "))),
            (generated, _) => format!("; check the generated inputs first: {}", plain(&generated.join(", "))),
        };
        let found = match number {
            0 if !self.has_edges => "no fault found in whole workgroups (use `--size` for partial ones)".to_string(),
            0 => "no fault found".to_string(),
            number if self.error.is_some() => format!("{} found before the kernel was stopped", count(number, "fault")),
            number => format!("{} found", count(number, "fault")),
        };
        format!("{findings}kernel {}: {found}{generated}\n", plain(&self.kernel))
    }

    fn is_good(&self) -> bool {
        self.findings.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_check() {
        let invocation = Invocation { global_id: [5, 0, 0], local_index: 1, workgroup_id: [1, 0, 0] };
        let finding = Finding {
            kind: kiln::kernel::FindingKind::OutOfBounds,
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
        let report = |findings: Vec<Finding>, generated: &[&str]| CheckReport {
            kernel: "k.wgsl".to_string(),
            entry: "main".to_string(),
            generated: generated.iter().map(ToString::to_string).collect(),
            findings: (findings.into_iter())
                .map(|finding| {
                    let generated = generated.iter().map(|text| GeneratedInput {
                        name: text.split(' ').next().unwrap().to_string(),
                        text: (*text).to_string(),
                    });
                    FindingReport::new(finding, "a\n  y = x[i];\n", &generated.collect::<Vec<_>>())
                })
                .collect(),
            error: None,
            has_edges: true,
        };
        assert_eq!(
            report(vec![finding], &["n = 8", "x of 16 bytes"]).text(),
            "k.wgsl:2:3: out-of-bounds: invocation (5, 0, 0) of workgroup (1, 0, 0) reads index 10 of `x`, which has 4 elements (3 \
             times)\n    y = x[i];\n    with generated x of 16 bytes\nkernel k.wgsl: 1 fault found; check the generated inputs first: n = 8, x of \
             16 bytes\n"
        );
        for (line, name, expected) in [
            ("y[i * cols]", "cols", true),
            ("y[p.cols]", "p.cols", true),
            ("y[p.cols]", "cols", false),
            ("y[p.cols_2]", "p.cols", false),
            ("y[i]", "", false),
        ] {
            assert_eq!(mentions(line, name), expected, "{line} {name}");
        }
        assert_eq!(report(Vec::new(), &[]).text(), "kernel k.wgsl: no fault found\n");
    }
}
