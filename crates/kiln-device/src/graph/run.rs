//! Executes the units of a plan on threads that end with the run.

use super::events;
use super::node::{NodeKind, Work};
use super::report::{NodeRun, RunReport};
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

/// Runs every unit, with its rebound work if there is one, on at most `workers` threads.
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
    let remaining: Vec<usize> = units.iter().map(|unit| unit.predecessors).collect();
    let ready = (0..units.len()).filter(|&unit| remaining[unit] == 0).map(|unit| units[unit].with_priority(unit));
    let state = State {
        ready: ready.collect(),
        remaining,
        runs: vec![None; units.len()],
        finished: 0,
        workers: 1,
        idle: 0,
        failed: None,
    };
    let (began, state, wake) = (Instant::now(), Mutex::new(state), Condvar::new());
    let run = Run { nodes, units, work, recorders, workers, began, state, wake };
    std::thread::scope(|scope| run.run_worker(scope, 0));
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
    /// Idle workers wait here, with `state`.
    wake: Condvar,
}

struct State {
    /// Units that can run, highest priority first.
    ready: BTreeSet<(Priority, usize)>,
    /// The number of unfinished predecessors of each unit.
    remaining: Vec<usize>,
    runs: Vec<Option<UnitRun>>,
    finished: usize,
    /// The number of threads that were started, including the caller's.
    workers: usize,
    idle: usize,
    /// The failed unit and its error; if several fail, the first in the order of the plan.
    failed: Option<(usize, Error)>,
}

/// The priority of a ready unit. Submissions come first, so that devices have work; units that may wait for a device
/// come last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Priority {
    Submits,
    Computes,
    Waits,
}

/// When a unit ran, in nanoseconds since the start of the run.
#[derive(Clone, Copy)]
struct UnitRun {
    worker: usize,
    start_ns: u64,
    end_ns: u64,
    submission: Option<u64>,
    done_ns: Option<u64>,
}

impl Unit {
    fn with_priority(&self, index: usize) -> (Priority, usize) {
        let priority = match (self.awaited.is_empty(), self.is_deferred) {
            (false, _) => Priority::Waits,
            (true, true) => Priority::Submits,
            (true, false) => Priority::Computes,
        };
        (priority, index)
    }
}

impl<'a> Run<'a> {
    /// The loop of a worker. It ends when all units have finished or one has failed.
    fn run_worker<'scope>(&'scope self, scope: &'scope Scope<'scope, 'a>, worker: usize)
    where
        'a: 'scope,
    {
        let mut started = Vec::new();
        let mut state = self.state.lock();
        while state.failed.is_none() && state.finished < self.units.len() {
            let Some((_, unit)) = state.ready.pop_first() else {
                state.idle += 1;
                self.wake.wait(&mut state);
                state.idle -= 1;
                continue;
            };
            // If more units are ready, one more worker is woken or started, which does the same in turn.
            let new_worker = if state.ready.is_empty() { None } else { self.wake_or_start_worker(&mut state) };
            drop(state);
            started.extend(new_worker.and_then(|worker| {
                let builder = Builder::new().name(format!("kiln-graph-{worker}"));
                // If the system refuses a thread, the other workers do its share. It counts as started and is not
                // requested again.
                builder.spawn_scoped(scope, move || self.run_worker(scope, worker)).ok()
            }));
            let result = self.execute(unit, worker);
            state = self.state.lock();
            // Wakes nobody: this worker takes the next ready unit itself, and wakes another one if more are ready.
            self.complete(&mut state, unit, result);
        }
        drop(state);
        self.wake.notify_all();
        // The scope waits until the closures of its threads return; joining also waits for their thread-locals to be
        // dropped.
        for thread in started {
            let _ = thread.join();
        }
    }

    /// Wakes an idle worker. If there is none, returns the number of a worker to start.
    fn wake_or_start_worker(&self, state: &mut State) -> Option<usize> {
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

    /// Runs a unit and adds its name to errors.
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

    /// Blocks until the devices have completed the submissions that the unit depends on.
    fn wait_for_devices(&self, unit: usize) -> Result<()> {
        for &awaited in &self.units[unit].awaited {
            // The lock is released before the wait, so that other workers continue.
            let submission = self.state.lock().runs[awaited].and_then(|run| run.submission);
            let (Some(submission), Some(buffer)) = (submission, self.work[awaited].device_buffer()) else { continue };
            let fault = buffer.api().wait(submission).err().or_else(|| buffer.api().fault());
            // The device may be lost although the wait itself succeeded.
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

    /// Stores the result of a unit, and makes its successors ready if it was their last predecessor.
    fn complete(&self, state: &mut State, unit: usize, result: Result<UnitRun>) {
        match result {
            Ok(run) => {
                state.runs[unit] = Some(run);
                state.finished += 1;
                for &next in &self.units[unit].successors {
                    state.remaining[next] -= 1;
                    if state.remaining[next] == 0 {
                        state.ready.insert(self.units[next].with_priority(next));
                    }
                }
            }
            // Of several errors the one of the first unit is returned, whichever worker was faster.
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
        // The device may already have lost the last submissions.
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
        // Stable, so that nodes of one submission keep their order.
        nodes.sort_by_key(|(node, _)| node.start_ns);
        if let Some(first) = self.recorders.iter().find(|recorder| recorder.is_watched()) {
            events::emit_run(first, self.began, total_ns, state.workers, &nodes);
        }
        let nodes = nodes.into_iter().map(|(node, _)| node).collect();
        Ok(RunReport { nodes, workers: state.workers, total_ns })
    }
}

/// Turns a panic into an error: it must neither end the worker, which others wait for, nor count as success.
fn catch_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic_text(&*panic).to_string();
        // Dropping the payload runs foreign code, which may panic again.
        std::mem::forget(panic);
        Err(error!(Internal, "expected a result, found a panic: {text}"))
    })
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}
