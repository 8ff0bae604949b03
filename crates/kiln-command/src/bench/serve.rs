//! `kiln bench --serve`: another program requests samples, so that it can interleave Kiln with its own measurements.
//!
//! One JSON object per line in both directions. A failed request is answered by an object with the field `error`.

use super::{memory, unknown};
use crate::Fallible;
use crate::new_file::NewFile;
use crate::npy::{Array, Kind};
use kiln::Device;
use kiln_bench::{ElementType, KilnWorkload, Op, find};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    /// Returns the version of Kiln and the device.
    Start,
    /// Uploads the inputs of a workload, replacing the previous ones.
    Prepare {
        workload: String,
        dtype: ElementType,
    },
    Sample {
        runs: u32,
    },
    /// Runs the workload once and writes its output, as `f32`.
    Output {
        path: PathBuf,
    },
    /// Returns the peak memory of the process.
    Memory,
    Quit,
}

/// Answers requests until the input ends.
pub(super) fn serve(device: &Device, requests: impl BufRead, answers: &mut impl Write) -> io::Result<()> {
    let mut server = Server { device, prepared: None };
    for line in requests.lines() {
        let answer = server.answer(&line?).unwrap_or_else(|error| json!({ "error": error.to_string() }));
        // Flushed after each line: the other process waits for it before it sends the next request.
        writeln!(answers, "{answer}").and_then(|()| answers.flush())?;
        if answer["done"] == true {
            break;
        }
    }
    Ok(())
}

struct Server<'a> {
    device: &'a Device,
    prepared: Option<(Op, KilnWorkload)>,
}

impl Server<'_> {
    fn answer(&mut self, line: &str) -> Fallible<Value> {
        let request = serde_json::from_str(line).map_err(|error| format!("expected a request, found: {error}"))?;
        Ok(match request {
            Request::Start => {
                let info = self.device.info();
                json!({ "version": env!("CARGO_PKG_VERSION"), "device": info.id, "threads": info.limits.threads })
            }
            Request::Prepare { workload, dtype } => {
                let found = find(&workload).ok_or_else(|| unknown(&workload))?;
                // Dropped first, so that its memory returns to the pool.
                self.prepared = None;
                self.prepared = Some((found.op, KilnWorkload::new(&found.op, dtype, self.device)?));
                json!({ "workload": workload, "dtype": dtype })
            }
            Request::Sample { runs } => {
                let (_, kiln) = self.prepared()?;
                // Only the runs are timed, not the parsing of the request.
                let began = Instant::now();
                for _ in 0..runs {
                    kiln.run()?;
                }
                json!({ "ns": u64::try_from(began.elapsed().as_nanos())? })
            }
            Request::Output { path } => {
                let (op, kiln) = self.prepared()?;
                write_output(&path, op, &kiln.output()?)?;
                json!({ "path": path })
            }
            Request::Memory => json!({ "peak_resident_bytes": memory::peak_resident_bytes() }),
            Request::Quit => json!({ "done": true }),
        })
    }

    fn prepared(&self) -> Result<&(Op, KilnWorkload), String> {
        self.prepared.as_ref().ok_or_else(|| "expected a workload to be prepared first, found none".to_string())
    }
}

fn write_output(path: &Path, op: &Op, output: &[f32]) -> Fallible<()> {
    let shape = op.output_shape().into_iter().map(|length| length as u64).collect();
    let data = output.iter().flat_map(|element| element.to_le_bytes()).collect();
    let mut file = NewFile::create(path)?;
    Array { kind: Kind::F32, shape, data }.write(&mut file)?;
    Ok(file.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(requests: &str) -> Vec<Value> {
        let mut out = Vec::new();
        serve(&Device::cpu().unwrap(), requests.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn every_request_has_an_answer_and_faults_end_nothing() {
        let found = answers(
            r#"{"do":"sample","runs":1}
            {"do":"prepare","workload":"mlp-1x64x65","dtype":"f32"}
            {"do":"prepare","workload":"mlp-1x64x64","dtype":"f64"}
            {"do":"dance"}
            not JSON
            {"do":"prepare","workload":"mlp-1x64x64","dtype":"f16"}
            {"do":"sample","runs":3}
            {"do":"output","path":"/nonexistent/output.npy"}
            {"do":"memory"}
            {"do":"start"}"#,
        );
        let errors = [
            "expected a workload to be prepared first",
            "similar: mlp-1x64x64",
            "expected a request",
            "dance",
            "expected",
        ];
        for (answer, error) in found.iter().zip(errors) {
            assert!(answer["error"].as_str().is_some_and(|text| text.contains(error)), "{answer}: {error}");
        }
        assert_eq!(found[5], serde_json::json!({"workload": "mlp-1x64x64", "dtype": "f16"}));
        assert!(found[6]["ns"].as_u64().unwrap() > 0);
        assert!(found[7]["error"].as_str().unwrap().contains("/nonexistent/output.npy"));
        assert!(found[8].get("peak_resident_bytes").is_some());
        assert_eq!((&found[9]["device"], found.len()), (&"cpu".into(), 10));
    }

    #[test]
    fn output_is_written_and_nothing_is_read_after_quit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.npy");
        let requests = format!(
            "{}\n{}\n{}\n{}\n",
            r#"{"do":"prepare","workload":"mlp-64x64x64","dtype":"f32"}"#,
            serde_json::json!({"do": "output", "path": path}),
            r#"{"do":"quit"}"#,
            r#"{"do":"memory"}"#
        );
        assert_eq!(answers(&requests).len(), 3);
        let array = Array::read(&path).unwrap();
        assert_eq!((array.kind, &array.shape[..]), (Kind::F32, &[64, 64][..]));
        let elements: Vec<f32> =
            array.data.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
        find("mlp-64x64x64").unwrap().op.check(ElementType::F32, &elements).unwrap();
    }
}
