//! Numbering of instrumentation sites and of variables that start uninitialised, for code compiled with the
//! sanitizer.

use crate::sanitizer::site::Site;
use crate::uniformity::Variable;
use std::collections::HashMap;

/// Sites and variables numbered so far.
#[derive(Default)]
pub(crate) struct SiteTable {
    sites: Vec<Site>,
    /// Index of the first scalar of each uninitialised variable, among the scalars of all of them.
    uninit: HashMap<Variable, u32>,
    uninit_scalars: u32,
}

impl SiteTable {
    /// Adds a site and returns its index.
    pub(crate) fn add_site(&mut self, site: Site) -> u32 {
        self.sites.push(site);
        self.sites.len() as u32 - 1
    }

    /// Returns a site.
    pub(crate) fn site(&self, number: u32) -> &Site {
        &self.sites[number as usize]
    }

    /// Returns all sites in order.
    pub(crate) fn into_sites(self) -> Vec<Site> {
        self.sites
    }

    /// Adds a variable of `count` scalars, unless it is known, and returns the index of its first scalar.
    pub(crate) fn add_uninit(&mut self, variable: Variable, count: usize) -> u32 {
        *self.uninit.entry(variable).or_insert_with(|| {
            self.uninit_scalars += count as u32;
            self.uninit_scalars - count as u32
        })
    }

    /// Returns the index of a variable's first scalar; `None` if it starts with a value.
    pub(crate) fn uninit(&self, variable: Variable) -> Option<u32> {
        self.uninit.get(&variable).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emit::tests::locals;
    use crate::sanitizer::site::SiteKind;
    use naga::Span;

    #[test]
    fn sites_are_numbered_in_order() {
        let mut site_table = SiteTable::default();
        let sites = [SiteKind::Read, SiteKind::Write].map(|kind| Site::plain(kind, Span::new(3, 5)));
        for (number, site) in (0..).zip(&sites) {
            assert_eq!(site_table.add_site(site.clone()), number);
            assert_eq!(site_table.site(number), site);
        }
        assert_eq!(site_table.into_sites(), sites);
    }

    #[test]
    fn a_variable_is_numbered_once() {
        let (mut site_table, [x, y, z]) = (SiteTable::default(), locals([0, 0, 0]));
        for (variable, count, first) in [(x, 3, 0), (y, 5, 3), (x, 3, 0)] {
            assert_eq!(site_table.add_uninit(variable, count), first);
            assert_eq!(site_table.uninit(variable), Some(first));
        }
        assert_eq!((site_table.uninit(z), site_table.add_uninit(z, 1)), (None, 8));
    }
}
