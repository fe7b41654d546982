#![doc = include_str!("../README.md")]

mod check_config;
mod commands;
mod completions;
pub mod conf;
mod dispatch;
mod exit;
mod load;
mod simulate;
mod table;
pub mod terminal;
mod test;

pub use self::{
    commands::{OfflineCommand, scheduler_name, scheduler_names},
    dispatch::{Program, run},
    exit::Exit,
    load::{Lists, ReadCluster},
};
