#![doc = include_str!("../README.md")]

#[macro_use]
mod tables;

pub mod assumed;
mod changes;
pub mod dump;
pub mod durations;
pub mod history;
mod incomplete;
pub mod live;
pub mod mirror;
pub mod snapshot;
pub mod store;
mod terminating;
#[cfg(test)]
mod test_objects;
