#![doc = include_str!("../README.md")]

mod domains;
mod node_labels;
mod node_tests;
mod profiles;
mod rows;
mod spread;
mod taints;
mod tally;

pub mod conformance;
pub mod drf;
pub mod gang;
pub mod nodeorder;
pub mod predicates;
pub mod priority;
pub mod proportion;
