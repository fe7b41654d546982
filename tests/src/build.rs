//! The repository, and binaries built from it.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

/// The root of the repository.
///
/// # Panics
///
/// Never: the crate is in the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate is in the repository")
        .to_owned()
}

/// A command that runs Cargo in the root of the repository.
pub fn cargo() -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.current_dir(root());
    // Remove the variables that Cargo sets for this process: with them build scripts would run
    // again, and all dependents would be rebuilt.
    for (variable, _) in std::env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"]
            .iter()
            .any(|prefix| variable.to_str().is_some_and(|variable| variable.starts_with(prefix)))
        {
            command.env_remove(variable);
        }
    }
    command
}

/// Builds the scheduler for tests and returns the path of its binary. Artifacts of
/// `cargo test --workspace` are used.
///
/// # Errors
///
/// If the build fails; Cargo has printed the reason.
pub fn debug() -> io::Result<PathBuf> {
    build("kube-batch", &DEBUG)
}

/// Builds the simulation of the operator in the same way, and returns the path of its binary.
///
/// # Errors
///
/// If the build fails; Cargo has printed the reason.
pub fn operator_sim() -> io::Result<PathBuf> {
    build("kube-batch-operator-sim", &DEBUG)
}

/// What `cargo test --workspace` builds. For one package alone, Cargo may turn on other features of dependencies, and
/// compile them again.
const DEBUG: [&str; 4] = ["--quiet", "--workspace", "--bins", "--tests"];

/// Builds the scheduler in release mode and returns the path of its binary. Progress is printed to
/// standard error.
///
/// # Errors
///
/// If the build fails; Cargo has printed the reason.
pub fn release() -> io::Result<PathBuf> {
    build("kube-batch", &["--release", "--package", "kube-batch"])
}

/// The flags with which the compiler links the scheduler statically, as in the Containerfile.
pub const STATIC_FLAGS: &str = "-C target-feature=+crt-static";

/// Builds the scheduler as the image has it, static and in release mode, and returns the path of its
/// binary. Progress is printed to standard error.
///
/// # Errors
///
/// If the build fails; Cargo has printed the reason.
pub fn static_release() -> io::Result<PathBuf> {
    let host = host()?;
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    flags.push(' ');
    flags.push_str(STATIC_FLAGS);
    let mut command = cargo();
    // With --target, the flags apply to the binary only: procedural macros cannot be linked statically.
    command.env("RUSTFLAGS", flags.trim_start());
    let selection = ["--release", "--locked", "--package", "kube-batch", "--target", &host];
    build_with(command, "kube-batch", &selection)
}

/// The target that Cargo builds for on this machine, such as `x86_64-unknown-linux-gnu`.
///
/// # Errors
///
/// If there is no compiler.
pub fn host() -> io::Result<String> {
    let output = Command::new("rustc").arg("-vV").current_dir(root()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| io::Error::other("rustc did not report a host"))
}

fn build(binary: &str, selection: &[&str]) -> io::Result<PathBuf> {
    build_with(cargo(), binary, selection)
}

fn build_with(mut cargo: Command, binary: &str, selection: &[&str]) -> io::Result<PathBuf> {
    let built = cargo
        .args(["build", "--message-format", "json-render-diagnostics"])
        .args(selection)
        .stderr(Stdio::inherit())
        .output()?;
    let executable = built.stdout.split(|&byte| byte == b'\n').find_map(|line| {
        let message: Value = serde_json::from_slice(line).ok()?;
        let is_it = message["target"]["name"] == binary && message["profile"]["test"] == false;
        is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    let executable = executable.filter(|_| built.status.success());
    executable.ok_or_else(|| io::Error::other("cargo did not report a binary"))
}
