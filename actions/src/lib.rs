#![doc = include_str!("../README.md")]

pub mod allocate;
pub mod backfill;
mod budget;
mod domains;
mod gang;
pub mod preempt;
pub mod reclaim;
mod topology;
mod victims;
mod waiting;
