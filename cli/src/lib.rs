#![doc = include_str!("../README.md")]

mod check_config;
mod commands;
mod completions;
pub mod conf;
mod dispatch;
mod exit;
mod job;
mod live;
mod load;
mod queue;
mod show;
mod simulate;
mod table;
pub mod terminal;
mod test;

pub use self::{
    commands::{ClusterCommand, OfflineCommand, scheduler_name, scheduler_names},
    dispatch::{Program, run, run_in_cluster},
    exit::Exit,
    live::{ClusterAccess, ClusterTarget, Lists, Namespaces, QueueRef, ReadProblem, Show, Unread},
};
