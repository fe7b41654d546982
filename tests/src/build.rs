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
/// Never: the crate lies in it.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in it").to_owned()
}

/// Cargo, in the root of the repository.
pub fn cargo() -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.current_dir(root());
    // What Cargo tells this process about itself is not to be known to build scripts: they would
    // run again, and everything above them be built anew.
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

/// Builds the scheduler for tests and says where its binary is. What `cargo test --workspace` has
/// built is not built again.
///
/// # Errors
///
/// If it cannot be built; Cargo has said why.
pub fn debug() -> io::Result<PathBuf> {
    build(&["--quiet", "--workspace", "--bins", "--tests"])
}

/// Builds the scheduler as it is released and says where its binary is. How far it is can be seen on
/// standard error.
///
/// # Errors
///
/// If it cannot be built; Cargo has said why.
pub fn release() -> io::Result<PathBuf> {
    build(&["--release", "--package", "kube-batch"])
}

fn build(selection: &[&str]) -> io::Result<PathBuf> {
    let built = cargo()
        .args(["build", "--message-format", "json-render-diagnostics"])
        .args(selection)
        .stderr(Stdio::inherit())
        .output()?;
    let executable = built.stdout.split(|&byte| byte == b'\n').find_map(|line| {
        let message: Value = serde_json::from_slice(line).ok()?;
        let is_it =
            message["target"]["name"] == "kube-batch" && message["profile"]["test"] == false;
        is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    let executable = executable.filter(|_| built.status.success());
    executable.ok_or_else(|| io::Error::other("the scheduler does not build"))
}
