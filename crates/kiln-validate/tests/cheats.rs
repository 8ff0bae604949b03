//! The harness detects cheating subjects: each ends as failed or not shown, for the right reason.
//!
//! Time is virtual: subjects move the clock by what their work costs, so that nothing here depends on how busy the machine is.

use kiln_bench::{Fault, SamplingConfig};
use kiln_validate::claim::{Claim, Evidence, Targets};
use kiln_validate::clock::{BalancedOrder, Clock, Order};
use kiln_validate::report::{Check, Outcome, Status};
use kiln_validate::subject::{Inputs, Referee, Subject};
use kiln_validate::trial::{Arm, Trial, check};
use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// Elements of an input.
const ELEMENTS: usize = 1000;
/// Seconds that the work on one element takes.
const COST_S: f64 = 100e-9;
/// Seconds of an empty call, and of reading the clock.
const CALL_S: f64 = 30e-9;

/// Virtual time. Equal work takes up to 4 % more or less, as on a quiet machine.
#[derive(Default)]
struct Time {
    now: Cell<f64>,
    state: Cell<u64>,
}

impl Time {
    /// A number from 0 to 1.
    fn random(&self) -> f64 {
        self.state
            .set(self.state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        (self.state.get() >> 40) as f64 / (1u64 << 24) as f64
    }

    fn pass(&self, seconds: f64) {
        self.now.set(self.now.get() + seconds * (0.96 + 0.08 * self.random()));
    }

    /// Advances the clock by the cost of this many elements.
    fn work(&self, elements: usize) {
        self.pass(CALL_S + COST_S * elements as f64);
    }
}

impl Clock for Time {
    fn now(&self) -> f64 {
        self.now.set(self.now.get() + CALL_S);
        self.now.get()
    }
}

/// Computes one element.
fn compute(x: f32) -> f32 {
    (0..8).fold(x, |x, _| x * 0.5 + 1.0)
}

struct Workload;

impl Referee for Workload {
    fn inputs(&self, seed: u64) -> Inputs {
        vec![kiln_bench::uniform(seed, ELEMENTS).collect()]
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        let expected = |x: f32| (0..8).fold(f64::from(x), |x, _| x * 0.5 + 1.0);
        for (place, x) in inputs[0].iter().enumerate() {
            let found = output.get(place).copied().unwrap_or(f32::NAN);
            let error = (f64::from(found) - expected(*x)).abs();
            if error.is_nan() || error > 1e-5 {
                return Err(format!("output expected {} at {place}, found {found}", expected(*x)));
            }
        }
        Ok(())
    }
}

/// A subject with the given `run`, which takes the input and the previous output, updates the output, and returns the number of elements to
/// charge for.
struct Made<F> {
    time: Rc<Time>,
    sets: Vec<Inputs>,
    output: Vec<f32>,
    run: F,
}

fn made<F: FnMut(&[f32], &mut Vec<f32>) -> usize>(time: &Rc<Time>, run: F) -> Made<F> {
    Made { time: Rc::clone(time), sets: Vec::new(), output: vec![0.0; ELEMENTS], run }
}

impl<F: FnMut(&[f32], &mut Vec<f32>) -> usize> Subject for Made<F> {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        self.sets = sets.to_vec();
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        let elements = (self.run)(&self.sets[set][0], &mut self.output);
        self.time.work(elements);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        self.time.pass(1e-9 * ELEMENTS as f64);
        Ok(self.output.clone())
    }
}

/// All of the work.
fn honest(time: &Rc<Time>) -> impl Subject + use<> {
    taking(time, 1.0)
}

/// Does all of the work, slower by a factor.
fn taking(time: &Rc<Time>, times: f64) -> impl Subject + use<> {
    made(time, move |input, output| {
        output.iter_mut().zip(input).for_each(|(to, x)| *to = compute(*x));
        (times * input.len() as f64) as usize
    })
}

fn sampling() -> SamplingConfig {
    let (budget, sample) = (Duration::from_millis(60), Duration::from_micros(500));
    SamplingConfig { budget, min_samples: 12, max_samples: 40, sample, seed: 3 }
}

/// How a claim ends that the first arm is twice as fast as the second, in a trial with this clock and this order.
fn claimed(arms: &mut [Arm<'_>], clock: &dyn Clock, order: &mut dyn Order) -> Outcome {
    bounded(arms, clock, order, 1e-9)
}

/// As [`claimed`], on a machine with this roofline in seconds per run.
fn bounded(arms: &mut [Arm<'_>], clock: &dyn Clock, order: &mut dyn Order, roofline_s: f64) -> Outcome {
    let claim = Claim {
        id: "cheat",
        title: "This is twice as fast as that",
        measures: "",
        comparison: "that",
        target: Targets::cpu(2.0),
        in_quick: true,
        run: |_| Err("not run by the table".into()),
    };
    let measured = Trial { clock, order, sampling: sampling(), memory_bytes_per_s: 1e10 }.measure(arms, &Workload);
    claim.outcome("cpu", 2.0, measured.map(|measured| Evidence::faster(measured.bounded(roofline_s), |s| (s, "s"))))
}

fn against_honest(time: &Rc<Time>, cheat: impl Subject) -> Outcome {
    claimed(&mut [Arm::new("cheat", cheat), Arm::new("honest", honest(time))], &**time, &mut BalancedOrder::new(1))
}

#[track_caller]
fn assert_caught(outcome: &Outcome, status: Status, name: &str, reason: &str) {
    assert_eq!(outcome.status, status, "{outcome:#?}");
    assert!(outcome.reason.contains(reason), "{}", outcome.reason);
    assert!(outcome.checks.iter().any(|found| found.name == name && !found.passed), "{outcome:#?}");
}

#[test]
fn a_prefix_is_not_the_whole() {
    let time: Rc<Time> = Rc::default();
    let cheat = made(&time, |input, output| {
        let prefix = ELEMENTS / 250;
        output[..prefix].iter_mut().zip(input).for_each(|(to, x)| *to = compute(*x));
        prefix
    });
    assert_caught(&against_honest(&time, cheat), Status::Failed, check::OUTPUT, "output expected");
}

/// Blocks all over the output are left out.
#[test]
fn work_that_is_skipped_shows_in_the_output() {
    let time: Rc<Time> = Rc::default();
    let cheat = made(&time, |input, output| {
        for (number, (to, from)) in output.chunks_mut(50).zip(input.chunks(50)).enumerate() {
            if number % 7 != 3 {
                to.iter_mut().zip(from).for_each(|(to, x)| *to = compute(*x));
            }
        }
        ELEMENTS / 7 * 6
    });
    assert_caught(&against_honest(&time, cheat), Status::Failed, check::OUTPUT, "output expected");
}

/// Of many runs in a row only the first on each input does anything, so every output is right.
#[test]
fn runs_that_do_nothing_show_on_fresh_inputs() {
    let time: Rc<Time> = Rc::default();
    let mut known: Option<f32> = None;
    let cheat = made(&time, move |input, output| {
        if known == Some(input[0]) {
            return 0;
        }
        known = Some(input[0]);
        output.iter_mut().zip(input).for_each(|(to, x)| *to = compute(*x));
        input.len()
    });
    assert_caught(&against_honest(&time, cheat), Status::NotShown, check::WORK, "work was skipped");
}

#[test]
fn an_answer_that_was_kept_shows_on_fresh_inputs() {
    let time: Rc<Time> = Rc::default();
    let mut answers: HashMap<u32, Vec<f32>> = HashMap::new();
    let cheat = made(&time, move |input, output| {
        let mut worked = 0;
        let answer = answers.entry(input[0].to_bits()).or_insert_with(|| {
            worked = input.len();
            input.iter().map(|x| compute(*x)).collect()
        });
        output.copy_from_slice(answer);
        worked
    });
    assert_caught(&against_honest(&time, cheat), Status::NotShown, check::WORK, "results were cached");
}

/// The answer to the first input, for every input.
#[test]
fn an_answer_to_another_question_is_wrong() {
    let time: Rc<Time> = Rc::default();
    let mut answer: Option<Vec<f32>> = None;
    let cheat = made(&time, move |input, output| {
        let answer = answer.get_or_insert_with(|| input.iter().map(|x| compute(*x)).collect());
        output.copy_from_slice(answer);
        0
    });
    assert_caught(&against_honest(&time, cheat), Status::Failed, check::OUTPUT, "output expected");
}

/// Whole on inputs that it sees for the first time, and half of it after that.
#[test]
fn a_right_answer_at_first_does_not_cover_the_timed_ones() {
    let time: Rc<Time> = Rc::default();
    let mut known: Vec<f32> = Vec::new();
    let cheat = made(&time, move |input, output| {
        let is_known = known.contains(&input[0]);
        known.push(input[0]);
        let worked = if is_known { ELEMENTS * 2 / 5 } else { ELEMENTS };
        output.fill(0.0);
        output[..worked].iter_mut().zip(input).for_each(|(to, x)| *to = compute(*x));
        worked
    });
    assert_caught(&against_honest(&time, cheat), Status::Failed, check::OUTPUT, "output expected");
}

/// Begins the work, and says that it is done. Only reading the output waits for it.
struct NotSynchronised {
    time: Rc<Time>,
    sets: Vec<Inputs>,
    going_on: Vec<usize>,
    output: Vec<f32>,
}

impl Subject for NotSynchronised {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        self.going_on.clear();
        self.sets = sets.to_vec();
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        self.time.pass(CALL_S);
        self.going_on.push(set);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        self.time.pass(1e-9 * ELEMENTS as f64);
        for set in self.going_on.drain(..) {
            self.time.work(ELEMENTS);
            self.output = self.sets[set][0].iter().map(|x| compute(*x)).collect();
        }
        Ok(self.output.clone())
    }
}

#[test]
fn work_that_continues_after_the_clock_stops_is_detected() {
    let time: Rc<Time> = Rc::default();
    let cheat = NotSynchronised { time: Rc::clone(&time), sets: Vec::new(), going_on: Vec::new(), output: Vec::new() };
    assert_caught(&against_honest(&time, cheat), Status::NotShown, check::SYNCHRONISED, "not synchronised");
}

#[test]
fn nothing_is_faster_than_the_machine() {
    let time: Rc<Time> = Rc::default();
    // The machine needs a second for this, it is said.
    let mut arms = [Arm::new("cheat", honest(&time)), Arm::new("honest", honest(&time))];
    let outcome = bounded(&mut arms, &*time, &mut BalancedOrder::new(1), 1.0);
    assert_caught(&outcome, Status::NotShown, check::ROOFLINE, "faster than the machine allows");
}

/// The first arm is always first.
struct Unfair;

impl Order for Unfair {
    fn round(&mut self, arms: usize) -> Vec<usize> {
        (0..arms).collect()
    }
}

#[test]
fn an_unfair_order_shows_nothing() {
    let time: Rc<Time> = Rc::default();
    let mut arms = [Arm::new("first", honest(&time)), Arm::new("second", honest(&time))];
    let outcome = claimed(&mut arms, &*time, &mut Unfair);
    assert_caught(&outcome, Status::NotShown, check::ORDER, "unfair order");
}

/// A clock that jumps: each reading is up to some milliseconds late.
struct Jumping(Rc<Time>);

impl Clock for Jumping {
    fn now(&self) -> f64 {
        self.0.now() + self.0.random() * 5e-3
    }
}

#[test]
fn a_noisy_clock_shows_nothing() {
    let time: Rc<Time> = Rc::default();
    let mut arms = [Arm::new("one", honest(&time)), Arm::new("other", honest(&time))];
    let outcome = claimed(&mut arms, &Jumping(Rc::clone(&time)), &mut BalancedOrder::new(1));
    // Such a clock may show other faults too, and the first is the reason.
    assert_eq!(outcome.status, Status::NotShown, "{outcome:#?}");
    let is_noisy = |found: &Check| found.name == check::CLOCK && !found.passed && found.detail.contains("too noisy");
    assert!(outcome.checks.iter().any(is_noisy), "{outcome:#?}");
}

/// A clock whose steps are as long as a sample.
struct Coarse(Rc<Time>);

impl Clock for Coarse {
    fn now(&self) -> f64 {
        (self.0.now() / 2e-3).floor() * 2e-3
    }
}

#[test]
fn a_coarse_clock_shows_nothing() {
    let time: Rc<Time> = Rc::default();
    let mut arms = [Arm::new("one", honest(&time)), Arm::new("other", honest(&time))];
    let outcome = claimed(&mut arms, &Coarse(Rc::clone(&time)), &mut BalancedOrder::new(1));
    assert_caught(&outcome, Status::NotShown, check::CLOCK, "clock steps");
}

/// A harness that rejects every claim would pass the other tests.
#[test]
fn a_true_claim_is_shown() {
    let time: Rc<Time> = Rc::default();
    let mut arms = [Arm::new("one", honest(&time)), Arm::new("thrice", taking(&time, 3.0))];
    let outcome = claimed(&mut arms, &*time, &mut BalancedOrder::new(1));
    assert_eq!(outcome.status, Status::Shown, "{outcome:#?}");
    assert!(outcome.checks.iter().all(|check| check.passed) && (2.9..3.1).contains(&outcome.ratio.unwrap_or(0.0)));
}

#[test]
fn a_false_claim_fails() {
    let time: Rc<Time> = Rc::default();
    let mut arms = [Arm::new("one", honest(&time)), Arm::new("same", honest(&time))];
    let outcome = claimed(&mut arms, &*time, &mut BalancedOrder::new(1));
    assert_eq!(outcome.status, Status::Failed, "{outcome:#?}");
    assert!(outcome.reason.starts_with("expected at least 2, found 1.0") || outcome.reason.contains("found 0.9"));
}

/// The machine was busy with something else while the harness found out how long a run takes. Samples are as long as they should be all the
/// same, so that a wait at the end of each of them costs no run much.
#[test]
fn a_pause_at_the_start_leaves_samples_long() {
    /// A short run and a long wait. The third wait, which ends the first sample, is as long as many runs.
    struct Paused<S> {
        subject: S,
        time: Rc<Time>,
        waits: usize,
    }
    impl<S: Subject> Subject for Paused<S> {
        fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
            self.subject.load(sets)
        }
        fn run(&mut self, set: usize) -> Result<(), Fault> {
            self.subject.run(set)
        }
        fn wait(&mut self) -> Result<(), Fault> {
            self.waits += 1;
            self.time.pass(if self.waits == 3 { 5e-3 } else { 20e-6 });
            Ok(())
        }
        fn output(&mut self) -> Result<Vec<f32>, Fault> {
            self.subject.output()
        }
    }
    let time: Rc<Time> = Rc::default();
    let paused = |subject| Paused { subject, time: Rc::clone(&time), waits: 0 };
    let mut arms = [Arm::new("one", paused(taking(&time, 0.01))), Arm::new("honest", honest(&time))];
    let outcome = claimed(&mut arms, &*time, &mut BalancedOrder::new(1));
    assert_eq!(outcome.status, Status::Shown, "{outcome:#?}");
    assert!(outcome.ratio.unwrap_or(0.0) > 80.0, "{outcome:#?}");
}

/// A machine that others use: many runs of either arm take up to thirty times as long.
#[test]
fn on_a_disturbed_machine_nothing_is_said_to_have_failed() {
    let time: Rc<Time> = Rc::default();
    let disturbed = |times: usize| {
        let own = Rc::clone(&time);
        made(&time, move |input, output| {
            output.iter_mut().zip(input).for_each(|(to, x)| *to = compute(*x));
            let disturbed = if own.random() < 0.4 { 1.0 + 30.0 * own.random() } else { 1.0 };
            (disturbed * (times * input.len()) as f64) as usize
        })
    };
    for seed in 0..20 {
        let mut arms = [Arm::new("one", disturbed(1)), Arm::new("thrice", disturbed(3))];
        let outcome = claimed(&mut arms, &*time, &mut BalancedOrder::new(seed));
        assert_ne!(outcome.status, Status::Failed, "{outcome:#?}");
    }
}

/// An arm that fails leaves a claim that is not shown.
#[test]
fn a_fault_is_a_reason() {
    struct Broken;
    impl Subject for Broken {
        fn load(&mut self, _: &[Inputs]) -> Result<(), Fault> {
            Err("the device is gone".into())
        }
        fn run(&mut self, _: usize) -> Result<(), Fault> {
            Ok(())
        }
        fn wait(&mut self) -> Result<(), Fault> {
            Ok(())
        }
        fn output(&mut self) -> Result<Vec<f32>, Fault> {
            Ok(Vec::new())
        }
    }
    let outcome = against_honest(&Rc::default(), Broken);
    assert_eq!((outcome.status, outcome.reason.as_str()), (Status::NotShown, "could not run: the device is gone"));
}
