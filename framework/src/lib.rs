#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]

mod active_jobs;
mod admission;
pub mod arguments;
pub mod candidates;
mod capability;
mod cluster_input;
mod confinement;
mod credit;
pub mod cycle;
pub mod failure;
pub mod foresight;
mod gangs;
mod headroom;
mod holds;
mod job_input;
mod job_record;
mod known_action;
mod large_turns;
mod last_reports;
pub mod memory;
pub mod milestone;
mod min_runtime;
mod minimum;
mod move_log;
mod moves;
mod nominations;
pub mod order;
pub mod plugin;
pub mod policy;
pub mod report;
pub mod reservations;
mod reserve;
pub mod session;
pub mod session_cache;
pub mod spec;
mod stale_gangs;
pub mod statement;
mod stuck;
pub mod topology;
mod tournament;
mod tried;
mod tries;
mod turn_log;
mod unfit;
pub mod withheld;
