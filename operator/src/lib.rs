#![doc = include_str!("../README.md")]

mod app;
mod args;
mod check_config;
mod cluster;
mod commands;
mod completions;
mod conf;
mod dispatch;
mod exit;
mod load;
pub mod replica;
mod run;
mod simulate;
mod table;
mod terminal;
mod test;

pub use kube_batch_framework as framework;
pub use kube_batch_model as model;
pub use kube_batch_scheduler::registry::Registry;

pub use self::app::App;
