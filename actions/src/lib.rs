#![doc = include_str!("../README.md")]
#![warn(clippy::wildcard_enum_match_arm)]

pub mod allocate;
mod assignment;
pub mod backfill;
mod budget;
mod composites;
mod dependent_tasks;
mod domain_budget;
mod gang;
mod nominated_places;
pub mod preempt;
pub mod reclaim;
mod self_affinity;
mod topology;
mod unlike_tasks;
mod victims;
mod waiting;
