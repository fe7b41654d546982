//! Runs the commands.

use std::{fs, io};

use anyhow::Context;
use kube_batch_scheduler::registry::Registry;

use crate::{
    check_config,
    commands::{ClusterCommand, OfflineCommand},
    completions,
    exit::Exit,
    job,
    live::ClusterAccess,
    queue, simulate, test,
};

/// What the commands get from the program that they are part of.
pub struct Program<'a> {
    /// Its plugins and actions.
    pub registry: &'a Registry,
    /// Its command line.
    pub command_line: clap::Command,
    /// Its client.
    pub cluster: &'a dyn ClusterAccess,
}

/// Runs a command that needs no cluster.
///
/// # Errors
///
/// Why it could not run, unless that has been printed: then the exit code says so.
pub fn run(command: &OfflineCommand, program: Program<'_>) -> anyhow::Result<Exit> {
    let Program { registry, command_line, cluster } = program;
    match command {
        OfflineCommand::Simulate(args) => simulate::run(args, registry, cluster),
        OfflineCommand::Test(args) => test::run(args, registry),
        OfflineCommand::CheckConfig(args) => check_config::run(args, registry),
        OfflineCommand::Completions { shell } => {
            completions::write(*shell, command_line, &mut io::stdout().lock())?;
            Ok(Exit::Ok)
        }
        OfflineCommand::Man { directory } => fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(command_line, directory))
            .map(|()| Exit::Ok)
            .with_context(|| format!("cannot write to {}", directory.display())),
    }
}

/// Runs a command that looks at a cluster.
///
/// # Errors
///
/// Why it could not run, unless that has been printed: then the exit code says so.
pub fn run_in_cluster(
    command: &ClusterCommand,
    cluster: &dyn ClusterAccess,
) -> anyhow::Result<Exit> {
    match command {
        ClusterCommand::Queue(command) => queue::run(command, cluster),
        ClusterCommand::Job(command) => job::run(command, cluster),
    }
}
