//! R6.2: the harness is fooled by none of these. Each cheat comes out as failed or not shown, for the right reason.

use kiln_bench::{Effort, Fault};
use kiln_validate::claim::{Claim, Evidence, Targets};
use kiln_validate::clock::{Balanced, Clock, Order, SystemClock};
use kiln_validate::report::{Outcome, Status};
use kiln_validate::subject::{Inputs, Referee, Subject};
use kiln_validate::trial::{Arm, Trial, check};
use std::cell::Cell;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Numbers of an input.
const ELEMENTS: usize = 20_000;

/// Every element goes through some arithmetic: enough for the clock to see.
fn compute(x: f32) -> f32 {
    (0..8).fold(x, |x, _| black_box(x * 0.5 + 1.0))
}

struct Work;

impl Referee for Work {
    fn inputs(&self, seed: u64) -> Inputs {
        vec![kiln_bench::uniform(seed, ELEMENTS).collect()]
    }

    fn judge(&self, inputs: &Inputs, output: &[f32]) -> Result<(), String> {
        let expected = |x: f32| (0..8).fold(f64::from(x), |x, _| x * 0.5 + 1.0);
        for (place, x) in inputs[0].iter().enumerate() {
            let found = output.get(place).copied().unwrap_or(f32::NAN);
            if !((f64::from(found) - expected(*x)).abs() < 1e-5) {
                return Err(format!("output expected {} at {place}, found {found}", expected(*x)));
            }
        }
        Ok(())
    }
}

/// A subject that is made of how it runs: from the input, the output of before, and how often it ran.
struct Made<F> {
    sets: Vec<Inputs>,
    output: Vec<f32>,
    runs: usize,
    run: F,
}

fn made<F: FnMut(&[f32], &mut Vec<f32>, usize)>(run: F) -> Made<F> {
    Made { sets: Vec::new(), output: vec![0.0; ELEMENTS], runs: 0, run }
}

impl<F: FnMut(&[f32], &mut Vec<f32>, usize)> Subject for Made<F> {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        self.sets = sets.to_vec();
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        self.runs += 1;
        (self.run)(&self.sets[set][0], &mut self.output, self.runs);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        Ok(self.output.clone())
    }
}

/// All of the work.
fn honest() -> impl Subject {
    made(|input, output, _| output.iter_mut().zip(input).for_each(|(to, x)| *to = compute(*x)))
}

fn effort() -> Effort {
    let (budget, sample) = (Duration::from_millis(60), Duration::from_micros(500));
    Effort { budget, least_samples: 12, most_samples: 40, sample, seed: 3 }
}

/// How a claim ends that the first arm is twice as fast as the second, in a trial with this clock and this order.
fn claimed(arms: &mut [Arm<'_>], clock: &dyn Clock, order: &mut dyn Order) -> Outcome {
    let claim = Claim {
        id: "cheat",
        title: "This is twice as fast as that",
        measures: "",
        comparison: "that",
        target: Targets::cpu(2.0),
        in_quick: true,
        run: |_| Err("not run by the table".into()),
    };
    let measured = Trial { clock, order, effort: effort() }.measure(arms, &Work);
    claim.outcome("cpu", 2.0, measured.map(|measured| Evidence::faster(measured, (1.0, "x"))))
}

fn against_honest(cheat: impl Subject) -> Outcome {
    claimed(&mut [Arm::new("cheat", cheat), Arm::new("honest", honest())], &SystemClock::new(), &mut Balanced::new(1))
}

#[track_caller]
fn assert_caught(outcome: &Outcome, status: Status, name: &str, reason: &str) {
    assert_eq!(outcome.status, status, "{outcome:#?}");
    assert!(outcome.reason.contains(reason), "{}", outcome.reason);
    assert!(outcome.checks.iter().any(|found| found.name == name && !found.passed), "{outcome:#?}");
}

#[test]
fn a_prefix_is_not_the_whole() {
    let cheat = made(|input, output, _| {
        let prefix = ELEMENTS / 250;
        output[..prefix].iter_mut().zip(input).for_each(|(to, x)| *to = compute(*x));
    });
    assert_caught(&against_honest(cheat), Status::Failed, check::OUTPUT, "output expected");
}

/// Blocks all over the output are left out.
#[test]
fn work_that_is_skipped_shows_in_the_output() {
    let cheat = made(|input, output, _| {
        for (number, (to, from)) in output.chunks_mut(50).zip(input.chunks(50)).enumerate() {
            if number % 7 != 3 {
                to.iter_mut().zip(from).for_each(|(to, x)| *to = compute(*x));
            }
        }
    });
    assert_caught(&against_honest(cheat), Status::Failed, check::OUTPUT, "output expected");
}

/// Of many runs in a row only the first on each input does anything, so every output is right.
#[test]
fn runs_that_do_nothing_show_on_fresh_inputs() {
    let mut known: Option<f32> = None;
    let cheat = made(move |input, output, _| {
        if known != Some(input[0]) {
            output.iter_mut().zip(input).for_each(|(to, x)| *to = compute(*x));
            known = Some(input[0]);
        }
    });
    assert_caught(&against_honest(cheat), Status::NotShown, check::WORK, "work was left out");
}

#[test]
fn an_answer_that_was_kept_shows_on_fresh_inputs() {
    let mut answers: HashMap<u32, Vec<f32>> = HashMap::new();
    let cheat = made(move |input, output, _| {
        let answer = answers.entry(input[0].to_bits());
        // Sharing would be faster than this copy, and is caught all the same.
        output.copy_from_slice(answer.or_insert_with(|| input.iter().map(|x| compute(*x)).collect()));
    });
    assert_caught(&against_honest(cheat), Status::NotShown, check::WORK, "answers were kept");
}

/// The answer to the first input, for every input.
#[test]
fn an_answer_to_another_question_is_wrong() {
    let mut answer: Option<Vec<f32>> = None;
    let cheat = made(move |input, output, _| {
        let answer = answer.get_or_insert_with(|| input.iter().map(|x| compute(*x)).collect());
        output.copy_from_slice(answer);
    });
    assert_caught(&against_honest(cheat), Status::Failed, check::OUTPUT, "output expected");
}

/// Starts the work on another thread, and says that it is done. Reading the output waits.
struct NotSynchronised {
    sets: Vec<Inputs>,
    going_on: Vec<Receiver<Vec<f32>>>,
    output: Vec<f32>,
}

impl Subject for NotSynchronised {
    fn load(&mut self, sets: &[Inputs]) -> Result<(), Fault> {
        self.output()?;
        self.sets = sets.to_vec();
        Ok(())
    }

    fn run(&mut self, set: usize) -> Result<(), Fault> {
        let (input, (done, result)) = (self.sets[set][0].clone(), channel());
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(3));
            done.send(input.iter().map(|x| compute(*x)).collect())
        });
        self.going_on.push(result);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn output(&mut self) -> Result<Vec<f32>, Fault> {
        for result in self.going_on.drain(..) {
            self.output = result.recv()?;
        }
        Ok(self.output.clone())
    }
}

#[test]
fn work_that_goes_on_behind_the_clock_is_noticed() {
    let cheat = NotSynchronised { sets: Vec::new(), going_on: Vec::new(), output: Vec::new() };
    let outcome = against_honest(cheat);
    assert_eq!(outcome.status, Status::NotShown, "{outcome:#?}");
    let found = outcome.checks.iter().find(|found| found.name == check::SYNCHRONISED && !found.passed);
    assert!(found.is_some_and(|found| found.detail.contains("not synchronised")), "{outcome:#?}");
}

#[test]
fn nothing_is_faster_than_the_machine() {
    // The machine needs a second for this, it is said.
    let mut arms = [Arm::new("cheat", honest()).at_least(1.0), Arm::new("honest", honest())];
    let outcome = claimed(&mut arms, &SystemClock::new(), &mut Balanced::new(1));
    assert_caught(&outcome, Status::NotShown, check::ROOFLINE, "faster than the machine can be");
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
    let mut arms = [Arm::new("first", honest()), Arm::new("second", honest())];
    let outcome = claimed(&mut arms, &SystemClock::new(), &mut Unfair);
    assert_caught(&outcome, Status::NotShown, check::ORDER, "unfair order");
}

/// A clock that jumps: each reading is up to some milliseconds late.
struct Jumping(SystemClock, Cell<u64>);

impl Clock for Jumping {
    fn now(&self) -> f64 {
        self.1.set(self.1.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        self.0.now() + (self.1.get() >> 40) as f64 / (1u64 << 24) as f64 * 5e-3
    }
}

#[test]
fn a_noisy_clock_shows_nothing() {
    let clock = Jumping(SystemClock::new(), Cell::new(5));
    let mut arms = [Arm::new("one", honest()), Arm::new("other", honest())];
    let outcome = claimed(&mut arms, &clock, &mut Balanced::new(1));
    assert_caught(&outcome, Status::NotShown, check::CLOCK, "");
}

/// A clock whose steps are as long as a sample.
struct Coarse(SystemClock);

impl Clock for Coarse {
    fn now(&self) -> f64 {
        (self.0.now() / 2e-3).floor() * 2e-3
    }
}

#[test]
fn a_coarse_clock_shows_nothing() {
    let mut arms = [Arm::new("one", honest()), Arm::new("other", honest())];
    let outcome = claimed(&mut arms, &Coarse(SystemClock::new()), &mut Balanced::new(1));
    assert_caught(&outcome, Status::NotShown, check::CLOCK, "");
}

/// What is claimed is true here, so that it is not the harness that says no to everything. On a machine that is disturbed for a moment, the
/// second or third attempt shows it.
#[test]
fn what_is_true_is_shown() {
    let half = || {
        made(|input, output, _| {
            for _ in 0..3 {
                output.iter_mut().zip(input).for_each(|(to, x)| *to = compute(*x));
            }
        })
    };
    let outcomes: Vec<Outcome> = (0..5)
        .map(|seed| {
            let mut arms = [Arm::new("one", honest()), Arm::new("thrice", half())];
            claimed(&mut arms, &SystemClock::new(), &mut Balanced::new(seed))
        })
        .collect();
    assert!(outcomes.iter().any(|outcome| outcome.status == Status::Shown), "{outcomes:#?}");
    let found = outcomes.iter().find(|outcome| outcome.status == Status::Shown);
    assert!(found.is_some_and(|outcome| outcome.checks.iter().all(|check| check.passed)));
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
    let outcome = against_honest(Broken);
    assert_eq!((outcome.status, outcome.reason.as_str()), (Status::NotShown, "it could not run: the device is gone"));
}
