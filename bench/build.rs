//! Passes the compiler flags to the program, which prints them: candle and burn select vector instructions by them.

fn main() {
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().replace('\x1f', " ");
    println!("cargo::rustc-env=PEERS_RUSTFLAGS={flags}");
    println!("cargo::rerun-if-changed=build.rs");
}
