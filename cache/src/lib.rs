#![doc = include_str!("../README.md")]

pub mod assumed;
mod changes;
pub mod history;
pub mod incomplete;
pub mod live;
pub mod mirror;
pub mod snapshot;
pub mod store;
