//! The binary as a user sees it.

mod check_config;
mod cli;
mod over_time;
