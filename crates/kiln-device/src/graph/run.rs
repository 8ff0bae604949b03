//! Running the units of a plan on threads that end with the run.

use super::node::{NodeKind, Work};
use super::report::{NodeRun, RunReport};
use super::tell;
use super::units::Unit;
use crate::device::submit_in_parts;
use crate::observe::{Recorder, nanos, span};
use kiln_ir::{Error, Result, error};
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, Scope};
use std::time::Instant;

/// Runs every unit, with its work in `rebound` where there is one, on at most `workers` threads.
pub(super) fn run(
    nodes: &[(String, NodeKind)],
    units: &[Unit],
    rebound: &[Option<Work>],
    recorders: &[Recorder],
    workers: usize,
) -> Result<RunReport> {
    let work: Vec<&Work> =
        units.iter().zip(rebound).map(|(unit, rebound)| rebound.as_ref().unwrap_or(&unit.work)).collect();
    let _span = span(
        recorders.iter().find(|recorder| recorder.is_traced()),
        |device| tracing::debug_span!(target: "kiln", "graph_run", device, nodes = nodes.len()),
    );
    let missing: Vec<usize> = units.iter().map(|unit| unit.predecessors).collect();
    let ready = (0..units.len()).filter(|&unit| missing[unit] == 0).map(|unit| units[unit].place_in_line(unit));
    let state = State {
        ready: ready.collect(),
        missing,
        runs: vec![None; units.len()],
        over: 0,
        workers: 1,
        idle: 0,
        failed: None,
    };
    let (began, state, wake) = (Instant::now(), Mutex::new(state), Condvar::new());
    let run = Run { nodes, units, work, recorders, workers, began, state, wake };
    std::thread::scope(|scope| run.serve(scope, 0));
    run.finish()
}

struct Run<'a> {
    nodes: &'a [(String, NodeKind)],
    units: &'a [Unit],
    work: Vec<&'a Work>,
    recorders: &'a [Recorder],
    workers: usize,
    began: Instant,
    state: Mutex<State>,
    /// Where idle workers sleep, with `state`.
    wake: Condvar,
}

struct State {
    /// Units that can run, the most urgent first.
    ready: BTreeSet<(Urgency, usize)>,
    /// For each unit, how many of its predecessors are not over.
    missing: Vec<usize>,
    runs: Vec<Option<UnitRun>>,
    over: usize,
    /// Threads that were started, the caller's included.
    workers: usize,
    idle: usize,
    /// What failed; of several units the first in the order of the plan.
    failed: Option<(usize, Error)>,
}

/// Of what is ready, the device gets its work first, and a worker that may have to wait for a device does so last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    Submits,
    Computes,
    Waits,
}

/// When a unit ran, in nanoseconds from the beginning.
#[derive(Clone, Copy)]
struct UnitRun {
    worker: usize,
    start_ns: u64,
    end_ns: u64,
    submission: Option<u64>,
    done_ns: Option<u64>,
}

impl Unit {
    fn place_in_line(&self, index: usize) -> (Urgency, usize) {
        let urgency = match (self.awaited.is_empty(), self.is_deferred) {
            (false, _) => Urgency::Waits,
            (true, true) => Urgency::Submits,
            (true, false) => Urgency::Computes,
        };
        (urgency, index)
    }
}

impl<'a> Run<'a> {
    /// The life of a worker: it ends when all units are over, or when one has failed.
    fn serve<'scope>(&'scope self, scope: &'scope Scope<'scope, 'a>, worker: usize)
    where
        'a: 'scope,
    {
        let mut started = Vec::new();
        let mut state = self.state.lock();
        while state.failed.is_none() && state.over < self.units.len() {
            let Some((_, unit)) = state.ready.pop_first() else {
                state.idle += 1;
                self.wake.wait(&mut state);
                state.idle -= 1;
                continue;
            };
            // Who leaves something behind calls one more worker, and that one does the same.
            let new_worker = if state.ready.is_empty() { None } else { self.call_worker(&mut state) };
            drop(state);
            started.extend(new_worker.and_then(|worker| {
                let builder = Builder::new().name(format!("kiln-graph-{worker}"));
                // Where the system refuses a thread, the others do its share; it counts as started, and is not asked for again.
                builder.spawn_scoped(scope, move || self.serve(scope, worker)).ok()
            }));
            let result = self.execute(unit, worker);
            state = self.state.lock();
            self.note(&mut state, unit, result);
        }
        drop(state);
        self.wake.notify_all();
        // A scope waits for what its threads do; this waits for their end, values of the thread included.
        for thread in started {
            let _ = thread.join();
        }
    }

    /// Wakes an idle worker; where there is none, the number of one to start.
    fn call_worker(&self, state: &mut State) -> Option<usize> {
        if state.idle > 0 {
            self.wake.notify_one();
            return None;
        }
        if state.workers == self.workers {
            return None;
        }
        state.workers += 1;
        Some(state.workers - 1)
    }

    /// Runs a unit, and gives its name to what goes wrong.
    fn execute(&self, unit: usize, worker: usize) -> Result<UnitRun> {
        let result = catch_panic(|| {
            self.wait_for_devices(unit)?;
            let start_ns = self.now_ns();
            let submission = match self.work[unit] {
                work @ Work::Submit(commands) => {
                    work.device_buffer().map(|buffer| submit_in_parts(buffer.api(), commands)).transpose()?
                }
                Work::Transfer { from, to } => from.copy_to(to).map(|()| None)?,
                Work::Host { buffers, callback } => callback(buffers).map(|()| None)?,
            };
            Ok(UnitRun { worker, start_ns, end_ns: self.now_ns(), submission, done_ns: None })
        });
        result.map_err(|error| error.context(self.units[unit].describe(self.nodes)))
    }

    /// Blocks until the device is done with what the unit needs from it.
    fn wait_for_devices(&self, unit: usize) -> Result<()> {
        for &awaited in &self.units[unit].awaited {
            let submission = self.state.lock().runs[awaited].and_then(|run| run.submission);
            let (Some(submission), Some(buffer)) = (submission, self.work[awaited].device_buffer()) else { continue };
            let fault = buffer.api().wait(submission).err().or_else(|| buffer.api().fault());
            if let Some(fault) = fault {
                let nodes = self.units[awaited].describe(self.nodes);
                return Err(fault.context(format!("waiting for {nodes}")));
            }
            let now = self.now_ns();
            if let Some(run) = &mut self.state.lock().runs[awaited] {
                run.done_ns = Some(run.done_ns.map_or(now, |done| done.min(now)));
            }
        }
        Ok(())
    }

    /// Takes the result of a unit, and lines up what it was the last to hold back.
    fn note(&self, state: &mut State, unit: usize, result: Result<UnitRun>) {
        match result {
            Ok(run) => {
                state.runs[unit] = Some(run);
                state.over += 1;
                for &next in &self.units[unit].successors {
                    state.missing[next] -= 1;
                    if state.missing[next] == 0 {
                        state.ready.insert(self.units[next].place_in_line(next));
                    }
                }
            }
            Err(error) if state.failed.as_ref().is_none_or(|(first, _)| unit < *first) => {
                state.failed = Some((unit, error));
            }
            Err(_) => {}
        }
    }

    fn now_ns(&self) -> u64 {
        nanos(self.began.elapsed())
    }

    fn finish(self) -> Result<RunReport> {
        let total_ns = self.now_ns();
        let state = self.state.into_inner();
        if let Some((_, error)) = state.failed {
            return Err(error);
        }
        // What was submitted last may already be known to be lost.
        for buffer in self.work.iter().filter_map(|work| work.device_buffer()) {
            buffer.api().fault().map_or(Ok(()), Err)?;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len());
        for ((unit, work), run) in self.units.iter().zip(&self.work).zip(state.runs) {
            let Some(UnitRun { worker, start_ns, end_ns, submission, done_ns }) = run else { continue };
            nodes.extend(unit.nodes.iter().map(|&node| {
                let (name, kind) = &self.nodes[node];
                let (name, kind) = (name.clone(), *kind);
                (NodeRun { name, kind, worker, start_ns, end_ns, submission, done_ns }, *work)
            }));
        }
        nodes.sort_by_key(|(node, _)| node.start_ns);
        if let Some(first) = self.recorders.iter().find(|recorder| recorder.is_watched()) {
            tell::run(first, self.began, total_ns, state.workers, &nodes);
        }
        let nodes = nodes.into_iter().map(|(node, _)| node).collect();
        Ok(RunReport { nodes, workers: state.workers, total_ns })
    }
}

/// Turns a panic into an error: it must not end the worker, which others wait for, nor pass as success.
fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic).to_string();
        // Dropping what was thrown runs foreign code, which may panic again.
        std::mem::forget(panic);
        Err(error!(Internal, "expected a result, found a panic: {text}"))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}
