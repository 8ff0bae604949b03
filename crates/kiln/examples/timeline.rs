//! Records what a device does as a timeline that Perfetto (<https://ui.perfetto.dev>) opens.
//!
//! `cargo run --release -p kiln --example timeline` prints, with other numbers and the path of the file:
//!
//! ```text
//! cpu: kernels of … µs in a window of … µs, … µs unattributed
//! … events in …kiln-timeline.json
//! ```
//!
//! `kiln profile -- COMMAND` does the same for a program that calls `kiln::observe::watch_from_settings`.
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::observe::{EventChannel, summarise, timeline};
use kiln::{DType, Device, Tensor};

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::cpu()?;
    let a = Tensor::randn((256, 256), DType::F32, &device)?;
    a.eval()?;

    // Events arrive on a thread of the device; a full channel drops them.
    let (channel, events) = EventChannel::new(10_000);
    let watch = device.watch(channel)?;
    for _ in 0..10 {
        a.matmul(&a)?.softmax(1)?.sum_all()?.eval()?;
    }
    device.unwatch(watch); // returns after the events of all submitted work are delivered
    let events: Vec<_> = events.iter().collect();

    for device in summarise(&events) {
        let [kernels, window, rest] =
            [device.kernels_ns, device.window_ns, device.unattributed_ns].map(|ns| ns as f64 / 1e3);
        println!("cpu: kernels of {kernels:.0} µs in a window of {window:.0} µs, {rest:.0} µs unattributed");
    }
    let path = std::env::temp_dir().join("kiln-timeline.json");
    let trace = timeline(&events);
    std::fs::write(&path, serde_json::to_string(&trace)?)?;
    println!("{} events in {}", trace.trace_events.len(), path.display());
    Ok(())
}
