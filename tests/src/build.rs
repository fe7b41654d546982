//! The repository, and binaries built from it.

use std::{
    path::{Path, PathBuf},
    process::Command,
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

/// Builds the scheduler in a profile of Cargo, such as `dev`, and says where its binary is.
///
/// # Panics
///
/// If it cannot be built.
pub fn build(profile: &str) -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
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
    let built = command
        .args(["build", "--quiet", "--profile", profile, "--package", "kube-batch"])
        .args(["--message-format", "json"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8(built.stdout).expect("cargo writes text");
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.expect("cargo tells where the binary is")
}
