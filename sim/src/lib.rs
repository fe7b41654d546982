#![doc = include_str!("../README.md")]

pub mod admission;
pub mod arrivals;
pub mod case;
pub mod check;
mod claim_templates;
pub mod controllers;
pub mod device_outcome;
mod devices;
mod kubelet;
pub mod objects;
pub mod outcome;
pub mod picture;
pub mod runner;
pub mod simulation;
pub mod suite;
pub mod testing;
pub mod usage;
pub mod world;
