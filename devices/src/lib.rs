#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]

pub mod capacity;
pub mod claims;
mod constraints;
mod count;
pub mod devices_of_class;
pub mod extended;
pub mod hardware;
pub mod inventory;
pub mod long;
mod plain;
pub mod pod;
pub mod result;
pub mod rows;
pub mod search;
pub mod selectors;
pub mod usage;
pub mod wanted;
