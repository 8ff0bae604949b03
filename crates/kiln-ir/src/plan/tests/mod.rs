//! Plans against the graphs that they are made of, what they fuse, and what they say.

mod build;
mod goldens;
mod interpret;
mod keys;
mod random;
mod rules;
