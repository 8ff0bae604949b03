//! One line: a work in one dtype.

use crate::child::{self, Burn};
use kiln::Device;
use kiln_bench::{Arm, Effort, Fault, Number, Ours, Timing, Work, compare};
use serde::Serialize;
use std::cell::RefCell;

/// A work in one dtype, measured.
#[derive(Serialize)]
pub(crate) struct Line {
    work: &'static str,
    dtype: Number,
    ops_per_run: usize,
    kiln: Timing,
    kiln_launches: usize,
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
        let kiln_launches = launches(&ours)?;
        let (ours, native) = (ours.ready(), Ours::with_data(&op, number, &data, cpu)?.ready());
        for ready in [&ours, &native] {
            op.check_on(number, &data, &ready.output()?)?;
        }
        drop(data);
        let burn = RefCell::new(Burn::start(work.id, number));
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
        Ok(Self { work: work.id, dtype: number, ops_per_run, kiln, kiln_launches, burn, burn_launches, cpu: next()? })
    }

    pub(crate) fn print(&self) {
        let Self { work, dtype, kiln, kiln_launches, cpu, .. } = self;
        let per_op = 1e3 / self.ops_per_run as f64;
        let burn = self.burn.as_ref().ok();
        let number = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.4}"));
        let ratio = burn.map_or("-".to_string(), |burn| format!("{:.2}", burn.median / kiln.median));
        let burn_launches = self.burn_launches.map_or("-".to_string(), |count| count.to_string());
        println!(
            "{work:<20} {dtype:>4} {:>10.4} {kiln_launches:>8} {:>10} {burn_launches:>8} {ratio:>6} {:>9.1}%",
            kiln.median * per_op,
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

/// Kernels of a run.
fn launches(ours: &Ours) -> Result<usize, Fault> {
    let kernels = ours.expression()?.iter().map(|result| Ok(result.explain()?.kernels())).sum::<kiln::Result<usize>>();
    Ok(kernels?)
}
