//! The report of `kiln eval`.

use crate::npy::tuple;
use crate::terminal::{Report, plain, table, time};
use kiln::function::Function;
use kiln::{DType, Tensor};
use serde::Serialize;

/// The result and where it was written. The JSON format is this struct.
#[derive(Debug, Serialize)]
pub(super) struct EvalReport {
    pub(super) shape: Vec<u64>,
    pub(super) dtype: &'static str,
    /// The elements in row-major order; `None` if they were written to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<Data>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    pub(super) device: String,
    /// Time from the first kernel until the elements were available.
    pub(super) run_us: u64,
    /// Explanation of the plan, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) explain: Option<String>,
    /// Result of the verification, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verify: Option<String>,
    /// The elements as text.
    #[serde(skip)]
    pub(super) shown: Option<String>,
}

/// Elements. JSON has no infinities and no NaN; they become `null`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Data {
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
    Integers(Vec<i64>),
    Truth(Vec<bool>),
}

impl Data {
    pub(super) fn of(tensor: &Tensor) -> kiln::Result<Self> {
        match tensor.dtype() {
            DType::F16 | DType::BF16 | DType::F32 => tensor.to_vec().map(Self::Floats),
            DType::F64 => tensor.to_vec().map(Self::Doubles),
            DType::Bool => tensor.to_vec().map(Self::Truth),
            DType::I8 | DType::I32 | DType::I64 | DType::U8 | DType::U32 => tensor.to_vec().map(Self::Integers),
        }
    }
}

impl Report for EvalReport {
    fn text(&self) -> String {
        if let Some(shown) = &self.shown {
            return format!("{shown}\n");
        }
        let file = plain(self.file.as_deref().unwrap_or_default());
        let (dtype, shape, device) = (self.dtype, tuple(&self.shape), &self.device);
        let run = time(self.run_us);
        format!("{dtype}  {shape}  {file}\nran in {run} on {device}\n")
    }
}

#[derive(Debug, Serialize)]
pub(super) struct FunctionsReport {
    functions: Vec<FunctionReport>,
}

#[derive(Debug, Serialize)]
struct FunctionReport {
    signature: String,
    doc: &'static str,
}

impl FunctionsReport {
    pub(super) fn new() -> Self {
        let report = |function: Function| FunctionReport { signature: function.signature(), doc: function.doc() };
        Self { functions: Function::all().map(report).collect() }
    }
}

impl Report for FunctionsReport {
    fn text(&self) -> String {
        let row = |function: &FunctionReport| vec![function.signature.clone(), function.doc.to_string()];
        table(&self.functions.iter().map(row).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_of_a_result_in_a_file() {
        let report = EvalReport {
            shape: vec![2, 3],
            dtype: "f16",
            data: None,
            file: Some("c\u{7}.npy".to_string()),
            device: "cpu".to_string(),
            run_us: 1500,
            explain: None,
            verify: None,
            shown: None,
        };
        assert_eq!(report.text(), "f16  (2, 3)  c?.npy\nran in 1.50 ms on cpu\n");
        let shown =
            EvalReport { shown: Some("[1.0]".to_string()), data: Some(Data::Floats(vec![1.5, f32::NAN])), ..report };
        assert_eq!(shown.text(), "[1.0]\n");
        assert_eq!(serde_json::to_value(&shown).unwrap()["data"], serde_json::json!([1.5, null]));
    }
}
