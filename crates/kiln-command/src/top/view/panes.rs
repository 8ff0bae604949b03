//! The contents of each pane.

use super::columns::{Column, Viewport, Width, bar, plain, table};
use super::{Palette, Tone, pools};
use crate::top::model::{Cache, Device};
use crate::top::rates::{DeviceRates, KernelRates};
use crate::top::state::{Pane, State};
use crate::top::units::{billions, bytes, count, percent, rate, seconds, unknown};
use ratatui::Frame;
use ratatui::layout::Rect;

/// Hit rates below this are highlighted.
const GOOD_HIT_RATE: f64 = 0.8;

type DeviceRow<'a> = (&'a Device, &'a DeviceRates);

/// A cache of a device, and its lookup rate.
type CacheRow<'a> = (&'a Device, &'a Cache, Option<f64>);

/// Returns the preferred number of lines of a pane, including its title.
pub(super) fn height(pane: Pane, state: &State) -> u16 {
    let devices = &state.view.snapshot.devices;
    let caches: usize = devices.iter().map(|device| device.caches.len()).sum();
    let lines = match pane {
        Pane::Devices => 2 + devices.len(),
        Pane::Pools => 1 + pools::LINES * devices.len(),
        Pane::Caches => 2 + caches,
        Pane::Kernels => 2 + state.view.kernels.len(),
    };
    u16::try_from(lines).unwrap_or(u16::MAX)
}

pub(super) fn render(pane: Pane, state: &State, palette: Palette, frame: &mut Frame<'_>, area: Rect) -> Viewport {
    let scroll = state.scroll[pane as usize];
    let view = &state.view;
    let devices = || view.snapshot.devices.iter().zip(&view.devices);
    match pane {
        Pane::Devices => {
            let rows: Vec<DeviceRow<'_>> = devices().collect();
            table(&rows, &device_columns(), palette, scroll, frame, area)
        }
        Pane::Pools => pools::render(&devices().collect::<Vec<_>>(), palette, scroll, frame, area),
        Pane::Caches => {
            let rows: Vec<CacheRow<'_>> = devices()
                .flat_map(|(device, rates)| {
                    let lookups = rates.lookups_per_second.iter().copied();
                    device.caches.iter().zip(lookups).map(move |(cache, lookups)| (device, cache, lookups))
                })
                .collect();
            table(&rows, &cache_columns(), palette, scroll, frame, area)
        }
        Pane::Kernels => table(&view.sorted(state.sort), &kernel_columns(), palette, scroll, frame, area),
    }
}

fn device_columns<'a>() -> [Column<DeviceRow<'a>>; 7] {
    let strong = |row: &DeviceRow<'_>| if row.0.open { Tone::Strong } else { Tone::Dim };
    [
        Column { title: "device", width: Width::Words(8), from: 0, text: |row| row.0.id.clone(), tone: strong },
        plain("name", Width::Fill(3), 0, |row| row.0.name.clone()),
        plain("kind", Width::Words(14), 60, |row| row.0.kind.clone()),
        plain("driver", Width::Fill(2), 110, |row| row.0.driver.clone()),
        plain("launches", Width::Number(9), 76, |row| rate(row.1.launches_per_second)),
        Column {
            title: "busy",
            width: Width::Number(7),
            from: 0,
            text: |row| if row.0.open { percent(row.1.busy) } else { "closed".to_string() },
            tone: |row| if row.0.open { Tone::Good } else { Tone::Dim },
        },
        plain("", Width::Words(12), 90, |row| bar(row.1.busy, 12)),
    ]
}

fn cache_columns<'a>() -> [Column<CacheRow<'a>>; 10] {
    let tone = |row: &CacheRow<'_>| match row.1.hit_rate() {
        Some(rate) if rate >= GOOD_HIT_RATE => Tone::Good,
        Some(_) => Tone::Warn,
        None => Tone::Dim,
    };
    let strong = |_: &CacheRow<'_>| Tone::Strong;
    [
        Column { title: "device", width: Width::Words(8), from: 0, text: |row| row.0.id.clone(), tone: strong },
        plain("cache", Width::Fill(1), 0, |row| row.1.name.clone()),
        Column { title: "hit rate", width: Width::Number(8), from: 0, text: |row| percent(row.1.hit_rate()), tone },
        Column { title: "", width: Width::Words(12), from: 90, text: |row| bar(row.1.hit_rate(), 12), tone },
        plain("lookups", Width::Number(9), 60, |row| rate(row.2)),
        plain("hits", Width::Number(7), 50, |row| count(row.1.hits as f64)),
        plain("misses", Width::Number(7), 50, |row| count(row.1.misses as f64)),
        plain("entries", Width::Number(7), 0, |row| count(row.1.entries as f64)),
        plain("bytes", Width::Number(9), 76, |row| row.1.bytes.map_or_else(unknown, bytes)),
        plain("evicted", Width::Number(7), 100, |row| count(row.1.evictions as f64)),
    ]
}

fn kernel_columns<'a>() -> [Column<&'a KernelRates>; 8] {
    let tone = |row: &&KernelRates| match row.share {
        Some(share) if share >= 0.25 => Tone::Warn,
        Some(share) if share > 0.0 => Tone::Plain,
        _ => Tone::Dim,
    };
    [
        plain("kernel", Width::Fill(1), 0, |row| row.name.clone()),
        plain("device", Width::Words(8), 76, |row| row.device.clone()),
        plain("launches", Width::Number(9), 0, |row| match row.launches_per_second {
            Some(_) => rate(row.launches_per_second),
            None => count(row.launches),
        }),
        Column { title: "time", width: Width::Number(7), from: 0, text: |row| percent(row.share), tone },
        Column { title: "", width: Width::Words(12), from: 100, text: |row| bar(row.share, 12), tone },
        plain("mean", Width::Number(8), 50, |row| seconds(row.mean_seconds)),
        plain("GB/s", Width::Number(6), 58, |row| billions(row.bytes_per_second)),
        plain("GFLOP/s", Width::Number(7), 66, |row| billions(row.operations_per_second)),
    ]
}
