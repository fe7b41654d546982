#![doc = include_str!("../README.md")]

mod compiled;
mod constraint_classes;
mod device_groups;
mod device_tables;
mod domains;
mod lanes;
mod matched_classes;
mod node_labels;
mod node_terms;
mod percent;
mod physical_devices;
mod pod_count;
mod pod_term_counts;
mod session_tables;
mod spread_counts;
mod taints;
mod term_classes;
mod volume_claims;

pub mod binpack;
pub mod conformance;
pub mod drf;
mod dynamic_resources;
pub mod gang;
pub mod nodeorder;
pub mod pdb;
pub mod predicates;
pub mod priority;
pub mod proportion;
pub mod reservation;
pub mod topology;

pub use device_tables::device_totals;
pub use physical_devices::physical_requests;
