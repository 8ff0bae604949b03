//! Runs a whole validation.

use crate::claim::{Claim, Context, Evidence};
use crate::claims::claims;
use crate::clock::{Clock, SystemClock};
use crate::limits::DeviceLimits;
use crate::machine;
use crate::report::{FORMAT, MachineLimits, Plots, Report, Summary};
use kiln::{Device, DeviceKind};
use kiln_bench::{Fault, SamplingConfig};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// What to validate, and how long.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    quick: bool,
    only: Option<Vec<String>>,
    program: Option<PathBuf>,
    seed: u64,
}

impl Options {
    /// Creates options for all claims, which take a few minutes.
    pub fn new() -> Self {
        Self { quick: false, only: None, program: None, seed: 1 }
    }

    /// Creates options for smaller workloads and fewer samples, which take less than a minute.
    pub fn quick() -> Self {
        Self { quick: true, ..Self::new() }
    }

    /// Selects claims by name, or by a prefix of the name up to a dash. They run even if the quick set does not include them.
    ///
    /// # Errors
    /// Returns the first name that matches no claim.
    pub fn only(mut self, names: &[impl AsRef<str>]) -> Result<Self, UnknownClaim> {
        let names: Vec<String> = names.iter().map(|name| name.as_ref().to_string()).collect();
        if let Some(name) = names.iter().find(|name| !claims().iter().any(|claim| selects(name, claim))) {
            return Err(UnknownClaim(name.clone()));
        }
        self.only = Some(names);
        Ok(self)
    }

    /// Sets the `kiln` program, for claims about fresh processes. Without it they are not shown.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Sets the seed of the arm order.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Returns the selected claims.
    pub fn claims(&self) -> impl Iterator<Item = &'static Claim> + '_ {
        claims().iter().filter(|claim| match &self.only {
            Some(names) => names.iter().any(|name| selects(name, claim)),
            None => claim.in_quick || !self.quick,
        })
    }

    fn sampling(&self) -> SamplingConfig {
        let (budget, min_samples) =
            if self.quick { (Duration::from_millis(300), 9) } else { (Duration::from_secs(2), 21) };
        SamplingConfig { budget, min_samples, max_samples: 200, seed: self.seed, ..SamplingConfig::new() }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

fn selects(name: &str, claim: &Claim) -> bool {
    claim.id == name || claim.id.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
}

/// The error for a name that matches no claim.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownClaim(pub String);

impl std::fmt::Display for UnknownClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected the name of a claim, found `{}`", self.0)
    }
}

impl std::error::Error for UnknownClaim {}

/// Progress of a validation.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Steps done, including measuring the machine and the devices.
    pub done: usize,
    /// Total number of steps.
    pub steps: usize,
    /// The next step: a claim, `machine limits` or `device limits`; empty at the end.
    pub next: &'a str,
    /// Device of the next step; empty for the machine and at the end.
    pub device: &'a str,
}

/// Measures the machine, then every claim on every device that it applies to.
///
/// See the [crate documentation](crate) for an example.
///
/// # Errors
/// Returns an error if there is nothing to validate. A claim that cannot run, or whose device has no measurable limits, ends as not shown.
pub fn validate(
    devices: &[Device],
    options: &Options,
    on_progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report, Fault> {
    let steps: Vec<(&Device, &Claim, f64)> =
        devices.iter().flat_map(|device| applicable_claims(device, options)).collect();
    if steps.is_empty() {
        return Err("expected claims about these devices, found none".into());
    }
    let clock = SystemClock::default();
    let count = 1 + devices.len() + steps.len();
    on_progress(Progress { done: 0, steps: count, next: "machine limits", device: "" });
    let began_unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut report = Report {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_string(),
        quick: options.quick,
        began_unix_s,
        took_s: 0.0,
        machine: machine::machine(devices, &clock),
        limits: MachineLimits::default(),
        claims: Vec::new(),
        summary: Summary::default(),
        plots: Plots::default(),
    };
    report.limits = machine::limits(&clock);
    let mut done = 1;
    for device in devices {
        let id = device.info().id.as_str();
        on_progress(Progress { done, steps: count, next: "device limits", device: id });
        let mut limits =
            DeviceLimits::measure(device).map_err(|fault| format!("cannot measure the limits of the device: {fault}"));
        done += 1;
        for (_, claim, target) in steps.iter().filter(|(of, ..)| of.is_same(device)) {
            on_progress(Progress { done, steps: count, next: claim.id, device: id });
            let evidence = match &mut limits {
                Ok(limits) => (claim.run)(&mut Context {
                    device,
                    limits,
                    sampling: options.sampling(),
                    quick: options.quick,
                    clock: &clock,
                    program: options.program.as_deref(),
                    plots: &mut report.plots,
                }),
                // One broken device must not stop the claims about the others.
                Err(reason) => Ok(Evidence::Declined(reason.clone())),
            };
            report.claims.push(claim.outcome(id, *target, evidence));
            done += 1;
        }
        if let Ok(limits) = &mut limits {
            // After the claims, because they measure bandwidths on demand and improve the limits.
            report.limits.devices.push(machine::device_roofline(id, limits));
            report.limits.bandwidths.extend(machine::bandwidths(limits));
        }
    }
    report.summary = Summary::of(&report.claims);
    // The clock starts at 0 when it is created.
    report.took_s = clock.now();
    on_progress(Progress { done, steps: count, next: "", device: "" });
    Ok(report)
}

/// Returns the claims that apply to a device, with their targets.
fn applicable_claims<'a>(
    device: &'a Device,
    options: &'a Options,
) -> impl Iterator<Item = (&'a Device, &'static Claim, f64)> {
    let is_cpu = device.info().kind == DeviceKind::Cpu;
    options.claims().filter_map(move |claim| {
        let target = if is_cpu { claim.target.cpu } else { claim.target.gpu };
        Some((device, claim, target?))
    })
}
