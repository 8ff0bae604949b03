//! Rejected plans and buffers: malformed plans, and buffers that do not match the plan.

use crate::support::{map, plan_of, run_plan};
use kiln_cpu::{CpuOptions, SimdLevel};
use kiln_device::{Buffer, Feature, PlanRun};
use kiln_ir::kernel::{Instruction, Operand};
use kiln_ir::plan::{Place, Plan, Source};
use kiln_ir::{Class, DType, ErrorKind, Layout, Shape, op};
use smallvec::smallvec;
use std::sync::Arc;

fn negation() -> Plan {
    let operand = Operand { dtype: DType::F32, layout: Layout::contiguous(Shape::from(100)) };
    let negate = Instruction::Op { op: &op::NEG, class: Class::Float, args: smallvec![0] };
    plan_of(map(&Shape::from(100), &[operand], vec![Instruction::Load { operand: 0 }, negate], DType::F32))
}

/// Plans are plain data: one that would access memory out of bounds is rejected when it is compiled.
#[test]
fn plans_that_are_not_well_formed_are_refused() {
    type Break = fn(&mut Plan);
    let breaks: [(&str, Break); 9] = [
        ("an operand that is not there", |plan| {
            plan.steps[0].kernel.body.program.instructions[0] = Instruction::Load { operand: 1 };
        }),
        ("a value that comes later", |plan| {
            plan.steps[0].kernel.body.program.instructions[1] =
                Instruction::Op { op: &op::NEG, class: Class::Float, args: smallvec![1] };
        }),
        ("too many arguments", |plan| {
            plan.steps[0].kernel.body.program.instructions[1] =
                Instruction::Op { op: &op::NEG, class: Class::Float, args: smallvec![0, 0] };
        }),
        ("nothing to compute", |plan| plan.steps[0].kernel.body.program.instructions.clear()),
        ("a core that is not there", |plan| {
            plan.steps[0].kernel.body.program.instructions[0] = Instruction::Core { class: Class::Float };
        }),
        ("a value that is not there", |plan| plan.steps[0].reads[0] = Source::Value(3)),
        ("what it writes", |plan| plan.steps[0].reads[0] = Source::Value(0)),
        ("a slot that is too small", |plan| {
            plan.slots.push(399);
            plan.values[0].place = Place::Slot(0);
        }),
        ("another space", |plan| plan.steps[0].kernel.body.space = Shape::from(101)),
    ];
    let device = kiln_cpu::open(CpuOptions::new()).unwrap();
    assert!(device.compile(&Arc::new(negation())).is_ok());
    for (what, damage) in breaks {
        let mut plan = negation();
        damage(&mut plan);
        let error = device.compile(&Arc::new(plan)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{what}: {error}");
    }
}

#[test]
fn buffers_that_are_not_those_of_the_plan_are_refused() {
    let device = kiln_cpu::open(CpuOptions::new()).unwrap();
    let plan = device.compile(&Arc::new(negation())).unwrap();
    let (good, output) = (device.buffer(400).unwrap(), device.buffer(400).unwrap());
    let odd = device.buffer(500).unwrap().slice(1..401).unwrap();
    let run = |inputs: &[Buffer], outputs: &[Buffer]| {
        let inputs: Vec<&Buffer> = inputs.iter().collect();
        plan.run(&device, &PlanRun { inputs: &inputs, slots: &[], outputs, scalars: &[] })
    };
    assert!(run(std::slice::from_ref(&good), std::slice::from_ref(&output)).is_ok());
    let short = good.slice(..396).unwrap();
    let cases = [
        (run(&[short], std::slice::from_ref(&output)), "buffer 0 expected 400 bytes aligned to 4, found 396"),
        (run(&[odd], std::slice::from_ref(&output)), "found 400 bytes, misaligned by 1"),
        (
            run(&[], std::slice::from_ref(&output)),
            "expected 1 inputs, 0 slots, 1 outputs and 0 scalars, found 0, 0, 1 and 0",
        ),
        (run(std::slice::from_ref(&output), std::slice::from_ref(&output)), "buffers 0 and 1 in one allocation"),
    ];
    for (result, expected) in cases {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert!(run(std::slice::from_ref(&good), &[output]).is_ok(), "a refusal does not end the device");
    let other = kiln_cpu::open(CpuOptions::new()).unwrap();
    let foreign = [other.buffer(400).unwrap(), other.buffer(400).unwrap()];
    let error = run(&foreign[..1], &foreign[1..]).unwrap_err();
    assert!(error.to_string().contains("expected its own buffers"), "{error}");
}

/// Kernels before one that fails are counted; the one that fails is not.
#[cfg(feature = "events")]
#[test]
fn kernels_before_a_failure_are_counted() {
    let device = kiln_cpu::open(CpuOptions::new()).unwrap();
    let mut plan = negation();
    let fails = plan_of(crate::kernels::failing(&Shape::from(100)));
    plan.values.extend(fails.values);
    plan.steps.extend(fails.steps);
    plan.steps[1].writes = 1;
    let input = crate::support::Tensor::new(DType::F32, Layout::contiguous(Shape::from(100)), |_| 1.0);
    let _profiling = device.profile();
    assert_eq!(run_plan(&device, plan, &[input], &[]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let [kernel] = &device.kernel_statistics()[..] else { panic!("{:?}", device.kernel_statistics()) };
    assert_eq!((kernel.launches, kernel.timed), (1, 1));
    device.synchronize().unwrap();
}

#[test]
fn missing_scalars_are_refused() {
    let device = kiln_cpu::open(CpuOptions::new()).unwrap();
    let scalar = Instruction::Scalar { scalar: 2, class: Class::Float };
    let plan = plan_of(map(&Shape::from(3), &[], vec![scalar], DType::F32));
    let error = run_plan(&device, plan, &[], &[1, 2]).unwrap_err();
    assert!(error.to_string().contains("and 3 scalars, found 0, 0, 1 and 2"), "{error}");
}

/// A SIMD level can be selected only if the processor supports it.
#[test]
fn levels_are_those_of_the_processor() {
    let device = kiln_cpu::open(CpuOptions::new().simd(SimdLevel::Scalar)).unwrap();
    let vectors = [Feature::Avx2, Feature::Avx512, Feature::Neon, Feature::NeonF16];
    assert!(vectors.iter().all(|feature| !device.info().features.contains(feature)), "{:?}", device.info().features);
    assert_ne!(device.info().fingerprint, kiln_cpu::info().fingerprint);
    let foreign = if cfg!(target_arch = "x86_64") { SimdLevel::NeonF16 } else { SimdLevel::Avx512 };
    let error = kiln_cpu::open(CpuOptions::new().simd(foreign)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
