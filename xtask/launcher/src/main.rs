//! Starts a development command: `cargo xtask --help`.
//!
//! It has no dependencies, so that missing programs are installed or reported before minutes of
//! compilation, and for tests it compiles the workspace only once.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode},
};

use xtask_launcher::{Completeness, SELECTION, Task, XTASK_SELECTION, build::cargo, provide};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    match start(&arguments) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Provides what a command needs, and replaces this process by the command. Returns only if that fails.
fn start(arguments: &[OsString]) -> Result<ExitCode, String> {
    let has = |flags: &[&str]| arguments.iter().any(|argument| flags.iter().any(|f| argument == f));
    let name = arguments.first().and_then(|name| name.to_str()).unwrap_or_default();
    let task = Task::named(name).filter(|_| !has(&["--help", "-h"]));
    let is_quick = has(&["--quick"]);
    // Quick tests leave out what is missing.
    if let Some(task) = task.filter(|_| !is_quick) {
        let is_complete = has(&["--complete"]);
        let completeness =
            if is_complete { Completeness::Required } else { Completeness::Optional };
        provide(task, completeness)?;
    }
    let is_all = task == Some(Task::Test) && !is_quick;
    let selection = if is_all { &SELECTION[..] } else { &XTASK_SELECTION };
    let status = cargo().arg("build").args(selection).status();
    let status = status.map_err(|error| format!("cannot run cargo: {error}"))?;
    if !status.success() {
        // Cargo has printed the reason.
        return Ok(ExitCode::FAILURE);
    }
    replace(Command::new(sibling("xtask")?).args(arguments))
}

/// Replaces this process, so that signals reach the command.
fn replace(command: &mut Command) -> Result<ExitCode, String> {
    let error = command.exec();
    Err(format!("cannot run {}: {error}", command.get_program().display()))
}

/// The path of another binary of the workspace, which Cargo puts into the directory of this one.
fn sibling(name: &str) -> Result<PathBuf, String> {
    let this = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    Ok(this.with_file_name(name))
}
