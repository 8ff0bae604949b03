//! One line: a work in one dtype.

use crate::child::{self, Burn};
use kiln::Device;
use kiln_bench::{Arm, Closeness, Effort, Fault, Number, Ours, Timing, Work, compare};
use serde::Serialize;
use std::cell::RefCell;

/// A work in one dtype, measured.
#[derive(Serialize)]
pub(crate) struct Line {
    work: &'static str,
    dtype: Number,
    ops_per_run: usize,
    kiln: Timing,
    kiln_launches: u64,
    /// Whose outputs are further off than some roundings of the result explain.
    rough: Vec<&'static str>,
    burn: Result<Timing, String>,
    burn_launches: Option<usize>,
    /// Kiln's own CPU device.
    cpu: Timing,
}

impl Line {
    pub(crate) fn measure(
        work: &'static Work,
        number: Number,
        gpu: &Device,
        cpu: &Device,
        effort: &Effort,
    ) -> Result<Self, Fault> {
        let op = work.op;
        let data = op.data(number);
        let ours = Ours::with_data(&op, number, &data, gpu)?;
        let (ours, native) = (ours.ready(), Ours::with_data(&op, number, &data, cpu)?.ready());
        let mut rough = Vec::new();
        for (name, ready) in [("kiln", &ours), ("kiln-cpu", &native)] {
            if op.check_on(number, &data, &ready.output()?)? == Closeness::Rough {
                rough.push(name);
            }
        }
        drop(data);
        // Not among the first runs, in which inputs are brought and plans made.
        let before = gpu.launches();
        ours.run()?;
        let kiln_launches = gpu.launches() - before;
        let burn = Burn::start(work.id, number);
        if burn.as_ref().is_ok_and(Burn::is_rough) {
            rough.push("burn");
        }
        let burn = RefCell::new(burn);
        let turn = || match &mut *burn.borrow_mut() {
            Ok(burn) => burn.run(),
            Err(fault) => Err(fault.to_string().into()),
        };
        let mut arms = [ours.arm("kiln"), Arm::new("burn", turn), native.arm("kiln-cpu")];
        let mut timings = compare(&mut arms, effort).into_iter();
        let mut next = || timings.next().unwrap_or_else(|| Err("expected a timing of each arm".into()));
        let (kiln, burn) = (next()?, next().map_err(|fault| fault.to_string()));
        let burn_launches = burn.as_ref().ok().and_then(|_| child::launches(work.id, number).ok());
        let ops_per_run = op.ops_per_run();
        let cpu = next()?;
        Ok(Self { work: work.id, dtype: number, ops_per_run, kiln, kiln_launches, rough, burn, burn_launches, cpu })
    }

    pub(crate) fn print(&self) {
        let Self { work, dtype, kiln, kiln_launches, cpu, .. } = self;
        let per_op = 1e3 / self.ops_per_run as f64;
        let burn = self.burn.as_ref().ok();
        let sign = |name| if self.rough.contains(&name) { "~" } else { "" };
        let number = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{}{value:.4}", sign("burn")));
        let ratio = burn.map_or("-".to_string(), |burn| format!("{:.2}", burn.median / kiln.median));
        let burn_launches = self.burn_launches.map_or("-".to_string(), |count| count.to_string());
        println!(
            "{work:<20} {dtype:>4} {:>10} {kiln_launches:>8} {:>10} {burn_launches:>8} {ratio:>6} {:>9.1}%",
            format!("{}{:.4}", sign("kiln"), kiln.median * per_op),
            number(burn.map(|burn| burn.median * per_op)),
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
        "work (ms; adds: per op)", "", "kiln", "launches", "burn", "launches", "ratio", "of CPU"
    );
}
