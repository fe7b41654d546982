//! The command-line program for a registry of plugins and actions.

use std::{ffi::OsString, io, process::ExitCode};

use clap::{CommandFactory, Parser};
use kube_batch_cli::{Exit, Program, terminal};
use kube_batch_scheduler::registry::Registry;

use crate::{
    args::{self, Cli, Command},
    cluster, run,
};

/// The command `kube-batch` with the plugins and actions of a registry.
///
/// A scheduler with additional plugins is a binary of a few lines with all subcommands:
///
/// ```no_run
/// use kube_batch::{App, Registry};
///
/// fn main() -> std::process::ExitCode {
///     App::new(Registry::builtin()).main()
/// }
/// ```
#[derive(Debug)]
pub struct App {
    registry: Registry,
}

impl App {
    /// A program with these plugins and actions.
    pub const fn new(registry: Registry) -> Self {
        Self { registry }
    }

    /// Runs the program with the arguments of the process.
    pub fn main(self) -> ExitCode {
        match self.run(std::env::args_os()) {
            Ok(exit) => exit.into(),
            // The reader of the output has closed it: `kube-batch … | head`.
            Err(error) if is_broken_pipe(&error) => Exit::Ok.into(),
            Err(error) => {
                terminal::error(&format!("{error:#}"));
                Exit::Usage.into()
            }
        }
    }

    fn run(&self, arguments: impl Iterator<Item = OsString>) -> anyhow::Result<Exit> {
        match Cli::parse_from(args::legacy_arguments(arguments)).command {
            Command::Run(args) => run::run(&args, &self.registry),
            Command::Offline(command) => {
                let program = Program {
                    registry: &self.registry,
                    command_line: Cli::command(),
                    read_cluster: cluster::read,
                };
                kube_batch_cli::run(&command, program)
            }
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
