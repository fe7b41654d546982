#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![warn(clippy::wildcard_enum_match_arm)]

pub mod audit;
pub mod cluster;
pub mod column;
pub mod decision;
pub mod devices;
pub mod dialect;
pub mod division;
pub mod duration;
pub mod facts;
pub mod fair_share;
pub mod gang;
pub mod group_version;
pub mod intern;
pub mod job_report;
pub mod matcher_set;
pub mod membership;
pub mod name;
pub mod node_set;
mod null;
pub mod object_status;
pub mod others;
pub mod pairs;
pub mod people;
pub mod physical;
pub mod problem;
pub use kube_batch_quantity as quantity;
pub mod queue_condition;
pub mod queue_tree;
pub mod reason;
pub mod resource;
mod seconds;
pub mod selector;
mod shards;
pub mod status;
pub mod text;
pub mod why;
mod words;
