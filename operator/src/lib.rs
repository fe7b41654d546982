#![doc = include_str!("../README.md")]

mod app;
mod args;
mod cluster;
pub mod replica;
mod run;

pub use kube_batch_framework as framework;
pub use kube_batch_model as model;
pub use kube_batch_scheduler::registry::Registry;
pub use kube_batch_sim::testing;

pub use self::app::App;
