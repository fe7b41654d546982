//! Runs of `cargo test`.

use std::{
    io::{self, IsTerminal, Read, Write},
    process::{Command, Stdio},
    thread::{self, JoinHandle},
};

use anyhow::{Context, anyhow};
use xtask_launcher::build;

use super::output::{Failure, Parser, Results};

/// A run of `cargo test`.
#[derive(Clone, Debug)]
pub(super) struct CargoTest {
    /// Which targets: flags of Cargo.
    pub(super) selection: Vec<String>,
    /// Names of tests that are left out.
    pub(super) skipped: Vec<&'static str>,
    /// Number of random clusters that each law plays; by default a number of its own.
    pub(super) seeds: Option<u32>,
    /// Tests at a time in one binary; by default as many as there are processors.
    pub(super) n_threads: Option<usize>,
    /// Whether it leaves the processors to other processes that need them.
    pub(super) gives_way: bool,
}

/// A run that another thread waits for. It prints nothing before its end.
pub(super) struct Beside(JoinHandle<anyhow::Result<(Results, Vec<u8>)>>);

impl CargoTest {
    /// Prints the output as it comes, and returns what it reports.
    pub(super) fn run(&self) -> anyhow::Result<Results> {
        self.run_to(io::stdout().lock())
    }

    /// Starts it beside others.
    pub(super) fn start(self) -> Beside {
        Beside(thread::spawn(move || {
            let mut output = Vec::new();
            let results = self.run_to(&mut output)?;
            Ok((results, output))
        }))
    }

    fn run_to(&self, output: impl Write) -> anyhow::Result<Results> {
        let mut command = self.command();
        // One pipe for both, so that their lines keep their order.
        let (reader, writer) = io::pipe().context("create a pipe")?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn().context("run cargo")?;
        // It holds the writing end, without which the reader finds the end.
        drop(command);
        if self.gives_way {
            give_way(child.id());
        }
        let mut parser = Parser::default();
        copy(reader, output, |bytes| parser.read(bytes)).context("read the output of cargo")?;
        let status = child.wait().context("run cargo")?;
        let mut results = parser.finish();
        if !status.success() && results.failures.is_empty() {
            results.failures.push(Failure::of_process("cargo test", status));
        }
        Ok(results)
    }

    fn command(&self) -> Command {
        let mut command = build::cargo();
        command.args(["test", "--no-fail-fast"]).args(&self.selection).arg("--");
        command.args(self.skipped.iter().flat_map(|test| ["--skip", test]));
        if let Some(n) = self.n_threads {
            command.args(["--test-threads", &n.to_string()]);
        }
        if let Some(seeds) = self.seeds {
            command.env("KUBE_BATCH_SEEDS", seeds.to_string());
        }
        if io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
            command.env("CARGO_TERM_COLOR", "always").args(["--color", "always"]);
        }
        command
    }
}

impl Beside {
    /// Waits for its end, prints its output and returns what it reports.
    pub(super) fn finish(self) -> anyhow::Result<Results> {
        let ended = self.0.join().map_err(|_| anyhow!("the thread that runs cargo panicked"))?;
        let (results, output) = ended?;
        io::stdout().lock().write_all(&output)?;
        Ok(results)
    }
}

/// Lowers the priority of a process and of those that it will start. It is a courtesy, so a failure is ignored.
fn give_way(process: u32) {
    let mut command = Command::new("renice");
    command.args(["-n", "10", "-p", &process.to_string()]);
    let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Copies what is read, without waiting for the end of a line.
fn copy(
    mut reader: impl Read,
    mut output: impl Write,
    mut observe: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut buffer = [0; 1 << 13];
    loop {
        let n = match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        output.write_all(&buffer[..n])?;
        output.flush()?;
        observe(&buffer[..n]);
    }
}
