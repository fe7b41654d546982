#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]

pub mod conf;
pub mod core;
pub mod recording;
pub mod registry;
pub mod writes;
