#![doc = include_str!("../README.md")]

pub mod assumed;
pub mod defaults;
pub mod dump;
pub mod fold;
pub mod manifest;
pub mod object;
pub mod store;
