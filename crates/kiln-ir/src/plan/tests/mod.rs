//! Plans compared with their graphs: results, fusion and reports.

mod build;
mod goldens;
mod interpret;
mod keys;
mod random;
mod rules;
