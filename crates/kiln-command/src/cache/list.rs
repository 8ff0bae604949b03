//! `kiln cache list`.

use super::stored::{self, StoredKernel, text};
use super::units::age;
use crate::Fallible;
use crate::kernel_dir::KernelDir;
use crate::terminal::{Report, count, plain, table_of, word};
use kiln::ir::Bytes;
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// The stored kernels.
#[derive(Debug, Serialize)]
pub(super) struct List {
    pub(super) directory: String,
    pub(super) kernels: Vec<StoredKernel>,
    /// Seconds since the Unix epoch.
    #[serde(skip)]
    pub(super) now: u64,
}

pub(super) fn gather(dir: &KernelDir) -> Fallible<List> {
    let (directory, now) = (dir.path().display().to_string(), stored::seconds(SystemTime::now()));
    Ok(List { directory, kernels: stored::gather(dir)?, now })
}

impl Report for List {
    fn text(&self) -> String {
        let directory = plain(&self.directory);
        if self.kernels.is_empty() {
            return format!("no kernels are stored in {directory}\n");
        }
        let heading = ["HASH", "KERNEL", "ENTRY", "DEVICE", "DRIVER", "VERSION", "SIZE", "USES", "LAST USED", "STATE"];
        let table = table_of(&heading, self.kernels.iter().map(|kernel| row(kernel, self.now)));
        let bytes = Bytes(self.kernels.iter().map(|kernel| kernel.bytes).sum());
        format!("{table}{} ({bytes}) in {directory}\n", count(self.kernels.len() as u64, "kernel"))
    }
}

fn row(kernel: &StoredKernel, now: u64) -> Vec<String> {
    let unused = Duration::from_secs(now.saturating_sub(kernel.last_used));
    vec![
        kernel.hash.as_ref().and_then(|hash| hash.get(..12)).unwrap_or("-").to_string(),
        text(&kernel.name),
        text(&kernel.entry) + if kernel.wide_grid { " (wide grid)" } else { "" },
        text(&kernel.device),
        text(&kernel.driver),
        text(&kernel.driver_version),
        Bytes(kernel.bytes).to_string(),
        kernel.uses.to_string(),
        age(unused),
        word(&kernel.state),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::stored::State;
    use super::*;

    /// Four kernels, one of each state.
    pub(in crate::cache) fn toy_kernels() -> Vec<StoredKernel> {
        let kernel = |name: &str, entry: Option<&str>, version: &str, state, bytes, uses, last_used| StoredKernel {
            name: Some(name.to_string()),
            entry: entry.map(str::to_string),
            device: Some("Toy GPU".to_string()),
            driver: Some("vulkan toyvk".to_string()),
            driver_version: Some(version.to_string()),
            wide_grid: entry.is_some(),
            hash: Some(format!("{name:0<64}").replace(|c: char| !c.is_ascii_hexdigit(), "7")),
            state,
            bytes,
            uses,
            written: 1000,
            last_used,
        };
        let current = kernel("saxpy.wgsl", None, "2.0", State::Current, 5000, 12, 99_990);
        let stale = kernel("saxpy.wgsl", None, "1.9", State::Stale, 4900, 3, 10_000);
        let elsewhere = StoredKernel {
            device: Some("Other\u{1b} GPU".to_string()),
            ..kernel("sum.wgsl", Some("main"), "2.0", State::Elsewhere, 70_000, 0, 90_000)
        };
        let foreign = StoredKernel {
            name: None,
            entry: None,
            device: None,
            driver: None,
            driver_version: None,
            wide_grid: false,
            hash: None,
            state: State::Foreign,
            ..current.clone()
        };
        vec![foreign, stale, current, elsewhere]
    }

    #[test]
    fn list_of_four_kernels_and_of_none() {
        let list = |kernels| List { directory: "/home/me/.cache/kiln/kernels".to_string(), kernels, now: 100_000 };
        insta::assert_snapshot!("list", list(toy_kernels()).text());
        insta::assert_snapshot!("list_json", serde_json::to_string_pretty(&list(toy_kernels())).unwrap());
        assert_eq!(list(Vec::new()).text(), "no kernels are stored in /home/me/.cache/kiln/kernels\n");
    }
}
