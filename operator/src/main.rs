#![doc = include_str!("../README.md")]

mod args;
mod conf;
mod load;
mod run;
mod simulate;
mod table;
mod terminal;
mod test;

use std::{fs, io, process::ExitCode};

use anyhow::Context;
use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It did what it was asked.
    Good,
    /// It did not come to what was hoped for.
    Bad,
    /// It could not be done as asked.
    Wrong,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(match ending {
            Ending::Good => 0,
            Ending::Bad => 1,
            Ending::Wrong => 2,
        })
    }
}

fn main() -> ExitCode {
    let arguments = args::as_before(std::env::args_os());
    let done = match Cli::parse_from(arguments).command {
        Command::Run(args) => run::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "kube-batch", &mut io::stdout());
            Ok(Ending::Good)
        }
        Command::Man { folder } => fs::create_dir_all(&folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &folder))
            .map(|()| Ending::Good)
            .with_context(|| format!("cannot write to {}", folder.display())),
    };
    match done {
        Ok(ending) => ending.into(),
        // Whoever read our output has stopped: `kube-batch … | head`.
        Err(error) if is_broken_pipe(&error) => Ending::Good.into(),
        Err(error) => {
            terminal::error(&format!("{error:#}"));
            Ending::Wrong.into()
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
