//! The sanitizer: finds races, out-of-bounds accesses, uninitialised reads, divergent barriers and NaN in a
//! running kernel.
//!
//! Instrumented code runs one invocation at a time and calls the functions at the end of this file at each
//! access, barrier and condition of the workgroup, with the index of a site. `shadow` is the shadow memory,
//! `site` describes the sites, `finding` is the result.

mod finding;
pub(crate) mod shadow;
pub(crate) mod site;

pub use finding::{Finding, FindingKind, Invocation};

use crate::LANES;
use crate::abi::LibCall;
use naga::Barrier;
use shadow::{Access, Shadow, pack_invocation, unpack_invocation};
use site::{Object, Site, SiteKind};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::Arc;

/// Description of a launch that is checked.
///
/// See the [crate documentation](crate) for an example.
#[derive(Clone, Debug, Default)]
pub struct LaunchInfo {
    /// Name of the kernel in findings.
    pub kernel: String,
    /// Workgroup size along each axis.
    pub workgroup_size: [u32; 3],
    /// Number of workgroups along each axis, of the whole launch.
    pub workgroups: [u32; 3],
    /// Whether workgroup memory starts as zeros, which atomics may rely on.
    pub zero_workgroup: bool,
}

/// State of a launch, which may run in several parts.
///
/// See the [crate documentation](crate) for an example.
#[derive(Debug, Default)]
pub struct Sanitizer {
    launch: LaunchInfo,
    sites: Arc<[Site]>,
    /// The current part: its first workgroup, and its number of workgroups along each axis.
    grid_part: [[u32; 3]; 2],
    /// Linear index of the current workgroup in the whole grid.
    group: u64,
    /// Whether the current workgroup diverged at a barrier. Its later behaviour is undefined, so nothing more
    /// is reported.
    is_divergent: bool,
    /// Number of barriers passed that order accesses to buffers, and to workgroup memory.
    buffer_epoch: u32,
    workgroup_epoch: u32,
    /// Number of subgroup barriers passed by each subgroup.
    subgroup_epochs: HashMap<u32, u32>,
    /// Shadow memory of each writable binding.
    buffer_shadows: Vec<Shadow>,
    workgroup_shadow: Shadow,
    /// For each condition, the last invocation that evaluated it and its value.
    conditions: HashMap<u32, (u32, i64)>,
    /// The first invocation that arrived at the current barrier, and the first that had returned before it.
    arrived: Option<u32>,
    returned: Option<u32>,
    /// For each invocation, which scalars of its variables are uninitialised.
    uninitialised: Vec<Vec<bool>>,
    /// Whether each invocation runs to completion before the next (no barriers).
    is_sequential: bool,
    /// NaN created at each site in the current workgroup: by invocation, with the operands.
    nan_origins: HashMap<u32, BTreeMap<u32, Vec<f32>>>,
    findings: Vec<Finding>,
}

impl Sanitizer {
    /// Creates the state of a launch.
    pub(crate) fn new(launch: LaunchInfo, sites: &Arc<[Site]>, is_sequential: bool) -> Self {
        // One shadow cell per smallest scalar that is accessed, so that neighbouring scalars do not appear to
        // race.
        let granularity = |object: Object| {
            sites.iter().filter(|site| site.object == object).map(|site| site.granularity).min().unwrap_or(4)
        };
        let counts = sites.iter().filter_map(|site| match site.object {
            Object::Binding(binding) => Some(binding + 1),
            _ => None,
        });
        let count = counts.max().unwrap_or(0);
        Self {
            buffer_shadows: (0..count)
                .map(|binding| Shadow::new(granularity(Object::Binding(binding)), false))
                .collect(),
            workgroup_shadow: Shadow::new(granularity(Object::Workgroup), true),
            launch,
            sites: Arc::clone(sites),
            is_sequential,
            ..Self::default()
        }
    }

    /// Takes the findings since the last call, in the order they were found.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// Starts a part of the grid. Parts of a launch are concurrent, so the shadow memory is kept.
    pub(crate) fn begin_part(&mut self, first: [u32; 3], workgroups: [u32; 3]) {
        self.grid_part = [first, workgroups];
    }

    /// Unpacks an invocation for a finding.
    fn invocation(&self, packed: u64) -> Invocation {
        let (group, local_index) = unpack_invocation(packed);
        let workgroup_id = unflatten(group, self.launch.workgroups);
        let local = unflatten(local_index.into(), self.launch.workgroup_size);
        let global_id = std::array::from_fn(|axis| {
            workgroup_id[axis].wrapping_mul(self.launch.workgroup_size[axis]).wrapping_add(local[axis])
        });
        Invocation { global_id, local_index, workgroup_id }
    }

    /// Packs an invocation of the current workgroup for shadow memory.
    fn packed(&self, local: u32) -> u64 {
        pack_invocation(self.group, local)
    }

    /// Returns the element that contains a byte of an object, and the text `variable[index]`.
    fn element(site: &Site, offset: u64) -> (Option<u64>, String) {
        let index = (site.stride > 0)
            .then(|| offset.checked_sub(site.first.into()).map(|offset| offset / u64::from(site.stride)))
            .flatten();
        let name = match index {
            Some(index) => format!("`{}[{index}]`", site.name),
            None => format!("`{}`", site.name),
        };
        (index, name)
    }

    /// Adds a finding, or counts it if it is known.
    fn report(&mut self, mut finding: Finding) {
        if self.is_divergent {
            return;
        }
        finding.kernel.clone_from(&self.launch.kernel);
        Finding::add(&mut self.findings, finding);
    }

    /// Creates a finding at a site.
    fn finding(&self, kind: FindingKind, site: &Site, packed: u64, message: String) -> Finding {
        Finding {
            kind,
            kernel: String::new(),
            line: site.line,
            column: site.column,
            variable: Some(site.name.clone()).filter(|name| !name.is_empty()),
            index: None,
            length: None,
            invocation: self.invocation(packed),
            other: None,
            other_line: None,
            message,
            count: 1,
        }
    }

    /// Starts a workgroup.
    fn begin_workgroup(&mut self, index: u64) {
        let ([first, workgroups], [x, y, _]) = (self.grid_part, self.launch.workgroups);
        let inside = unflatten(index, workgroups);
        // The part's index to the index in the whole grid: shadow memory compares workgroups of different
        // parts.
        let id: [u64; 3] = std::array::from_fn(|axis| u64::from(first[axis]) + u64::from(inside[axis]));
        self.group = (id[2] * u64::from(y) + id[1]) * u64::from(x) + id[0];
        // Epochs go on counting: they are only compared for equality, between accesses of one workgroup.
        self.is_divergent = false;
        self.conditions.clear();
        self.nan_origins.clear();
    }

    /// Checks an access to memory that is shared between invocations.
    fn access(&mut self, site_index: u32, local: u32, offset: u64) {
        // Cloned, because `site` must not borrow `self`, which the reports below change.
        let sites = Arc::clone(&self.sites);
        let Some(site) = sites.get(site_index as usize) else { return };
        let (packed, group) = (self.packed(local), self.group);
        let subgroup_epoch = self.subgroup_epochs.get(&(local / LANES as u32)).copied().unwrap_or(0);
        let (shadow, epoch) = match site.object {
            Object::Binding(binding) => match self.buffer_shadows.get_mut(binding as usize) {
                Some(shadow) => (shadow, self.buffer_epoch),
                None => return,
            },
            Object::Workgroup => (&mut self.workgroup_shadow, self.workgroup_epoch),
            Object::Untracked => return,
        };
        // Check before recording: the record replaces the previous writer.
        let access = Access { invocation: packed, epoch, subgroup_epoch, site: site_index };
        let is_zero_initialised = site.kind == SiteKind::Atomic && self.launch.zero_workgroup;
        // Buffers come from the caller, so only workgroup memory can be uninitialised.
        let is_uninitialised = site.object == Object::Workgroup
            && !matches!(site.kind, SiteKind::Write | SiteKind::AtomicWrite)
            && !is_zero_initialised
            && shadow.is_unwritten(offset, site.bytes, group);
        let race = match site.kind {
            SiteKind::Read => shadow.read(offset, site.bytes, access),
            SiteKind::Write => shadow.write(offset, site.bytes, access),
            _ => {
                shadow.set(offset, site.bytes, access);
                None
            }
        };
        if is_uninitialised {
            self.report_uninitialised(site, packed, offset);
        }
        if let Some((byte, earlier)) = race {
            self.report_race(site, byte, access, earlier, &sites);
        }
    }

    /// Reports a race of two accesses.
    fn report_race(&mut self, site: &Site, byte: u64, access: Access, earlier: Access, sites: &[Site]) {
        let Some(other) = sites.get(earlier.site as usize) else { return };
        let (index, name) = Self::element(site, byte);
        let (present, past) = match (site.kind, other.kind) {
            (SiteKind::Write, SiteKind::Write) => ("writes", "wrote"),
            (SiteKind::Write, _) => ("writes", "read"),
            _ => ("reads", "wrote"),
        };
        let between = match (access.invocation >> 16 == earlier.invocation >> 16, site.object) {
            (false, _) => "and workgroups of a dispatch run in no defined order",
            (true, Object::Workgroup) => "and no `workgroupBarrier` is in between",
            (true, _) => "and no `storageBarrier` is in between",
        };
        // Several invocations that update one location usually need an atomic.
        let remedy = if site.line == other.line { ", nor are these accesses atomic" } else { "" };
        let (second, first) = (self.invocation(access.invocation), self.invocation(earlier.invocation));
        let message =
            format!("{second} {present} {name}, which {first} {past} in line {}, {between}{remedy}", other.line);
        let finding = Finding {
            index,
            other: Some(first),
            other_line: Some(other.line),
            ..self.finding(FindingKind::Race, site, access.invocation, message)
        };
        self.report(finding);
    }

    /// Reports a read of uninitialised memory.
    fn report_uninitialised(&mut self, site: &Site, packed: u64, offset: u64) {
        let (index, name) = Self::element(site, offset);
        let message = format!("{} reads {name}, which was never written", self.invocation(packed));
        let finding = Finding { index, ..self.finding(FindingKind::Uninitialised, site, packed, message) };
        self.report(finding);
    }

    /// Reports an index that is out of bounds.
    fn out_of_bounds(&mut self, site_index: u32, local: u32, index: u64, length: u64) {
        let Some(site) = self.sites.get(site_index as usize) else { return };
        let packed = self.packed(local);
        let verb = match site.kind {
            SiteKind::Read => "reads",
            SiteKind::Write | SiteKind::AtomicWrite => "writes",
            SiteKind::Atomic => "changes",
            SiteKind::Control | SiteKind::Compute => "uses",
        };
        let name = if site.name.is_empty() { "a value".to_string() } else { format!("`{}`", site.name) };
        // A negative `i32` index arrives as a large `u32`. Show both.
        let shown = match u32::try_from(index) {
            Ok(index) if index > i32::MAX.cast_unsigned() => format!("{index} ({})", index.cast_signed()),
            _ => index.to_string(),
        };
        let message =
            format!("{} {verb} index {shown} of {name}, which has {length} elements", self.invocation(packed));
        let finding = Finding {
            index: Some(index),
            length: Some(length),
            ..self.finding(FindingKind::OutOfBounds, site, packed, message)
        };
        self.report(finding);
    }

    /// Records that an invocation arrived at a barrier, or had returned before it.
    fn arrive(&mut self, local: u32, has_arrived: bool) {
        let first = if has_arrived { &mut self.arrived } else { &mut self.returned };
        first.get_or_insert(local);
    }

    /// Starts a new epoch, and reports a barrier that only some invocations reached.
    fn barrier(&mut self, site_index: u32, local: u32, barrier: Barrier) {
        self.buffer_epoch += u32::from(barrier.contains(Barrier::STORAGE));
        self.workgroup_epoch += u32::from(barrier.contains(Barrier::WORK_GROUP));
        if barrier.contains(Barrier::SUB_GROUP) {
            *self.subgroup_epochs.entry(local / LANES as u32).or_default() += 1;
        }
        // Both are `None` for functions without early returns, whose invocations all arrive.
        let (arrived, returned) = (self.arrived.take(), self.returned.take());
        if let (Some(waiting), Some(returned_invocation)) = (arrived, returned) {
            let returned_invocation = self.invocation(self.packed(returned_invocation));
            let waiting_invocation = self.invocation(self.packed(waiting));
            self.report_divergence(
                site_index,
                waiting,
                returned_invocation,
                format!("{waiting_invocation} waits at a barrier, and {returned_invocation} has returned"),
            );
        }
    }

    /// Checks that invocations agree on a condition that a barrier depends on.
    fn check_condition(&mut self, site_index: u32, local: u32, value: i64, is_bool: bool) {
        let before = self.conditions.insert(site_index, (local, value));
        // Invocations evaluate it in ascending order. A smaller index means that the next loop iteration has
        // begun.
        if let Some((other, other_value)) =
            before.filter(|(other, other_value)| *other < local && *other_value != value)
        {
            let (second, first) = (self.invocation(self.packed(local)), self.invocation(self.packed(other)));
            let [value, other_value] =
                [value, other_value].map(|value| if is_bool { (value != 0).to_string() } else { value.to_string() });
            let message = format!(
                "a barrier depends on this condition, which is {value} for {second} and {other_value} for {first}"
            );
            self.report_divergence(site_index, local, first, message);
        }
    }

    /// Reports divergence around a barrier.
    fn report_divergence(&mut self, site_index: u32, local: u32, other: Invocation, message: String) {
        let Some(site) = self.sites.get(site_index as usize) else { return };
        let finding = self.finding(FindingKind::DivergentBarrier, site, self.packed(local), message);
        self.report(Finding { other: Some(other), ..finding });
        // After this the workgroup continues as one invocation decided, which is wrong for the others.
        self.is_divergent = true;
    }

    /// Returns the uninitialised flags of some scalars of an invocation's variables.
    fn uninit_flags(&mut self, local: u32, first: u32, count: u32) -> &mut [bool] {
        // Invocations that run to completion can share one set of flags: each starts by marking its variables.
        let local = if self.is_sequential { 0 } else { local as usize };
        let (first, end) = (first as usize, (first + count) as usize);
        if self.uninitialised.len() <= local {
            self.uninitialised.resize(local + 1, Vec::new());
        }
        let own = &mut self.uninitialised[local];
        if own.len() < end {
            own.resize(end, false);
        }
        &mut own[first..end]
    }

    /// Reports a read whose scalars are all uninitialised.
    fn check_initialised(&mut self, site_index: u32, local: u32, first: u32, count: u32) {
        if self.uninit_flags(local, first, count).contains(&false) {
            return;
        }
        let sites = Arc::clone(&self.sites);
        let Some(site) = sites.get(site_index as usize) else { return };
        self.report_uninitialised(site, self.packed(local), first.into());
    }

    /// Records that arithmetic created NaN.
    fn record_nan(&mut self, site_index: u32, local: u32, operands: Vec<f32>) {
        self.nan_origins.entry(site_index).or_default().insert(local, operands);
    }

    /// Reports that NaN, or a value tainted by it, is used at site `seen`. `site_index` is where it was
    /// created, counted from 1. `byte` is what the use writes, counted from 1, or 0.
    fn report_nan_use(&mut self, seen: u32, local: u32, site_index: u32, byte: u64, is_stored_nan: bool) {
        let sites = Arc::clone(&self.sites);
        let Some(site_index) = site_index.checked_sub(1) else { return };
        let Some(nan_origins) = self.nan_origins.get(&site_index) else { return };
        // Created by this invocation, or by another one that passed it on through memory.
        let own = nan_origins.get_key_value(&local).or_else(|| nan_origins.first_key_value());
        let Some((maker, operands)) = own.map(|(maker, operands)| (*maker, operands.clone())) else { return };
        let packed = self.packed(maker);
        let (Some(site), Some(seen)) = (sites.get(site_index as usize), sites.get(seen as usize)) else { return };
        let inputs = match &operands[..] {
            [] => "numbers".to_string(),
            operands => operands.iter().map(f32::to_string).collect::<Vec<_>>().join(" and "),
        };
        let Site { name, line, .. } = seen;
        let target = byte.checked_sub(1).map(|byte| Self::element(seen, byte));
        let (index, target) = target.unwrap_or_else(|| (None, format!("`{name}`")));
        // The NaN itself, or only a decision that it influenced.
        let effect = match seen.kind {
            _ if is_stored_nan => format!("line {line} writes it to {target}"),
            SiteKind::Control => format!("it decides the branch in line {line}"),
            SiteKind::Compute => format!("it decides the index of {target} in line {line}"),
            _ => format!("it decides the value that line {line} writes to {target}"),
        };
        let message = format!("{} computes NaN from {inputs}; {effect}", self.invocation(packed));
        let finding = Finding {
            variable: Some(name.clone()).filter(|name| !name.is_empty()),
            index,
            other_line: Some(*line),
            ..self.finding(FindingKind::NotANumber, site, packed, message)
        };
        self.report(finding);
    }
}

/// Splits a linear index (x fastest) into its coordinates.
fn unflatten(index: u64, [x, y, _]: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(x.max(1)), u64::from(y.max(1)));
    [index % x, index / x % y, index / x / y].map(|index| index as u32)
}

/// The payload bits of a quiet NaN, which hold the site that created it, counted from 1. Arithmetic preserves
/// them.
pub(crate) const NAN_SITE_MASK: u32 = (1 << 22) - 1;

/// The libcalls of instrumented code, in the order of their table. All take the sanitizer, a site index, the
/// `local_invocation_index` and two arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A workgroup starts. Argument: its linear index in the part.
    BeginWorkgroup,
    /// An access to shared memory. Argument: the byte offset in the object.
    Access,
    /// An index is out of bounds. Arguments: index, length.
    OutOfBounds,
    /// An invocation is at a barrier or had returned before it. Argument: whether it is at the barrier.
    Arrive,
    /// The workgroup passes a barrier, or an invocation passes one of its subgroup. Argument: naga's barrier
    /// bits.
    Barrier,
    /// An invocation evaluated a condition of uniform control flow. Arguments: the value, whether it is a
    /// boolean.
    UniformCondition,
    /// A variable becomes uninitialised, is written, is read. Arguments: first scalar, number of scalars.
    MarkUninit,
    MarkInit,
    CheckInit,
    /// Arithmetic created NaN. Arguments: bits of two operands, number of operands.
    NanCreated,
    /// NaN is stored. Arguments: its bits, the byte offset in the object plus 1.
    NanStored,
    /// A value tainted by NaN has an effect. Arguments: its taint, the byte offset of a store plus 1 or 0.
    NanInfluences,
}

/// The signature of all events.
pub(crate) type EventFunction = unsafe extern "C" fn(*mut c_void, u32, u32, u64, u64);

macro_rules! events {
    ($($event:ident: |$state:ident, $site:ident, $local:ident, $a:ident, $b:ident| $body:expr;)+) => {
        $(
            /// # Safety
            /// `state` is null or points to a [`Sanitizer`] that nothing else uses.
            #[allow(non_snake_case, unused_variables)]
            unsafe extern "C" fn $event(state: *mut c_void, $site: u32, $local: u32, $a: u64, $b: u64) {
                // SAFETY: the caller passes the `sanitizer` field of the call context, which is null or
                // exclusively borrowed.
                if let Some($state) = unsafe { state.cast::<Sanitizer>().as_mut() } {
                    $body
                }
            }
        )+

        /// Returns the addresses of the functions, in the order of [`Event`].
        pub(crate) fn table() -> impl Iterator<Item = LibCall> {
            let functions: [(Event, EventFunction); 12] = [$((Event::$event, $event)),+];
            functions.into_iter().map(|(_, function)| function as LibCall)
        }
    };
}

events! {
    BeginWorkgroup: |state, _site, _local, index, _b| state.begin_workgroup(index);
    Access: |state, site, local, offset, _b| state.access(site, local, offset);
    OutOfBounds: |state, site, local, index, length| state.out_of_bounds(site, local, index, length);
    Arrive: |state, _site, local, has_arrived, _b| state.arrive(local, has_arrived != 0);
    Barrier: |state, site, local, bits, _b| state.barrier(site, local, Barrier::from_bits_truncate(bits as u32));
    UniformCondition: |state, site, local, value, is_bool| state.check_condition(site, local, value.cast_signed(), is_bool != 0);
    MarkUninit: |state, _site, local, first, count| state.uninit_flags(local, first as u32, count as u32).fill(true);
    MarkInit: |state, _site, local, first, count| state.uninit_flags(local, first as u32, count as u32).fill(false);
    CheckInit: |state, site, local, first, count| state.check_initialised(site, local, first as u32, count as u32);
    NanCreated: |state, site, local, operands, count| {
        let both = [operands as u32, (operands >> 32) as u32].map(f32::from_bits);
        state.record_nan(site, local, both[..count.min(2) as usize].to_vec());
    };
    NanStored: |state, site, local, bits, byte| {
        state.report_nan_use(site, local, bits as u32 & NAN_SITE_MASK, byte, true);
    };
    NanInfluences: |state, site, local, taint, byte| state.report_nan_use(site, local, taint as u32, byte, false);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invocations that run to completion reuse one set of flags.
    #[test]
    fn sequential_invocations_share_their_init_flags() {
        for (is_sequential, places) in [(true, 1), (false, 1000)] {
            let launch = LaunchInfo {
                kernel: "k".into(),
                workgroup_size: [1000, 1, 1],
                workgroups: [1, 1, 1],
                zero_workgroup: true,
            };
            let mut sanitizer = Sanitizer::new(launch, &Vec::new().into(), is_sequential);
            for local in 0..1000 {
                sanitizer.uninit_flags(local, 0, 9).fill(true);
                sanitizer.uninit_flags(local, 4, 2).fill(false);
                assert!(
                    sanitizer.uninit_flags(local, 4, 2) == [false; 2]
                        && sanitizer.uninit_flags(local, 6, 3) == [true; 3]
                );
            }
            assert_eq!(sanitizer.uninitialised.len(), places);
        }
    }
}
