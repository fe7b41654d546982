#![doc = include_str!("../README.md")]

pub mod allocate;
pub mod backfill;
mod gang;
pub mod preempt;
pub mod reclaim;
mod victims;
