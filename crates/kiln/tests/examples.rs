//! Runs every example at a small size and compares its output with the block in its header.
//!
//! Examples are compiled here as modules: `cargo test --test examples` does not build the programs. `println!` is
//! replaced by a macro that records.

#![expect(clippy::unwrap_used, reason = "a test that fails says so")]

use std::cell::RefCell;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

thread_local! {
    static OUTPUT: RefCell<String> = const { RefCell::new(String::new()) };
}

fn record(text: &str) {
    OUTPUT.with_borrow_mut(|output| output.push_str(text));
}

macro_rules! print {
    ($($argument:tt)*) => { $crate::record(&format!($($argument)*)) };
}
// Textual scope: the modules below see these macros instead of those of the standard library.
macro_rules! println {
    ($($argument:tt)*) => { print!("{}\n", format_args!($($argument)*)) };
}

#[cfg(feature = "wgsl")]
#[path = "../examples/capture_and_replay.rs"]
mod capture_and_replay;
#[cfg(feature = "wgsl")]
#[path = "../examples/custom_kernel.rs"]
mod custom_kernel;
#[path = "../examples/explain_fusion.rs"]
mod explain_fusion;
#[path = "../examples/fine_tune.rs"]
mod fine_tune;
#[path = "../examples/gradients.rs"]
mod gradients;
#[path = "../examples/hello_tensors.rs"]
mod hello_tensors;
#[path = "../examples/memory_budget.rs"]
mod memory_budget;
#[path = "../examples/parallel_graph.rs"]
mod parallel_graph;
#[cfg(feature = "events")]
#[path = "../examples/prometheus_metrics.rs"]
mod prometheus_metrics;
#[cfg(feature = "wgsl")]
#[path = "../examples/sanitizer_finds_a_race.rs"]
mod sanitizer_finds_a_race;
#[cfg(feature = "events")]
#[path = "../examples/timeline.rs"]
mod timeline;
#[path = "../examples/train_digits.rs"]
mod train_digits;
#[cfg(feature = "wgsl")]
#[path = "../examples/warm_start.rs"]
mod warm_start;

/// Defines a test for each example.
macro_rules! tests {
    ($($(#[$attribute:meta])* $name:ident)*) => {
        $(
            $(#[$attribute])*
            #[test]
            fn $name() {
                check(stringify!($name), $name::main);
            }
        )*

        /// The examples in files; their features may be off.
        const COVERED: &[&str] = &[$(stringify!($name)),*];
    };
}

tests! {
    #[cfg(feature = "wgsl")] capture_and_replay
    #[cfg(feature = "wgsl")] custom_kernel
    explain_fusion
    fine_tune
    gradients
    hello_tensors
    memory_budget
    parallel_graph
    #[cfg(feature = "events")] prometheus_metrics
    #[cfg(feature = "wgsl")] sanitizer_finds_a_race
    #[cfg(feature = "events")] timeline
    train_digits
    #[cfg(feature = "wgsl")] warm_start
}

/// Runs an example and compares what it prints with the `text` block of its header, in which `…` matches any text.
fn check<E: Debug>(name: &str, main: impl FnOnce() -> Result<(), E>) {
    OUTPUT.take();
    main().unwrap();
    let output = OUTPUT.take();
    let expected = header_block(&std::fs::read_to_string(folder().join(format!("{name}.rs"))).unwrap());
    assert!(matches(output.trim_end(), &expected), "{name} expected:\n{expected}\n\nfound:\n{output}");
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// Returns the `text` block in the module documentation.
fn header_block(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let block = lines.skip_while(|line| *line != " ```text").skip(1).take_while(|line| *line != " ```");
    let block: Vec<&str> = block.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    assert!(!block.is_empty(), "an example expected a `text` block in its header, found none");
    block.join("\n")
}

/// Returns whether the pattern matches the whole text.
fn matches(text: &str, pattern: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('…').collect();
    let [first, middle @ .., last] = &pieces[..] else { return text == pattern };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    for piece in middle {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn patterns() {
    assert!(matches("ab\ncd", "ab\ncd") && !matches("ab\ncd", "ab"));
    assert!(matches("a 12 ms\nb 3 ms", "a … ms\nb … ms"));
    assert!(matches("first\nx\ny\nlast", "first\n…\nlast") && !matches("first\nx", "first\n…\nlast"));
    assert!(!matches("ab", "ab…b"), "pieces do not overlap");
}

/// A new example must be tested, short, documented and listed.
#[test]
fn every_example_is_covered() {
    let index = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        if path.is_dir() {
            assert_eq!(name, "digits", "tests/digits.rs covers it; other examples are files");
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).unwrap();
            let lines = source.lines().count();
            assert!(lines < 100, "{name} expected fewer than 100 lines, found {lines}");
            let command = format!("`cargo run --release -p kiln --example {name}`");
            assert!(source.contains(&command), "{name} expected {command} in its header, found none");
            assert!(index.contains(&format!("| [`{name}`]({name}.rs) |")), "README.md expected {name}, found none");
            found.push(name);
        }
    }
    found.sort();
    assert_eq!(found, COVERED);
}
