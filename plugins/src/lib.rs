#![doc = include_str!("../README.md")]

pub mod conformance;
pub mod drf;
pub mod gang;
pub mod priority;
pub mod proportion;
