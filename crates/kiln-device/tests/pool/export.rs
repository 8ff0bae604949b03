//! The statistics as JSON and as Prometheus text.

use crate::fixture::{Rig, divisible};
use kiln_device::{PoolConfig, PoolStatistics};
use std::collections::{BTreeMap, BTreeSet};

fn used_pool() -> (Rig, Vec<crate::fixture::Block>) {
    let rig = Rig::with(divisible().manual_completion(), PoolConfig::default());
    rig.warm(4096, 3);
    rig.leave_pending(20 << 10);
    rig.warm(100 << 10, 2);
    let held = vec![rig.take_labelled(5000, "a"), rig.take_labelled((256 << 20) + 1, "huge")];
    (rig, held)
}

/// JSON contains every number under its documented name.
#[test]
fn json_has_every_number() {
    let (rig, _held) = used_pool();
    let statistics = rig.pool.statistics();
    let json = statistics.to_json();
    let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    insta::assert_snapshot!(keys.join("\n"));
    let class_keys: Vec<&str> = json["classes"][0].as_object().unwrap().keys().map(String::as_str).collect();
    insta::assert_snapshot!(class_keys.join("\n"));
    assert_eq!(json["allocation_count"], statistics.allocation_count);
    assert_eq!(json["reuse_count"], statistics.reuse_count);
    assert_eq!(json["bytes_in_use"], statistics.bytes_in_use);
    assert_eq!(json["classes"].as_array().unwrap().len(), statistics.classes.len());
    assert_eq!((&json["classes"][0]["usage"], &json["strategy"]), (&"shared".into(), &"fine-classes".into()));
    assert_eq!(json["recent"]["allocation_count"], statistics.recent.allocation_count);
}

/// A line of the text format: a name, labels, a number.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Parses one sample line, and rejects what the format does not allow.
fn parse_sample(line: &str) -> Result<Sample, String> {
    let is_name = |name: &str| {
        !name.is_empty()
            && !name.starts_with(|first: char| first.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let (name, rest) = line.split_once('{').ok_or("no labels")?;
    if !is_name(name) {
        return Err(format!("`{name}` is no name"));
    }
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    loop {
        let (label, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        if !is_name(label) {
            return Err(format!("`{label}` is no label"));
        }
        let mut value = String::new();
        let mut chars = after.chars();
        loop {
            match chars.next().ok_or("an open quote")? {
                '"' => break,
                '\\' => value.push(match chars.next() {
                    Some('n') => '\n',
                    Some(c @ ('\\' | '"')) => c,
                    other => return Err(format!("an escape of {other:?}")),
                }),
                c => value.push(c),
            }
        }
        if labels.insert(label.to_owned(), value).is_some() {
            return Err(format!("label `{label}` twice"));
        }
        rest = chars.as_str();
        if let Some(value) = rest.strip_prefix("} ") {
            let value = value.parse().map_err(|error| format!("`{value}`: {error}"))?;
            return Ok(Sample { name: name.to_owned(), labels, value });
        }
        rest = rest.strip_prefix(',').ok_or("no comma between labels")?;
    }
}

/// Parses the whole text: every metric has help and type before its samples, in one group, without duplicates.
fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let mut samples: Vec<Sample> = Vec::new();
    let (mut helped, mut typed, mut seen) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or("help without text")?;
            if help.is_empty() || !helped.insert(name.to_owned()) {
                return Err(format!("help of `{name}` is empty or comes twice"));
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or("a type without a name")?;
            if !["gauge", "counter"].contains(&kind) || kind.eq("counter") != name.ends_with("_total") {
                return Err(format!("`{name}` is no {kind}"));
            }
            typed.insert(name.to_owned(), kind.to_owned());
            name.clone_into(&mut current);
        } else {
            let sample = parse_sample(line).map_err(|error| format!("{line}: {error}"))?;
            if sample.name != current || !helped.contains(&current) || !typed.contains_key(&current) {
                return Err(format!("{line}: not in its group"));
            }
            if !seen.insert((sample.name.clone(), sample.labels.clone())) {
                return Err(format!("{line}: twice"));
            }
            samples.push(sample);
        }
    }
    if text.ends_with('\n') { Ok(samples) } else { Err("no newline at the end".into()) }
}

fn value(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let found = |sample: &&Sample| {
        sample.name == name && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|v| v == value))
    };
    let mut matching = samples.iter().filter(found);
    let value = matching.next().unwrap_or_else(|| panic!("no sample {name} {labels:?}")).value;
    assert!(matching.next().is_none(), "several samples {name} {labels:?}");
    value
}

/// The Prometheus text is valid and agrees with the statistics.
#[test]
fn prometheus_text_is_valid_and_says_the_same() {
    let (rig, _held) = used_pool();
    let numbers: PoolStatistics = rig.pool.statistics();
    let samples = parse(&numbers.to_prometheus("gpu:0")).unwrap();
    assert!(samples.iter().all(|sample| sample.labels["device"] == "gpu:0" && sample.value.is_finite()));
    let get = |name: &str, labels: &[(&str, &str)]| value(&samples, name, labels);
    for (state, bytes) in [
        ("in_use", numbers.bytes_in_use),
        ("cached", numbers.bytes_cached - numbers.bytes_pending),
        ("pending", numbers.bytes_pending),
        ("unused_slots", numbers.bytes_unused_slots),
    ] {
        assert_eq!(get("kiln_pool_bytes", &[("state", state)]), bytes as f64, "{state}");
    }
    let sum: f64 = samples.iter().filter(|sample| sample.name == "kiln_pool_bytes").map(|sample| sample.value).sum();
    assert_eq!((sum, get("kiln_pool_reserved_bytes", &[])), (numbers.bytes_reserved as f64, sum), "states add up");
    assert_eq!(get("kiln_pool_padding_bytes", &[]), numbers.padding_bytes as f64);
    assert_eq!(get("kiln_pool_peak_bytes", &[("state", "in_use")]), numbers.peak_bytes as f64);
    assert_eq!(get("kiln_pool_peak_bytes", &[("state", "reserved")]), numbers.peak_reserved_bytes as f64);
    assert_eq!(get("kiln_pool_budget_bytes", &[]), numbers.budget_bytes as f64);
    assert_eq!(get("kiln_pool_driver_bytes", &[]), rig.null.live_bytes() as f64);
    assert_eq!(get("kiln_pool_pressure_ratio", &[]), numbers.pressure);
    assert_eq!(get("kiln_pool_fragmentation_ratio", &[]), numbers.fragmentation_percent / 100.0);
    assert_eq!(get("kiln_pool_live_buffers", &[]), 2.0);
    for (source, count) in
        [("reused", numbers.reuse_count), ("carved", numbers.carved_count), ("driver", numbers.driver_request_count)]
    {
        assert_eq!(get("kiln_pool_requests_total", &[("source", source)]), count as f64);
    }
    let operations = "kiln_pool_driver_operations_total";
    assert_eq!(get(operations, &[("operation", "allocate")]), numbers.driver_allocation_count as f64);
    assert_eq!(get(operations, &[("operation", "release")]), numbers.driver_release_count as f64);
    assert_eq!(get(operations, &[("operation", "refuse")]), 0.0);
    assert_eq!(get("kiln_pool_out_of_memory_total", &[]), 0.0);
    assert_eq!(get("kiln_pool_pressure_cleanups_total", &[]), 0.0);
    assert_eq!(get("kiln_pool_violations_total", &[]), 0.0);
    assert!(get("kiln_pool_request_seconds", &[("source", "missed")]) < 1.0);
    let class = [("class", "5120"), ("usage", "shared")];
    assert_eq!(get("kiln_pool_class_requests_total", &class), 1.0);
    assert_eq!(get("kiln_pool_class_requests_total", &[("class", "direct")]), 1.0);
    let class = [("class", "4096"), ("usage", "shared")];
    assert_eq!(get("kiln_pool_class_cached_blocks", &class), 3.0);
    assert_eq!(get("kiln_pool_class_reused_total", &class), 0.0);
}

/// The names of the metrics are a stable interface.
#[test]
fn the_metrics_have_these_names() {
    let (rig, _held) = used_pool();
    let text = rig.pool.statistics().to_prometheus("cpu");
    let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# ")).collect();
    insta::assert_snapshot!(types.join("\n"));
}

/// Quotes, backslashes and newlines in a device's name are escaped.
#[test]
fn label_values_are_escaped() {
    let rig = Rig::new();
    let name = "a \"quoted\" \\ name\nin two lines";
    let samples = parse(&rig.pool.statistics().to_prometheus(name)).unwrap();
    assert!(samples.iter().all(|sample| sample.labels["device"] == name));
}

/// Without a driver count there is no such metric, rather than a zero.
#[test]
fn unknown_numbers_are_omitted() {
    let mut numbers = Rig::new().pool.statistics();
    numbers.driver_bytes = None;
    let samples = parse(&numbers.to_prometheus("x")).unwrap();
    assert!(!samples.iter().any(|sample| sample.name == "kiln_pool_driver_bytes"));
    assert!(!dashboard_of(&numbers).contains("the driver reports"));
    numbers.driver_bytes = Some(7);
    assert!(dashboard_of(&numbers).contains("the driver reports 7 B"));
}

fn dashboard_of(numbers: &PoolStatistics) -> String {
    kiln_device::pool::dashboard(numbers, &Rig::new().pool.report())
}

/// The parser of this test rejects invalid lines.
#[test]
fn the_checker_refuses_wrong_lines() {
    let head = "# HELP a_total A.\n# TYPE a_total counter\n";
    assert_eq!(parse(&format!("{head}a_total{{x=\"1\"}} 3\n")).unwrap().len(), 1);
    for wrong in [
        "a_total{x=\"1\"} 3",
        "a_total{x=\"1} 3\n",
        "a_total{x=\"\\q\"} 3\n",
        "a_total{x=\"1\",x=\"2\"} 3\n",
        "a_total{x=\"1\"} three\n",
        "b_total{x=\"1\"} 3\n",
        "a_total{x=\"1\"} 3\na_total{x=\"1\"} 4\n",
        "a total{x=\"1\"} 3\n",
    ] {
        assert!(parse(&format!("{head}{wrong}")).is_err(), "{wrong}");
    }
}
