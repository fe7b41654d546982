#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]

pub mod crd;
pub mod dialect;
pub mod jobset;
pub mod kind;
pub mod membership;
pub mod naming;
pub mod read;
