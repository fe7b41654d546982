//! Gangs: what starts together or not at all.

pub mod tree;
