//! Names that distinguish open devices in messages.

use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The number of devices that this process opened, by id.
static OPENED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// Returns the name of a newly opened device: its id, with an ordinal from the second one on (`cpu`, `cpu#2`).
pub(super) fn next(id: &str) -> String {
    let mut opened = OPENED.lock();
    let count = opened.entry(id.to_string()).or_default();
    // Never decremented: a name in a log refers to one device for the life of the process.
    *count += 1;
    match count {
        1 => id.to_string(),
        _ => format!("{id}#{count}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_for_each_id() {
        let names = ["name-test", "name-test:1", "name-test", "name-test", "name-test:1"].map(next);
        assert_eq!(names, ["name-test", "name-test:1", "name-test#2", "name-test#3", "name-test:1#2"]);
    }
}
