//! Watches a kernel while it runs, one invocation after the other, and says what is wrong with it.
//!
//! The code calls the functions at the end of this file at each access, barrier and decision of a work-group, with the number of the
//! place in the program. `shadow` remembers who touched what, `site` knows the places, `finding` is what comes out.

mod finding;
pub(crate) mod shadow;
pub(crate) mod site;

pub use finding::{Finding, FindingKind, Invocation};

use crate::LANES;
use crate::abi::Helper;
use naga::Barrier;
use shadow::{Access, Shadow, invocation, place_of};
use site::{Object, Site, Use};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::sync::Arc;

/// A launch that is watched: its size, and what is known about it.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The kernel, as findings name it.
    pub kernel: String,
    /// Invocations of a work-group along each axis.
    pub workgroup_size: [u32; 3],
    /// Work-groups along each axis, of all its parts.
    pub workgroups: [u32; 3],
    /// Whether the memory of a work-group begins as zeros, which atomics may rely on.
    pub zero_workgroup: bool,
}

/// What is known about a running launch, which may run in parts.
#[derive(Debug, Default)]
pub struct Sanitizer {
    watched: Watched,
    sites: Arc<[Site]>,
    /// The running part: its first work-group, and how many it has along each axis.
    part: [[u32; 3]; 2],
    /// The running work-group, by its number in the whole grid.
    group: u64,
    /// Whether the work-group went a way that it cannot go, so that nothing it does later is to be trusted.
    is_astray: bool,
    /// Barriers that order accesses to buffers, and to the memory of the work-group.
    buffer_epoch: u32,
    shared_epoch: u32,
    /// Barriers that order what invocations of each subgroup do.
    subgroup_epochs: HashMap<u32, u32>,
    buffers: Vec<Shadow>,
    shared: Shadow,
    /// What the invocation before said about a decision: its place in the work-group, and the value.
    decisions: HashMap<u32, (u32, i64)>,
    /// The first invocation that is at the barrier, and the first that will never be.
    arrived: Option<u32>,
    returned: Option<u32>,
    /// Scalars of the variables of each invocation that nothing was written to.
    unwritten: Vec<Vec<bool>>,
    /// Whether one invocation runs after the other, to its end.
    in_turns: bool,
    /// NaN that was made at a site: by which invocations of the work-group, in order, and of what.
    births: HashMap<u32, BTreeMap<u32, Vec<f32>>>,
    findings: Vec<Finding>,
}

impl Sanitizer {
    /// `in_turns`: one invocation runs after the other, to its end.
    pub(crate) fn new(watched: Watched, sites: &Arc<[Site]>, in_turns: bool) -> Self {
        let grain = |object: Object| {
            sites.iter().filter(|site| site.object == object).map(|site| site.grain).min().unwrap_or(4)
        };
        let places = sites.iter().filter_map(|site| match site.object {
            Object::Bound(place) => Some(place + 1),
            _ => None,
        });
        let count = places.max().unwrap_or(0);
        Self {
            buffers: (0..count).map(|place| Shadow::new(grain(Object::Bound(place)), false)).collect(),
            shared: Shadow::new(grain(Object::Shared), true),
            watched,
            sites: Arc::clone(sites),
            in_turns,
            ..Self::default()
        }
    }

    /// Takes what was found since the last time, the first thing first.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    /// A part of the grid begins. It runs beside the others, so what they did is still known.
    pub(crate) fn begin_part(&mut self, first: [u32; 3], workgroups: [u32; 3]) {
        self.part = [first, workgroups];
    }

    fn invocation(&self, who: u64) -> Invocation {
        let (group, local_index) = place_of(who);
        let workgroup_id = split(group, self.watched.workgroups);
        let local = split(local_index.into(), self.watched.workgroup_size);
        let global_id = std::array::from_fn(|axis| {
            workgroup_id[axis].wrapping_mul(self.watched.workgroup_size[axis]).wrapping_add(local[axis])
        });
        Invocation { global_id, local_index, workgroup_id }
    }

    fn who(&self, local: u32) -> u64 {
        invocation(self.group, local)
    }

    /// The element that a byte of an object is in, and the variable with it.
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

    /// Tells a finding, or that it was seen again.
    fn report(&mut self, mut finding: Finding) {
        if self.is_astray {
            return;
        }
        finding.kernel.clone_from(&self.watched.kernel);
        Finding::add(&mut self.findings, finding);
    }

    fn finding(&self, kind: FindingKind, site: &Site, who: u64, message: String) -> Finding {
        Finding {
            kind,
            kernel: String::new(),
            line: site.line,
            column: site.column,
            variable: Some(site.name.clone()).filter(|name| !name.is_empty()),
            index: None,
            length: None,
            invocation: self.invocation(who),
            other: None,
            other_line: None,
            message,
            count: 1,
        }
    }

    fn begin_group(&mut self, number: u64) {
        let ([first, workgroups], [x, y, _]) = (self.part, self.watched.workgroups);
        let inside = split(number, workgroups);
        let place: [u64; 3] = std::array::from_fn(|axis| u64::from(first[axis]) + u64::from(inside[axis]));
        self.group = (place[2] * u64::from(y) + place[1]) * u64::from(x) + place[0];
        self.is_astray = false;
        self.decisions.clear();
        self.births.clear();
    }

    fn access(&mut self, number: u32, local: u32, offset: u64) {
        let sites = Arc::clone(&self.sites);
        let Some(site) = sites.get(number as usize) else { return };
        let (who, group) = (self.who(local), self.group);
        let subgroup_epoch = self.subgroup_epochs.get(&(local / LANES as u32)).copied().unwrap_or(0);
        let (shadow, epoch) = match site.object {
            Object::Bound(place) => match self.buffers.get_mut(place as usize) {
                Some(shadow) => (shadow, self.buffer_epoch),
                None => return,
            },
            Object::Shared => (&mut self.shared, self.shared_epoch),
            Object::Own => return,
        };
        let access = Access { who, epoch, subgroup_epoch, site: number };
        let may_begin_as_zeros = site.what == Use::Atomic && self.watched.zero_workgroup;
        let is_unwritten = site.object == Object::Shared
            && !matches!(site.what, Use::Write | Use::AtomicWrite)
            && !may_begin_as_zeros
            && shadow.is_untouched(offset, site.bytes, group);
        let race = match site.what {
            Use::Read => shadow.read(offset, site.bytes, access),
            Use::Write => shadow.write(offset, site.bytes, access),
            _ => {
                shadow.set(offset, site.bytes, access);
                None
            }
        };
        if is_unwritten {
            self.report_unwritten(site, who, offset);
        }
        if let Some((byte, earlier)) = race {
            self.report_race(site, byte, access, earlier, &sites);
        }
    }

    fn report_race(&mut self, site: &Site, byte: u64, access: Access, earlier: Access, sites: &[Site]) {
        let Some(other) = sites.get(earlier.site as usize) else { return };
        let (index, name) = Self::element(site, byte);
        let (present, past) = match (site.what, other.what) {
            (Use::Write, Use::Write) => ("writes", "wrote"),
            (Use::Write, _) => ("writes", "read"),
            _ => ("reads", "wrote"),
        };
        let between = match (access.who >> 16 == earlier.who >> 16, site.object) {
            (false, _) => "and work-groups of a dispatch run in no order",
            (true, Object::Shared) => "and no `workgroupBarrier` is in between",
            (true, _) => "and no `storageBarrier` is in between",
        };
        // What many change in one place is most often to be an atomic.
        let remedy = if site.line == other.line { ", nor are these accesses atomic" } else { "" };
        let (second, first) = (self.invocation(access.who), self.invocation(earlier.who));
        let message =
            format!("{second} {present} {name}, which {first} {past} in line {}, {between}{remedy}", other.line);
        let finding = Finding {
            index,
            other: Some(first),
            other_line: Some(other.line),
            ..self.finding(FindingKind::Race, site, access.who, message)
        };
        self.report(finding);
    }

    fn report_unwritten(&mut self, site: &Site, who: u64, offset: u64) {
        let (index, name) = Self::element(site, offset);
        let message = format!("{} reads {name}, which nothing was written to", self.invocation(who));
        let finding = Finding { index, ..self.finding(FindingKind::Uninitialised, site, who, message) };
        self.report(finding);
    }

    fn out_of_bounds(&mut self, number: u32, local: u32, index: u64, length: u64) {
        let Some(site) = self.sites.get(number as usize) else { return };
        let who = self.who(local);
        let verb = match site.what {
            Use::Read => "reads",
            Use::Write | Use::AtomicWrite => "writes",
            Use::Atomic => "changes",
            Use::Control | Use::Compute => "uses",
        };
        let name = if site.name.is_empty() { "a value".to_string() } else { format!("`{}`", site.name) };
        // An index below zero is a large one.
        let shown = match u32::try_from(index) {
            Ok(index) if index > i32::MAX.cast_unsigned() => format!("{index} ({})", index.cast_signed()),
            _ => index.to_string(),
        };
        let message = format!("{} {verb} index {shown} of {name}, which has {length} elements", self.invocation(who));
        let finding = Finding {
            index: Some(index),
            length: Some(length),
            ..self.finding(FindingKind::OutOfBounds, site, who, message)
        };
        self.report(finding);
    }

    fn arrive(&mut self, local: u32, is_here: bool) {
        let first = if is_here { &mut self.arrived } else { &mut self.returned };
        first.get_or_insert(local);
    }

    fn barrier(&mut self, number: u32, local: u32, barrier: Barrier) {
        self.buffer_epoch += u32::from(barrier.contains(Barrier::STORAGE));
        self.shared_epoch += u32::from(barrier.contains(Barrier::WORK_GROUP));
        if barrier.contains(Barrier::SUB_GROUP) {
            *self.subgroup_epochs.entry(local / LANES as u32).or_default() += 1;
        }
        let (arrived, returned) = (self.arrived.take(), self.returned.take());
        if let (Some(here), Some(gone)) = (arrived, returned) {
            let gone = self.invocation(self.who(gone));
            let here_text = self.invocation(self.who(here));
            self.report_divergence(
                number,
                here,
                gone,
                format!("{here_text} waits at a barrier, and {gone} has returned"),
            );
        }
    }

    fn decide(&mut self, number: u32, local: u32, value: i64, is_bool: bool) {
        let before = self.decisions.insert(number, (local, value));
        // In order: with a number that is not larger, the next round has begun.
        if let Some((other, said)) = before.filter(|(other, said)| *other < local && *said != value) {
            let (second, first) = (self.invocation(self.who(local)), self.invocation(self.who(other)));
            let [value, said] =
                [value, said].map(|value| if is_bool { (value != 0).to_string() } else { value.to_string() });
            let message =
                format!("a barrier depends on this condition, which is {value} for {second} and {said} for {first}");
            self.report_divergence(number, local, first, message);
        }
    }

    fn report_divergence(&mut self, number: u32, local: u32, other: Invocation, message: String) {
        let Some(site) = self.sites.get(number as usize) else { return };
        let finding = self.finding(FindingKind::DivergentBarrier, site, self.who(local), message);
        self.report(Finding { other: Some(other), ..finding });
        self.is_astray = true;
    }

    /// The scalars of an invocation's variables.
    fn own(&mut self, local: u32, first: u32, count: u32) -> &mut [bool] {
        // Each begins by saying what it has not written: where the one before is done, it may have its place.
        let local = if self.in_turns { 0 } else { local as usize };
        let (first, end) = (first as usize, (first + count) as usize);
        if self.unwritten.len() <= local {
            self.unwritten.resize(local + 1, Vec::new());
        }
        let own = &mut self.unwritten[local];
        if own.len() < end {
            own.resize(end, false);
        }
        &mut own[first..end]
    }

    fn check_own(&mut self, number: u32, local: u32, first: u32, count: u32) {
        if self.own(local, first, count).contains(&false) {
            return;
        }
        let sites = Arc::clone(&self.sites);
        let Some(site) = sites.get(number as usize) else { return };
        self.report_unwritten(site, self.who(local), first.into());
    }

    fn not_a_number(&mut self, number: u32, local: u32, operands: Vec<f32>) {
        self.births.entry(number).or_default().insert(local, operands);
    }

    /// NaN of a place, counted from 1, or what follows from it, is seen by an invocation at another place: at a byte, counted from 1, of what
    /// it writes, or at none.
    fn see_not_a_number(&mut self, seen: u32, local: u32, number: u32, byte: u64, is_itself: bool) {
        let sites = Arc::clone(&self.sites);
        let Some(number) = number.checked_sub(1) else { return };
        let Some(births) = self.births.get(&number) else { return };
        // Its own, or what another one handed on through memory.
        let own = births.get_key_value(&local).or_else(|| births.first_key_value());
        let Some((maker, operands)) = own.map(|(maker, operands)| (*maker, operands.clone())) else { return };
        let who = self.who(maker);
        let (Some(site), Some(seen)) = (sites.get(number as usize), sites.get(seen as usize)) else { return };
        let of = match &operands[..] {
            [] => "of numbers".to_string(),
            operands => {
                format!("of {}", operands.iter().map(f32::to_string).collect::<Vec<_>>().join(" and "))
            }
        };
        let Site { name, line, .. } = seen;
        let place = byte.checked_sub(1).map(|byte| Self::element(seen, byte));
        let (index, place) = place.unwrap_or_else(|| (None, format!("`{name}`")));
        let what = match seen.what {
            _ if is_itself => format!("line {line} writes to {place}"),
            Use::Control => format!("decides the way that line {line} goes"),
            Use::Compute => format!("decides the index of {place} in line {line}"),
            _ => format!("decides what line {line} writes to {place}"),
        };
        let message = format!("{} makes NaN {of}, which {what}", self.invocation(who));
        let finding = Finding {
            variable: Some(name.clone()).filter(|name| !name.is_empty()),
            index,
            other_line: Some(*line),
            ..self.finding(FindingKind::NotANumber, site, who, message)
        };
        self.report(finding);
    }
}

/// A number along x, then y, then z, as its place along each.
fn split(number: u64, [x, y, _]: [u32; 3]) -> [u32; 3] {
    let (x, y) = (u64::from(x.max(1)), u64::from(y.max(1)));
    [number % x, number / x % y, number / x / y].map(|number| number as u32)
}

/// The bits of a NaN that name the site where it was made, counted from 1: arithmetic hands them on.
pub(crate) const NAN_SITE: u32 = (1 << 22) - 1;

/// What the code calls, by its place behind the other functions of the table. All of them take the sanitizer, the number of a site, the
/// place of the invocation in its work-group, and two numbers more.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A work-group begins: its number.
    Group,
    /// An access: the byte in its object.
    Access,
    /// An index that is beyond the end: the index, the length.
    OutOfBounds,
    /// An invocation is at a barrier, or has returned before: whether it is here.
    Arrive,
    /// All are at a barrier, or one is at that of its subgroup: naga's bits of it.
    Barrier,
    /// What an invocation says about the way of the work-group: the value, and whether it is true or false.
    Decide,
    /// A variable of an invocation begins without a value, is written, is read: the first scalar, and how many.
    Forget,
    Write,
    Check,
    /// Arithmetic made NaN: the bits of two operands, and how many there are.
    NotANumber,
    /// NaN reaches memory: its bits, and the byte in its object, counted from 1.
    StoreNotANumber,
    /// What follows from NaN decides something: its trace, and the byte that is written, counted from 1; 0 where none is.
    FollowNotANumber,
}

/// A function that code calls.
pub(crate) type OnEvent = unsafe extern "C" fn(*mut c_void, u32, u32, u64, u64);

macro_rules! events {
    ($($event:ident: |$state:ident, $site:ident, $local:ident, $a:ident, $b:ident| $body:expr;)+) => {
        $(
            /// # Safety
            /// `state` is null, or points to a [`Sanitizer`] that nobody else uses.
            #[allow(non_snake_case, unused_variables)]
            unsafe extern "C" fn $event(state: *mut c_void, $site: u32, $local: u32, $a: u64, $b: u64) {
                // SAFETY: the caller's promise.
                if let Some($state) = unsafe { state.cast::<Sanitizer>().as_mut() } {
                    $body
                }
            }
        )+

        /// The functions, in the order of [`Event`].
        pub(crate) fn table() -> impl Iterator<Item = Helper> {
            let functions: [(Event, OnEvent); 12] = [$((Event::$event, $event)),+];
            functions.into_iter().map(|(_, function)| function as Helper)
        }
    };
}

events! {
    Group: |state, _site, _local, number, _b| state.begin_group(number);
    Access: |state, site, local, offset, _b| state.access(site, local, offset);
    OutOfBounds: |state, site, local, index, length| state.out_of_bounds(site, local, index, length);
    Arrive: |state, _site, local, is_here, _b| state.arrive(local, is_here != 0);
    Barrier: |state, site, local, bits, _b| state.barrier(site, local, Barrier::from_bits_truncate(bits as u32));
    Decide: |state, site, local, value, is_bool| state.decide(site, local, value.cast_signed(), is_bool != 0);
    Forget: |state, _site, local, first, count| state.own(local, first as u32, count as u32).fill(true);
    Write: |state, _site, local, first, count| state.own(local, first as u32, count as u32).fill(false);
    Check: |state, site, local, first, count| state.check_own(site, local, first as u32, count as u32);
    NotANumber: |state, site, local, operands, count| {
        let both = [operands as u32, (operands >> 32) as u32].map(f32::from_bits);
        state.not_a_number(site, local, both[..count.min(2) as usize].to_vec());
    };
    StoreNotANumber: |state, site, local, bits, byte| {
        state.see_not_a_number(site, local, bits as u32 & NAN_SITE, byte, true);
    };
    FollowNotANumber: |state, site, local, trace, byte| state.see_not_a_number(site, local, trace as u32, byte, false);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where invocations run in turns, what one has not written takes the place of what the one before had.
    #[test]
    fn invocations_in_turns_have_one_place() {
        for (in_turns, places) in [(true, 1), (false, 1000)] {
            let watched = Watched {
                kernel: "k".into(),
                workgroup_size: [1000, 1, 1],
                workgroups: [1, 1, 1],
                zero_workgroup: true,
            };
            let mut sanitizer = Sanitizer::new(watched, &Vec::new().into(), in_turns);
            for local in 0..1000 {
                sanitizer.own(local, 0, 9).fill(true);
                sanitizer.own(local, 4, 2).fill(false);
                assert!(sanitizer.own(local, 4, 2) == [false; 2] && sanitizer.own(local, 6, 3) == [true; 3]);
            }
            assert_eq!(sanitizer.unwritten.len(), places);
        }
    }
}
