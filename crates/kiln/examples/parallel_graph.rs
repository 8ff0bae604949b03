//! Builds a graph of copies and host callbacks. Its order follows from the buffers that the nodes use, and independent
//! nodes run in parallel.
//!
//! `cargo run --release -p kiln --example parallel_graph` prints the graph as a Mermaid flowchart, the result, and a
//! chart of the run, with other times:
//!
//! ```text
//! flowchart TD
//! …
//! x = 3.0: x² + x³ = 36.0
//! 4 nodes, 2 workers, … ms
//! …
//! add …
//! ```
#![allow(clippy::print_stdout, reason = "an example prints what it computes")]

use kiln::Device;
use kiln::buffer::Buffer;
use kiln::graph::{BufferUse::*, Graph};

/// Replaces each element by a power of it, and takes long enough for a second thread to pay.
fn power(buffer: &Buffer, exponent: i32) -> kiln::Result<()> {
    std::thread::sleep(std::time::Duration::from_millis(2));
    buffer.clone().typed::<f32>()?.map_write(|y| y.iter_mut().for_each(|y| *y = y.powi(exponent)))
}

pub(crate) fn main() -> kiln::Result<()> {
    let device = Device::cpu()?;
    let mut graph = Graph::new();
    let x = device.buffer_from(&[3.0f32; 1000])?;
    let (square, cube) = (device.buffer_of::<f32>(1000)?, device.buffer_from(&[3.0f32; 1000])?);
    for (name, buffer) in [("x", &x), ("square", &square), ("cube", &cube)] {
        graph.buffer(name, buffer.as_bytes())?;
    }

    graph.copy("copy", x.as_bytes(), square.as_bytes())?;
    graph.host("square", [(square.as_bytes(), ReadWrite)], |[y]| power(y, 2))?;
    graph.host("cube", [(cube.as_bytes(), ReadWrite)], |[y]| power(y, 3))?; // uses no buffer of the nodes above
    graph.host("add", [(square.as_bytes(), Read), (cube.as_bytes(), ReadWrite)], |[square, cube]| {
        let square = square.clone().typed::<f32>()?.read()?;
        cube.clone().typed::<f32>()?.map_write(|y| y.iter_mut().zip(&square).for_each(|(y, x)| *y += x))
    })?;
    print!("{}", graph.to_mermaid());

    // A compiled graph runs any number of times, with the same buffers or others.
    let report = graph.compile()?.with_workers(2)?.run()?;
    println!("x = 3.0: x² + x³ = {:?}", cube.read()?[0]);
    println!("{report}");
    Ok(())
}
