#![doc = include_str!("../README.md")]

pub mod assumed;
mod changes;
pub mod durations;
pub mod history;
mod incomplete;
pub mod live;
pub mod mirror;
pub mod snapshot;
pub mod store;
mod terminating;
