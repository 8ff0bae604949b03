//! Prints a constant: measures the time to start a process.

fn main() {
    println!("5");
}
