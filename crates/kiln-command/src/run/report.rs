//! The report of `kiln run`.

use crate::npy::tuple;
use crate::terminal::{Report, plain, table, time};
use kiln::kernel::Origin;
use serde::Serialize;

/// The kernel, the device and the outputs. The JSON format is this struct.
#[derive(Debug, Serialize)]
pub(super) struct RunReport {
    pub(super) kernel: KernelReport,
    pub(super) device: DeviceReport,
    /// Time from launch to completion.
    pub(super) run_us: u64,
    pub(super) outputs: Vec<OutputReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct KernelReport {
    pub(super) name: String,
    pub(super) entry: String,
    pub(super) hash: String,
    pub(super) origin: Origin,
    /// Time to compile or load it.
    pub(super) load_us: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct DeviceReport {
    pub(super) id: String,
    pub(super) name: String,
}

#[derive(Debug, Serialize)]
pub(super) struct OutputReport {
    pub(super) name: String,
    pub(super) dtype: String,
    pub(super) shape: Vec<u64>,
    pub(super) file: String,
}

impl Report for RunReport {
    fn text(&self) -> String {
        let row = |output: &OutputReport| {
            let OutputReport { name, dtype, shape, file } = output;
            vec![name.clone(), dtype.clone(), tuple(shape), plain(file)]
        };
        let rows: Vec<Vec<String>> = self.outputs.iter().map(row).collect();
        let KernelReport { name, hash, origin, load_us, .. } = &self.kernel;
        let origin = match origin {
            Origin::Compiled => "compiled",
            Origin::Disk => "loaded from disk",
        };
        let [load, run] = [*load_us, self.run_us].map(time);
        let (name, device) = (plain(name), plain(&self.device.name));
        let short = hash.get(..12).unwrap_or(hash);
        let id = &self.device.id;
        format!("{}kernel {name} ({short}) {origin} in {load}, ran in {run} on {id} ({device})\n", table(&rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(origin: Origin) -> RunReport {
        let output = |name: &str, shape: &[u64]| OutputReport {
            name: name.to_string(),
            dtype: "f32".to_string(),
            shape: shape.to_vec(),
            file: format!("{name}.npy"),
        };
        RunReport {
            kernel: KernelReport {
                name: "saxpy.wgsl".to_string(),
                entry: "main".to_string(),
                hash: "0123456789abcdef".repeat(4),
                origin,
                load_us: 12_345,
            },
            device: DeviceReport { id: "gpu:0".to_string(), name: "Toy\u{7} GPU".to_string() },
            run_us: 250,
            outputs: vec![output("y", &[1000]), output("longer", &[2, 3, 4])],
        }
    }

    #[test]
    fn text_and_json_of_a_run() {
        insta::assert_snapshot!("text", report(Origin::Disk).text());
        insta::assert_snapshot!("json", serde_json::to_string_pretty(&report(Origin::Compiled)).unwrap());
    }
}
