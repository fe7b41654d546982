//! The command-line program for a registry of plugins and actions.

use std::{ffi::OsString, io, path::Path, process::ExitCode};

use clap::{CommandFactory, FromArgMatches};
use kube_batch_cli::{Exit, Program, terminal};
use kube_batch_scheduler::registry::Registry;

use crate::{
    args::{self, Cli, Command},
    cluster::KubeCluster,
    run,
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
        match parsed(arguments).command {
            Command::Run(args) => run::run(&args, &self.registry),
            Command::InCluster(command) => kube_batch_cli::run_in_cluster(&command, &KubeCluster),
            Command::Offline(command) => {
                let program = Program {
                    registry: &self.registry,
                    command_line: Cli::command(),
                    cluster: &KubeCluster,
                };
                kube_batch_cli::run(&command, program)
            }
        }
    }
}

/// The command line. As a plugin of kubectl, the program is called `kubectl batch` in its own texts.
fn parsed(arguments: impl Iterator<Item = OsString>) -> Cli {
    let mut arguments = arguments.peekable();
    let program = arguments.peek().map(Path::new).and_then(Path::file_stem);
    let mut command = Cli::command();
    if program.is_some_and(|name| name == "kubectl-batch") {
        command = command.bin_name("kubectl batch");
    }
    let matches = command.get_matches_from(args::legacy_arguments(arguments));
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
