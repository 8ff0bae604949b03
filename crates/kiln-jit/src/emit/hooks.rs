//! What code that is compiled with the sanitizer refers to by number: sites in the program, and variables without a first value.

use crate::analysis::Variable;
use crate::sanitize::site::Site;
use std::collections::HashMap;

/// The numbers that were given so far.
#[derive(Default)]
pub(crate) struct Hooks {
    sites: Vec<Site>,
    /// The first scalar of each variable that begins without a value, among those of all of them.
    unwritten: HashMap<Variable, u32>,
    unwritten_scalars: u32,
}

impl Hooks {
    pub(crate) fn add_site(&mut self, site: Site) -> u32 {
        self.sites.push(site);
        self.sites.len() as u32 - 1
    }

    pub(crate) fn site(&self, number: u32) -> &Site {
        &self.sites[number as usize]
    }

    pub(crate) fn into_sites(self) -> Vec<Site> {
        self.sites
    }

    /// Adds a variable of so many scalars, or finds it again, and returns the number of its first scalar.
    pub(crate) fn add_unwritten(&mut self, variable: Variable, count: usize) -> u32 {
        *self.unwritten.entry(variable).or_insert_with(|| {
            self.unwritten_scalars += count as u32;
            self.unwritten_scalars - count as u32
        })
    }

    /// The first scalar of a variable; `None` where it begins with a value.
    pub(crate) fn unwritten(&self, variable: Variable) -> Option<u32> {
        self.unwritten.get(&variable).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::tests::locals;
    use crate::sanitize::site::Use;
    use naga::Span;

    #[test]
    fn sites_are_numbered_in_order() {
        let mut hooks = Hooks::default();
        let sites = [Use::Read, Use::Write].map(|what| Site::plain(what, Span::new(3, 5)));
        for (number, site) in (0..).zip(&sites) {
            assert_eq!(hooks.add_site(site.clone()), number);
            assert_eq!(hooks.site(number), site);
        }
        assert_eq!(hooks.into_sites(), sites);
    }

    #[test]
    fn a_variable_has_its_scalars_once() {
        let (mut hooks, [x, y, z]) = (Hooks::default(), locals([0, 0, 0]));
        for (variable, count, first) in [(x, 3, 0), (y, 5, 3), (x, 3, 0)] {
            assert_eq!(hooks.add_unwritten(variable, count), first);
            assert_eq!(hooks.unwritten(variable), Some(first));
        }
        assert_eq!((hooks.unwritten(z), hooks.add_unwritten(z, 1)), (None, 8));
    }
}
