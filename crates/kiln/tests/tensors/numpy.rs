//! Every case that NumPy computed, on every device.

use crate::devices::{self, Subject};
use crate::poison::fill_free_memory;
use crate::{calls, data};
use kiln::DType;
use kiln::ir::op;
use kiln_testkit::fixture::{self, Case, Tolerance};
use kiln_testkit::{LayoutCase, tolerance};

/// The tolerance of a sum, in `f32` roundings of the sum of magnitudes.
const SUM_ROUNDINGS: f64 = 16.0;

macro_rules! files {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), include_bytes!(concat!("../fixtures/", stringify!($name), ".safetensors")));
        })*
    };
}

files! { attention casts elementwise indexing movement pools products reductions rows scans selection sorts statistics }

fn run(file: &str, bytes: &[u8]) {
    let cases = fixture::read(bytes).unwrap();
    let mut failures = Vec::new();
    for subject in devices::all() {
        for case in &cases {
            // Results must not depend on previous contents of memory.
            fill_free_memory(&subject.device);
            if let Err(message) = run_case(case, subject) {
                failures.push(format!("{} on {}: {message}", case.name, subject.name));
            }
        }
    }
    let shown: Vec<&str> = failures.iter().take(20).map(String::as_str).collect();
    assert!(failures.is_empty(), "{file}: {} failures\n{}", failures.len(), shown.join("\n"));
}

fn run_case(case: &Case, subject: &Subject) -> Result<(), String> {
    let place = |input: &fixture::Input| {
        let layout = LayoutCase { name: "", base: input.base.clone(), views: input.views.clone() };
        data::placed(&layout, input.dtype, &subject.device)
    };
    let inputs: Vec<_> = case.inputs.iter().map(place).collect();
    let results = calls::call(case, &inputs, &subject.device).map_err(|error| format!("{error:?}"))?;
    if results.len() != case.outputs.len() {
        return Err(format!("expected {} results, found {}", case.outputs.len(), results.len()));
    }
    for (result, output) in results.iter().zip(&case.outputs) {
        let (dtype, shape) = (result.dtype(), &result.shape()[..]);
        if (dtype, shape) != (output.dtype, output.array.shape()) {
            return Err(format!("expected {} {:?}, found {dtype} {shape:?}", output.dtype, output.array.shape()));
        }
        let numbers = data::numbers(result).map_err(|error| format!("{error:?}"))?;
        let allowed = match case.tolerance {
            Tolerance::Exact => op::Tolerance::EXACT,
            Tolerance::Op => error_bound(&case.op, dtype),
            Tolerance::Sum { scale } => data::within(1.0, SUM_ROUNDINGS * f64::from(f32::EPSILON) * scale),
        };
        tolerance::compare(dtype, &numbers, output.array.numbers(), allowed)?;
    }
    Ok(())
}

/// The error bound of the op table plus half an ULP, because the reference is rounded to the dtype. A form with a scalar
/// is as accurate as the op.
fn error_bound(name: &str, dtype: DType) -> op::Tolerance {
    let name = name.strip_suffix("_scalar").unwrap_or(name);
    let bound = op::by_name(name).expect("an entry of the op table").error_bound(dtype);
    data::within(bound.ulps + 0.5, bound.absolute)
}

/// The files have many cases of every dtype, including empty tensors and single elements.
#[test]
fn the_cases_cover_dtypes_layouts_and_odd_shapes() {
    let files: [&[u8]; 13] = [
        include_bytes!("../fixtures/attention.safetensors"),
        include_bytes!("../fixtures/casts.safetensors"),
        include_bytes!("../fixtures/elementwise.safetensors"),
        include_bytes!("../fixtures/indexing.safetensors"),
        include_bytes!("../fixtures/movement.safetensors"),
        include_bytes!("../fixtures/pools.safetensors"),
        include_bytes!("../fixtures/products.safetensors"),
        include_bytes!("../fixtures/reductions.safetensors"),
        include_bytes!("../fixtures/rows.safetensors"),
        include_bytes!("../fixtures/scans.safetensors"),
        include_bytes!("../fixtures/sorts.safetensors"),
        include_bytes!("../fixtures/selection.safetensors"),
        include_bytes!("../fixtures/statistics.safetensors"),
    ];
    let cases: Vec<Case> = files.into_iter().flat_map(|file| fixture::read(file).unwrap()).collect();
    assert!(cases.len() >= 300, "{}", cases.len());
    let inputs = || cases.iter().flat_map(|case| &case.inputs);
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::I32, DType::U32, DType::U8] {
        assert!(inputs().filter(|input| input.dtype == dtype).count() > 30, "{dtype}");
    }
    for rank in 0..=6 {
        assert!(inputs().filter(|input| input.base.shape().len() == rank).count() > 10, "rank {rank}");
    }
    assert!(inputs().filter(|input| input.base.numbers().is_empty()).count() > 20);
    assert!(inputs().filter(|input| !input.views.is_empty()).count() > 200);
}
