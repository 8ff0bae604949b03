//! Prints what the others compute: the time that starting a process takes anyway.

fn main() {
    println!("5");
}
