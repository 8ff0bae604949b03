//! Formats the numbers of a pool as text: bars, health and recommendations.

use super::report::PoolReport;
use super::statistics::{ClassStatistics, PoolStatistics, share};
use crate::size::Bytes;
use serde::Serialize;
use std::fmt::{self, Write as _};

/// The health of a pool: the worst state that applies.
///
/// See [`dashboard()`] for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Health {
    /// Nothing needs to be done.
    Healthy,
    /// Most of the reserved memory is unused, in pieces between live buffers.
    Fragmented,
    /// Blocks are constantly released and allocated again.
    Thrashing,
    /// The budget is nearly used up.
    Pressured,
    /// The debug mode detected an invalid write.
    Violated,
}

/// Reports show a pool as pressured above this share of the budget.
const HIGH_PRESSURE: f64 = 0.85;
/// The minimum number of recent requests to distinguish thrashing from a start-up phase.
const ENOUGH_REQUESTS: u64 = 64;
const SHOWN_CLASSES: usize = 12;
const SHOWN_HOLDERS: usize = 8;
const BAR: usize = 24;

impl PoolStatistics {
    /// Returns the health of the pool.
    pub fn health(&self) -> Health {
        let recent = self.recent;
        let thrashes = recent.allocation_count >= ENOUGH_REQUESTS
            && recent.driver_request_count * 4 > recent.allocation_count
            && recent.driver_release_count * 4 > recent.allocation_count;
        if self.violation_count > 0 {
            Health::Violated
        } else if self.pressure > HIGH_PRESSURE {
            Health::Pressured
        } else if thrashes {
            Health::Thrashing
        } else if self.is_fragmented() {
            Health::Fragmented
        } else {
            Health::Healthy
        }
    }

    fn is_fragmented(&self) -> bool {
        self.fragmentation_percent > 50.0 && self.bytes_unused_slots * 2 > self.bytes_reserved
    }

    /// Formats the numbers as one line for logs.
    pub fn summary_line(&self) -> String {
        format!(
            "pool {}: {} in use, {} cached, {} of {} reserved ({:.0} %), {} requests, {:.1} % reused, {:.1} % without a driver allocation",
            self.health(),
            Bytes(self.bytes_in_use),
            Bytes(self.bytes_cached),
            Bytes(self.bytes_reserved),
            Bytes(self.budget_bytes),
            100.0 * self.pressure,
            self.allocation_count,
            100.0 * self.hit_rate,
            self.allocation_reduction_percent,
        )
    }

    /// Returns recommendations, each with the call that implements it.
    pub fn recommendations(&self) -> Vec<String> {
        let mut list = Vec::new();
        if self.violation_count > 0 {
            list.push(format!("{} memory violations: see `violations()`", self.violation_count));
        }
        if self.out_of_memory_count > 0 {
            list.push(format!(
                "{} requests failed for lack of memory: see `report()` for its holders",
                self.out_of_memory_count
            ));
        }
        if self.pressure > HIGH_PRESSURE {
            if self.bytes_cached * 10 > self.bytes_reserved {
                list.push(format!("`cleanup(true)` releases {}", Bytes(self.bytes_cached - self.bytes_pending)));
            } else {
                list.push("drop buffers, or raise `budget_bytes`: nearly everything reserved is in use".into());
            }
        }
        if self.health() == Health::Thrashing {
            list.push("raise `max_cached_per_class` or `headroom`, or turn `adaptive` on: blocks are released and allocated again".into());
        }
        if self.is_fragmented() {
            list.push(format!("`defragment()` may free up to {} of unused slots", Bytes(self.bytes_unused_slots)));
        }
        if self.padding_bytes * 4 > self.bytes_in_use && self.bytes_in_use > 1 << 20 {
            list.push(format!(
                "{} of padding: a strategy with classes for these sizes would save it",
                Bytes(self.padding_bytes)
            ));
        }
        list
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Formats the full text of [`Pool::dashboard`](super::Pool::dashboard) from the numbers.
///
/// ```
/// use kiln_device::NullDevice;
/// use kiln_device::pool::{Health, dashboard};
///
/// let device = NullDevice::new().into_device()?;
/// let (statistics, report) = (device.pool().statistics(), device.pool().report());
/// println!("{}", dashboard(&statistics, &report));
/// assert_eq!(statistics.health(), Health::Healthy);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
pub fn dashboard(statistics: &PoolStatistics, report: &PoolReport) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = memory(&mut text, statistics).and_then(|()| requests(&mut text, statistics));
    let _ = classes(&mut text, statistics).and_then(|()| holders(&mut text, report));
    let _ = advice(&mut text, &statistics.recommendations());
    text
}

fn memory(text: &mut String, s: &PoolStatistics) -> fmt::Result {
    writeln!(text, "memory pool: {} ({})", s.health(), s.strategy)?;
    for (name, bytes, whole, note) in [
        (
            "reserved",
            s.bytes_reserved,
            s.budget_bytes,
            format!("of {}, peak {}", Bytes(s.budget_bytes), Bytes(s.peak_reserved_bytes)),
        ),
        (
            "in use",
            s.bytes_in_use,
            s.bytes_reserved,
            format!("in {} buffers, peak {}", s.live_buffers, Bytes(s.peak_bytes)),
        ),
        (
            "cached",
            s.bytes_cached,
            s.bytes_reserved,
            format!("{} of it still used by submitted work", Bytes(s.bytes_pending)),
        ),
        ("slots", s.bytes_unused_slots, s.bytes_reserved, "unused, next to live buffers".into()),
        ("padding", s.padding_bytes, s.bytes_in_use, "of the bytes in use".into()),
    ] {
        let part = share(bytes, whole);
        writeln!(text, "  {name:<10} {} {:>3.0} %  {:>9}  {note}", bar(part), 100.0 * part, Bytes(bytes))?;
    }
    let fragmentation = s.fragmentation_percent / 100.0;
    writeln!(
        text,
        "  {:<10} {} {:>3.0} %  of the free bytes",
        "fragmented",
        bar(fragmentation),
        s.fragmentation_percent
    )?;
    match s.driver_bytes {
        Some(bytes) => writeln!(text, "  the driver reports {}", Bytes(bytes)),
        None => Ok(()),
    }
}

fn requests(text: &mut String, s: &PoolStatistics) -> fmt::Result {
    writeln!(text, "\nrequests: {} ({} since the last maintenance)", s.allocation_count, s.recent.allocation_count)?;
    for (name, count, note) in [
        ("reused", s.reuse_count, format!("{:.0} ns per request", s.mean_hit_nanos)),
        ("carved", s.carved_count, "from divided raw blocks".into()),
        ("driver", s.driver_request_count, format!("{:.1} us per miss", s.mean_miss_nanos / 1000.0)),
    ] {
        let part = share(count, s.allocation_count);
        writeln!(text, "  {name:<10} {} {:>3.0} %  {count:>9}  {note}", bar(part), 100.0 * part)?;
    }
    writeln!(
        text,
        "  {} blocks allocated from the driver, {} released, {} refused, {} cleanups under pressure",
        s.driver_allocation_count, s.driver_release_count, s.driver_failure_count, s.pressure_cleanup_count
    )
}

fn classes(text: &mut String, s: &PoolStatistics) -> fmt::Result {
    if s.classes.is_empty() {
        return Ok(());
    }
    let mut classes: Vec<&ClassStatistics> = s.classes.iter().collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.allocation_count));
    writeln!(
        text,
        "\n{:>11} {:>9} {:>9} {:>7} {:>9}  {:>4}  hit rate",
        "class", "usage", "requests", "live", "cached", "eff."
    )?;
    for class in classes.iter().take(SHOWN_CLASSES) {
        let size = format!("{}{}", if class.direct { "> " } else { "" }, Bytes(class.class_bytes));
        let cached = format!("{}/{}", class.cached_blocks, class.cached_limit);
        let rate = format!("{} {:>3.0} %", bar(class.hit_rate), 100.0 * class.hit_rate);
        let (usage, count, live) = (class.usage, class.allocation_count, class.live_blocks);
        writeln!(
            text,
            "{size:>11} {usage:>9} {count:>9} {live:>7} {cached:>9}  {:>4.0}  {rate}",
            class.efficiency_score
        )?;
    }
    if classes.len() > SHOWN_CLASSES {
        writeln!(text, "            and {} other classes", classes.len() - SHOWN_CLASSES)?;
    }
    Ok(())
}

fn holders(text: &mut String, report: &PoolReport) -> fmt::Result {
    if report.holders.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nheld by")?;
    let whole: u64 = report.holders.iter().map(|holder| holder.bytes).sum();
    for holder in report.holders.iter().take(SHOWN_HOLDERS) {
        let part = share(holder.bytes, whole);
        let (bytes, buffers) = (Bytes(holder.bytes), holder.buffers);
        writeln!(text, "  {:<24} {} {:>3.0} %  {bytes:>9}  {buffers} buffers", holder.label, bar(part), 100.0 * part)?;
    }
    if report.holders.len() > SHOWN_HOLDERS {
        writeln!(text, "  and {} other labels", report.holders.len() - SHOWN_HOLDERS)?;
    }
    Ok(())
}

fn advice(text: &mut String, recommendations: &[String]) -> fmt::Result {
    if recommendations.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nrecommended")?;
    recommendations.iter().try_for_each(|line| writeln!(text, "  - {line}"))
}

fn bar(share: f64) -> String {
    let filled = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    // A non-zero share shows at least one mark, and only a whole fills the bar.
    let filled = match share {
        0.0 => 0,
        share if share >= 1.0 => BAR,
        _ => filled.clamp(1, BAR - 1),
    };
    format!("[{}{}]", "#".repeat(filled), ".".repeat(BAR - filled))
}
