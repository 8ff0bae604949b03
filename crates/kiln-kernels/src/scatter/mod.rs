//! scatter.
