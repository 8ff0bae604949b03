//! Judges the facts: each check is ok, a note or a problem. Depends on nothing but the facts.

use super::drivers;
use super::report::{Check, DeviceFacts, Facts, Section, State};
use crate::cache_dir::{CacheDir, CacheDirState, Contents};
use crate::terminal::{count, time};
use kiln::DeviceKind;
use kiln::device::CpuOptions;
use kiln::ir::Bytes;
use std::path::Path;

/// The cache directory gets a note below this much free space.
const LOW_FREE_BYTES: u64 = 256 << 20;

pub(super) fn derive(facts: &Facts) -> Vec<Check> {
    let mut checks: Vec<Check> = facts.devices.iter().map(|device| check_device(device, facts)).collect();
    checks.push(check_default(facts));
    checks.extend(drivers::derive(facts));
    checks.extend(check_processor(facts));
    checks.push(check_cache_dir(&facts.cache_directory));
    checks
}

fn check_device(device: &DeviceFacts, facts: &Facts) -> Check {
    let DeviceFacts { info, test } = device;
    // The CPU device and the default device must work. Any other broken GPU is a note: the default device states why it is
    // not used.
    let must_work = info.kind == DeviceKind::Cpu || facts.default.id.as_ref() == Some(&info.id);
    let state = match (test.works, must_work) {
        (true, _) => State::Ok,
        (false, true) => State::Problem,
        (false, false) => State::Note,
    };
    let outcome = match (&test.error, test.open_us, test.round_trip_us) {
        (None, Some(open), Some(trip)) => {
            let [open, trip] = [open, trip].map(time);
            format!("works: opened in {open}, round trip of data in {trip}")
        }
        (error, ..) => format!("does not work: {}", error.as_deref().unwrap_or("the test was not run")),
    };
    let memory = match (info.memory.total_bytes, info.memory.shared_with_host) {
        (Some(total), true) => format!("{} of memory, shared with the host", Bytes(total)),
        (Some(total), false) => format!("{} of memory", Bytes(total)),
        (None, true) => "memory shared with the host".to_string(),
        (None, false) => "separate memory".to_string(),
    };
    let features: Vec<String> = info.features.iter().map(ToString::to_string).collect();
    let features = if features.is_empty() { "none".to_string() } else { features.join(", ") };
    Check::new(Section::Devices, &info.id, state, format!("{}, {}", info.name, info.kind))
        .detail(format!("driver {} {}", info.driver, info.driver_version).trim_end().to_string())
        .detail(format!("{memory}; pool budget {}", Bytes(info.memory.default_budget_bytes)))
        .detail(format!("features: {features}"))
        .detail(outcome)
}

fn check_default(facts: &Facts) -> Check {
    let default = &facts.default;
    let check = match &default.id {
        Some(id) => Check::new(Section::Default, id, State::Ok, &default.reason),
        None => Check::new(Section::Default, "none", State::Problem, &default.reason),
    };
    default.rejected.iter().fold(check, |check, other| check.detail(format!("not {}: {}", other.id, other.reason)))
}

fn check_processor(facts: &Facts) -> Vec<Check> {
    let ok = |name, message: String| Check::new(Section::Processor, name, State::Ok, message);
    let threads = facts.threads.map(|threads| ok("threads", threads.to_string()));
    let simd = ok("SIMD", facts.simd.clone());
    let simd = if facts.simd_setting.as_ref() == Some(&facts.simd) {
        simd.detail(format!("set by {}", CpuOptions::SIMD_SETTING))
    } else {
        simd
    };
    std::iter::once(simd).chain(threads).collect()
}

fn check_cache_dir(dir: &CacheDir) -> Check {
    let path = dir.path.as_deref().map_or("unknown".into(), Path::to_string_lossy);
    let has_space = dir.free_bytes.is_none_or(|free| free >= LOW_FREE_BYTES);
    let usual = if has_space { State::Ok } else { State::Note };
    let (state, what) = match (dir.state, dir.others_can_read) {
        (CacheDirState::NotCreated, _) => (usual, "is created on first use"),
        (CacheDirState::Ready, Some(true)) => (State::Note, "is readable by other users"),
        (CacheDirState::Ready, _) => (usual, "is private and writable"),
        (CacheDirState::Refused, _) => (State::Problem, "is refused"),
        (CacheDirState::Unwritable | CacheDirState::Invalid, _) => (State::Problem, "is not usable"),
    };
    let mut check = Check::new(Section::Cache, "directory", state, format!("{path} {what}"));
    check.details.extend((dir.source != "default").then(|| format!("set by {}", dir.source)));
    check.details.extend((dir.state == CacheDirState::Ready).then(|| contents(dir.contents)));
    check.details.extend(dir.fault.clone());
    if state == State::Problem {
        check = check.detail("until then, compiled kernels are cached in memory only");
    } else if let Some(free) = dir.free_bytes {
        check = check.detail(format!("{} free on disk", Bytes(free)));
    }
    Check { fix: dir.fix.clone(), ..check }
}

fn contents(contents: Option<Contents>) -> String {
    let Contents { files, bytes, complete } = contents.unwrap_or_default();
    let prefix = if complete { "" } else { "at least " };
    match files {
        0 if complete => "empty".to_string(),
        _ => format!("{prefix}{}, {}", count(files, "file"), Bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machines;
    use crate::doctor::report::{DefaultDevice, Report};

    fn state(facts: &Facts, section: Section, name: &str) -> State {
        let checks = derive(facts);
        let check = checks.iter().find(|check| check.section == section && check.name == name);
        check.unwrap_or_else(|| panic!("expected a check `{name}`, found {checks:?}")).state
    }

    fn fail(facts: &mut Facts, index: usize) {
        facts.devices[index].test.works = false;
        facts.devices[index].test.error = Some("lost".into());
    }

    #[test]
    fn default_device_and_cpu_device_must_work_others_need_not() {
        let mut facts = machines::nvidia();
        fail(&mut facts, 2);
        assert_eq!(state(&facts, Section::Devices, "gpu:1"), State::Note);
        assert!(Report::new(facts.clone()).healthy);
        for (index, id) in [(1, "gpu:0"), (0, "cpu")] {
            let mut facts = facts.clone();
            fail(&mut facts, index);
            assert_eq!(state(&facts, Section::Devices, id), State::Problem);
            assert!(!Report::new(facts).healthy);
        }
    }

    #[test]
    fn no_default_device_is_a_problem() {
        let default = DefaultDevice { id: None, reason: "expected threads, found none".into(), rejected: vec![] };
        let facts = Facts { default, ..machines::nothing() };
        assert_eq!(state(&facts, Section::Default, "none"), State::Problem);
    }

    #[test]
    fn states_of_the_cache_directory() {
        let dir = |state, others_can_read, free_bytes| CacheDir {
            others_can_read,
            free_bytes,
            ..CacheDir { state, ..machines::nothing().cache_directory }
        };
        use CacheDirState::{Invalid, NotCreated, Ready, Refused, Unwritable};
        let table = [
            (dir(Ready, Some(false), Some(1 << 40)), State::Ok),
            (dir(Ready, None, None), State::Ok),
            (dir(Ready, Some(true), Some(1 << 40)), State::Note),
            (dir(Ready, Some(false), Some(1 << 20)), State::Note),
            (dir(NotCreated, None, Some(1 << 40)), State::Ok),
            (dir(NotCreated, None, Some(0)), State::Note),
            (dir(Refused, None, None), State::Problem),
            (dir(Unwritable, None, None), State::Problem),
            (dir(Invalid, None, None), State::Problem),
        ];
        for (dir, expected) in table {
            assert_eq!(check_cache_dir(&dir).state, expected, "{dir:?}");
        }
    }

    #[test]
    fn contents_read_well() {
        let of = |files, bytes, complete| contents(Some(Contents { files, bytes, complete }));
        assert_eq!(of(0, 0, true), "empty");
        assert_eq!(of(1, 10, true), "1 file, 10 B");
        assert_eq!(of(3, 2048, false), "at least 3 files, 2 KiB");
    }
}
