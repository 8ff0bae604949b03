//! The report of `kiln doctor`: facts, and the checks derived from them. The JSON format is this struct.
//!
//! # The JSON format
//!
//! `kiln doctor --json` writes one object. `format` is 1. Adding a field does not change it; removing a field or
//! changing its meaning does. A field without a value is `null`, never absent.
//!
//! | field | content |
//! | --- | --- |
//! | `format` | version of this format |
//! | `version` | version of Kiln |
//! | `healthy` | no check is a problem; the exit status is 0 |
//! | `system` | [`System`]: `os`, `arch`, `name`, `distribution`, GPUs on the bus, parts of Vulkan |
//! | `gpu_support` | whether this build has the feature `gpu` |
//! | `default` | [`DefaultDevice`]: `id` (`null` if no device can be opened), `reason`, `rejected` (each `id`, `reason`) |
//! | `devices` | the CPU device first, then GPUs: the fields of `kiln::DeviceInfo`, and `test` ([`SmokeTest`]) |
//! | `simd` | the SIMD level of the CPU device |
//! | `simd_setting` | the value of the variable `KILN_SIMD`, which sets the level; `null` if unset |
//! | `threads` | the threads of the CPU device |
//! | `cache_directory` | [`CacheDir`]: `path`, `source`, `state`, `fault`, `fix`, `others_can_read`, `contents`, `free_bytes` |
//! | `checks` | [`Check`]: `section`, `name`, `state` (`ok`, `note`, `problem`), `message`, `details`, `fix` |

use super::checks;
use super::smoke::SmokeTest;
use super::system::System;
use crate::cache_dir::CacheDir;
use kiln::DeviceInfo;
use serde::Serialize;

/// Version of the JSON format.
const FORMAT: u32 = 1;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    format: u32,
    /// Whether no check is a problem.
    pub(crate) healthy: bool,
    #[serde(flatten)]
    pub(crate) facts: Facts,
    pub(crate) checks: Vec<Check>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Facts {
    pub(crate) version: String,
    pub(crate) system: System,
    pub(crate) gpu_support: bool,
    pub(crate) default: DefaultDevice,
    pub(crate) devices: Vec<DeviceFacts>,
    pub(crate) simd: String,
    /// Value of `KILN_SIMD`; `None` if unset.
    pub(crate) simd_setting: Option<String>,
    pub(crate) threads: Option<u32>,
    pub(crate) cache_directory: CacheDir,
}

/// The device that `Device::best` returns here, and why.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DefaultDevice {
    /// `None` if no device can be opened.
    pub(crate) id: Option<String>,
    pub(crate) reason: String,
    pub(crate) rejected: Vec<RejectedDevice>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RejectedDevice {
    pub(crate) id: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeviceFacts {
    #[serde(flatten)]
    pub(crate) info: DeviceInfo,
    pub(crate) test: SmokeTest,
}

/// A line of the report: the subject of a check, its state, and the fix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) section: Section,
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) message: String,
    pub(crate) details: Vec<String>,
    /// The command or step that fixes it.
    pub(crate) fix: Option<String>,
}

/// The section of the report that a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Section {
    Devices,
    Default,
    Drivers,
    Processor,
    Cache,
}

/// The state that a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Ok,
    /// Kiln works, but something could be better or is worth knowing.
    Note,
    Problem,
}

impl Report {
    pub(crate) fn new(facts: Facts) -> Self {
        let checks = checks::derive(&facts);
        let healthy = checks.iter().all(|check| check.state != State::Problem);
        Self { format: FORMAT, healthy, facts, checks }
    }
}

impl Check {
    pub(crate) fn new(section: Section, name: impl Into<String>, state: State, message: impl Into<String>) -> Self {
        Self { section, name: name.into(), state, message: message.into(), details: Vec::new(), fix: None }
    }

    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.details.push(detail.into());
        self
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::machines;

    /// The JSON format is stable: removing a field or changing its meaning changes `format`.
    #[test]
    fn json_form_is_as_documented() {
        let json = serde_json::to_string_pretty(&Report::new(machines::refused())).unwrap();
        insta::assert_snapshot!("json", json);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let documented =
            include_str!("report.rs").lines().filter_map(|line| line.strip_prefix("//! | `")?.split('`').next());
        let mut documented: Vec<&str> = documented.collect();
        documented.sort_unstable();
        let mut fields: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, documented);
    }
}
