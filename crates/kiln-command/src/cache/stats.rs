//! `kiln cache stats`.

use super::stored::{self, State, StoredKernel, text};
use crate::Fallible;
use crate::kernel_dir::{KernelDir, write_fault};
use crate::terminal::{Report, count, plain, table, table_of, word};
use kiln::cache::store::StoreOptions;
use kiln::ir::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;

/// Entries by device, and the remaining capacity.
#[derive(Debug, Serialize)]
pub(super) struct Stats {
    directory: String,
    entries: u64,
    bytes: u64,
    max_entries: u64,
    max_bytes: u64,
    /// Total reads of the stored entries.
    uses: u64,
    /// Why nothing can be stored now.
    write_fault: Option<String>,
    groups: Vec<Group>,
}

/// Stored kernels of one device and driver, in one state.
#[derive(Debug, Serialize)]
struct Group {
    device: Option<String>,
    driver: Option<String>,
    driver_version: Option<String>,
    state: State,
    entries: u64,
    bytes: u64,
}

pub(super) fn gather(dir: &KernelDir) -> Fallible<Stats> {
    let fault = dir.open_existing()?.and_then(|store| write_fault(&store.statistics()));
    Ok(Stats::new(dir.path().display().to_string(), &stored::gather(dir)?, fault))
}

impl Stats {
    fn new(directory: String, kernels: &[StoredKernel], write_fault: Option<String>) -> Self {
        // A sorted map, so that the report lists the groups in the same order each time.
        let mut groups: BTreeMap<_, (u64, u64)> = BTreeMap::new();
        for kernel in kernels {
            let StoredKernel { device, driver, driver_version, state, bytes, .. } = kernel;
            let group = groups.entry((device, driver, driver_version, state)).or_default();
            *group = (group.0 + 1, group.1 + bytes);
        }
        let groups = groups.into_iter().map(|((device, driver, driver_version, state), (entries, bytes))| Group {
            device: device.clone(),
            driver: driver.clone(),
            driver_version: driver_version.clone(),
            state: *state,
            entries,
            bytes,
        });
        let limits = StoreOptions::new();
        Self {
            directory,
            entries: kernels.len() as u64,
            bytes: kernels.iter().map(|kernel| kernel.bytes).sum(),
            max_entries: limits.max_entries(),
            max_bytes: limits.max_bytes(),
            uses: kernels.iter().map(|kernel| kernel.uses).sum(),
            write_fault,
            groups: groups.collect(),
        }
    }

    fn in_state(&self, state: State) -> (u64, u64) {
        let groups = self.groups.iter().filter(|group| group.state == state);
        groups.fold((0, 0), |sum, group| (sum.0 + group.entries, sum.1 + group.bytes))
    }
}

impl Report for Stats {
    fn text(&self) -> String {
        let share = |part: u64, whole: u64| format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64);
        let row = |what: &str, text: String| vec![what.to_string(), text];
        let (entries, bytes) = (share(self.entries, self.max_entries), share(self.bytes, self.max_bytes));
        let mut rows = vec![
            row("directory", plain(&self.directory)),
            row("kernels", format!("{} of at most {} ({entries})", self.entries, self.max_entries)),
            row("size", format!("{} of at most {} ({bytes})", Bytes(self.bytes), Bytes(self.max_bytes))),
            row("uses", self.uses.to_string()),
        ];
        for state in State::ALL {
            let (entries, bytes) = self.in_state(state);
            rows.push(row(&word(&state), format!("{} ({})", count(entries, "kernel"), Bytes(bytes))));
        }
        if let Some(fault) = &self.write_fault {
            rows.push(row("not written", plain(fault)));
        }
        let mut out = table(&rows);
        if !self.groups.is_empty() {
            let heading = ["DEVICE", "DRIVER", "VERSION", "STATE", "KERNELS", "SIZE"];
            out += &format!("\n{}", table_of(&heading, self.groups.iter().map(group_row)));
        }
        out
    }
}

fn group_row(group: &Group) -> Vec<String> {
    vec![
        text(&group.device),
        text(&group.driver),
        text(&group.driver_version),
        word(&group.state),
        group.entries.to_string(),
        Bytes(group.bytes).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::list::tests::toy_kernels;

    #[test]
    fn numbers_of_four_kernels_and_of_none() {
        let stats = |kernels: &[StoredKernel], fault: Option<&str>| {
            Stats::new("/home/me/.cache/kiln/kernels".to_string(), kernels, fault.map(str::to_string))
        };
        insta::assert_snapshot!("stats", stats(&toy_kernels(), None).text());
        insta::assert_snapshot!("stats_of_nothing", stats(&[], Some("read-only file system")).text());
        insta::assert_snapshot!("stats_json", serde_json::to_string_pretty(&stats(&toy_kernels(), None)).unwrap());
    }
}
