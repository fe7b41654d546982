#![doc = include_str!("../README.md")]

pub mod assumed;
pub mod fold;
pub mod store;
