//! Labels of memory holders, mapped to small numbers that are cheap to count with.

use parking_lot::RwLock;
use std::collections::HashMap;

/// The label of requests without one.
pub(crate) const UNLABELLED: u32 = 0;
/// The label of requests beyond [`MAX_LABELS`], so that a program with generated labels does not leak memory.
const OTHER: u32 = 1;
const MAX_LABELS: usize = 4096;

pub(crate) struct Labels(RwLock<Names>);

struct Names {
    names: Vec<Box<str>>,
    ids: HashMap<Box<str>, u32>,
}

impl Labels {
    pub(crate) fn new() -> Self {
        let names = vec!["(unlabelled)".into(), "(other)".into()];
        Self(RwLock::new(Names { names, ids: HashMap::new() }))
    }

    #[inline]
    pub(crate) fn id(&self, label: Option<&str>) -> u32 {
        label.map_or(UNLABELLED, |label| self.find_or_add(label))
    }

    fn find_or_add(&self, label: &str) -> u32 {
        if let Some(&id) = self.0.read().ids.get(label) {
            return id;
        }
        let mut names = self.0.write();
        // Another thread may have added the label between the two locks.
        if let Some(&id) = names.ids.get(label) {
            return id;
        }
        if names.names.len() >= MAX_LABELS {
            return OTHER;
        }
        let id = names.names.len() as u32;
        names.names.push(label.into());
        names.ids.insert(label.into(), id);
        id
    }

    pub(crate) fn name(&self, id: u32) -> String {
        self.0.read().names.get(id as usize).map_or_else(String::new, ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_numbered_once_and_bounded() {
        let labels = Labels::new();
        assert_eq!(labels.id(None), UNLABELLED);
        let weights = labels.id(Some("weights"));
        assert_eq!(labels.id(Some("weights")), weights);
        assert_eq!(labels.name(weights), "weights");
        for step in 0..MAX_LABELS {
            labels.id(Some(&format!("step {step}")));
        }
        assert_eq!(labels.name(labels.id(Some("one more"))), "(other)");
        assert_eq!(labels.id(Some("weights")), weights);
    }
}
