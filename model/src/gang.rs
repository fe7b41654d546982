//! Gangs: what starts together or not at all.

pub mod complete;
pub mod tree;
