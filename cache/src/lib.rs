#![doc = include_str!("../README.md")]

pub mod assumed;
pub mod history;
pub mod snapshot;
pub mod store;
