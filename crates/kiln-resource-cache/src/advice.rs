//! Advice on caches whose settings do not fit their workload.

use crate::metrics::CacheMetrics;
use crate::policy::EvictionPolicy;
use std::fmt;

/// The minimum number of lookups for a meaningful hit rate.
const MIN_LOOKUPS: u64 = 100;
const GOOD_HIT_RATE: f64 = 0.8;
/// A cache thrashes if at least this share of its misses is on recently evicted entries.
const THRASH_SHARE: f64 = 0.25;

/// A recommendation about one cache.
///
/// Returned by [`CacheRegistry::advice`](crate::CacheRegistry::advice); see the [crate documentation](crate) for an
/// example.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// The name of the cache.
    pub cache: String,
    /// The kind of advice.
    pub kind: AdviceKind,
    /// The observation and the recommended change.
    pub message: String,
}

/// The kinds of [`Advice`].
///
/// See the [crate documentation](crate) for an example that prints advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AdviceKind {
    /// Fewer than 80 % of the lookups are hits.
    LowHitRate,
    /// Entries are created again soon after their eviction: the limits are too tight for the workload.
    Thrashing,
    /// Resources are too large to be cached, and are created again at every lookup.
    Oversize,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cache `{}`: {}", self.cache, self.message)
    }
}

/// Returns advice for a cache with these metrics.
pub(crate) fn about(cache: &str, policy: &EvictionPolicy, metrics: &CacheMetrics) -> Vec<Advice> {
    let advice = |kind, message| Advice { cache: cache.to_owned(), kind, message };
    let mut all = Vec::new();
    let lookups = metrics.hits + metrics.misses;
    let rate = metrics.hit_rate().unwrap_or(1.0);
    if lookups >= MIN_LOOKUPS && rate < GOOD_HIT_RATE {
        let cause = if metrics.oversize > 0 {
            "part of it comes from resources too large to be kept"
        } else if metrics.refaults == 0 {
            "keys rarely repeat: check that the key holds nothing that changes from call to call, or warm it up"
        } else {
            "part of it comes from evictions"
        };
        let percent = rate * 100.0;
        let message = format!("{percent:.0} % of {lookups} lookups hit, 80 % or more is usual; {cause}");
        all.push(advice(AdviceKind::LowHitRate, message));
    }
    let refault_share = metrics.refaults as f64 / metrics.misses.max(1) as f64;
    if lookups >= MIN_LOOKUPS && metrics.evictions > 0 && refault_share >= THRASH_SHARE {
        let (refaults, misses, remedy) = (metrics.refaults, metrics.misses, remedy(policy));
        let message = format!("{refaults} of {misses} misses were on entries evicted shortly before; {remedy}");
        all.push(advice(AdviceKind::Thrashing, message));
    }
    if metrics.oversize > 0 {
        let (count, limit) = (metrics.oversize, policy.max_bytes());
        let limit = limit.map_or_else(String::new, |max| format!("max_bytes ({max}) or "));
        let message = format!(
            "{count} resources were too large to be kept and are created again each time; raise {limit}the registry's byte budget"
        );
        all.push(advice(AdviceKind::Oversize, message));
    }
    all
}

fn remedy(policy: &EvictionPolicy) -> String {
    let limits = [
        policy.max_entries().map(|max| format!("max_entries ({max})")),
        policy.max_bytes().map(|max| format!("max_bytes ({max})")),
        policy.max_idle_duration().map(|max| format!("max_idle_duration ({max:?})")),
    ];
    let limits: Vec<_> = limits.into_iter().flatten().collect();
    if limits.is_empty() {
        "raise the registry's byte budget, or trim less often".to_owned()
    } else {
        format!("raise {}", limits.join(" or "))
    }
}
