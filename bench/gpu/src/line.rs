//! One line of the table: a workload in one dtype.

use crate::child::{self, Burn};
use kiln::Device;
use kiln_bench::{Arm, Closeness, ElementType, Fault, KilnWorkload, SamplingConfig, Timing, Workload, compare};
use serde::Serialize;
use std::cell::RefCell;

/// The measurement of a workload in one dtype.
#[derive(Serialize)]
pub(crate) struct Line {
    workload: &'static str,
    dtype: ElementType,
    ops_per_run: usize,
    kiln: Timing,
    kiln_launches: u64,
    /// Arms whose outputs are less accurate than their dtype allows.
    rough: Vec<&'static str>,
    burn: Result<Timing, String>,
    burn_launches: Option<usize>,
    /// Kiln on its CPU device.
    cpu: Timing,
}

impl Line {
    pub(crate) fn measure(
        workload: &'static Workload,
        dtype: ElementType,
        gpu: &Device,
        cpu: &Device,
        sampling: &SamplingConfig,
    ) -> Result<Self, Fault> {
        let op = workload.op;
        let data = op.data(dtype);
        let kiln = KilnWorkload::with_data(&op, dtype, &data, gpu)?;
        let (kiln, native) = (kiln.into_prepared(), KilnWorkload::with_data(&op, dtype, &data, cpu)?.into_prepared());
        let mut rough = Vec::new();
        for (name, prepared) in [("kiln", &kiln), ("kiln-cpu", &native)] {
            if op.check_on(dtype, &data, &prepared.output()?)? == Closeness::Rough {
                rough.push(name);
            }
        }
        drop(data);
        // After the first run, which uploads inputs and makes plans.
        let before = gpu.launches();
        kiln.run()?;
        let kiln_launches = gpu.launches() - before;
        let burn = Burn::start(workload.id, dtype);
        if burn.as_ref().is_ok_and(Burn::is_rough) {
            rough.push("burn");
        }
        let burn = RefCell::new(burn);
        let run_burn = || match &mut *burn.borrow_mut() {
            Ok(burn) => burn.run(),
            Err(fault) => Err(fault.to_string().into()),
        };
        let mut arms = [kiln.arm("kiln"), Arm::new("burn", run_burn), native.arm("kiln-cpu")];
        let mut timings = compare(&mut arms, sampling).into_iter();
        let mut next = || timings.next().unwrap_or_else(|| Err("expected a timing of each arm".into()));
        let (kiln, burn) = (next()?, next().map_err(|fault| fault.to_string()));
        let burn_launches = burn.as_ref().ok().and_then(|_| child::launches(workload.id, dtype).ok());
        let ops_per_run = op.ops_per_run();
        let cpu = next()?;
        Ok(Self { workload: workload.id, dtype, ops_per_run, kiln, kiln_launches, rough, burn, burn_launches, cpu })
    }

    /// Prints the line. The last column is the speed of the GPU relative to the CPU device; `~` marks a rough output.
    pub(crate) fn print(&self) {
        let Self { workload, dtype, kiln, kiln_launches, cpu, .. } = self;
        let per_op = 1e3 / self.ops_per_run as f64;
        let burn = self.burn.as_ref().ok();
        let sign = |name| if self.rough.contains(&name) { "~" } else { "" };
        let cell = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{}{value:.4}", sign("burn")));
        let ratio = burn.map_or("-".to_string(), |burn| format!("{:.2}", burn.median / kiln.median));
        let burn_launches = self.burn_launches.map_or("-".to_string(), |count| count.to_string());
        println!(
            "{workload:<20} {dtype:>4} {:>10} {kiln_launches:>8} {:>10} {burn_launches:>8} {ratio:>6} {:>9.1}%",
            format!("{}{:.4}", sign("kiln"), kiln.median * per_op),
            cell(burn.map(|burn| burn.median * per_op)),
            cpu.median / kiln.median * 100.0,
        );
        if let Err(reason) = &self.burn {
            println!("    burn: {reason}");
        }
    }
}

pub(crate) fn print_head() {
    println!(
        "{:<20} {:>4} {:>10} {:>8} {:>10} {:>8} {:>6} {:>10}",
        "workload (ms; adds: per op)", "", "kiln", "launches", "burn", "launches", "ratio", "of CPU"
    );
}
