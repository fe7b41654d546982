//! The repository, and binaries built from it.

use std::{
    env,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The root of the repository.
///
/// # Panics
///
/// Never: the crate is in the repository.
pub fn root() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate is two directories below the root")
}

/// A command that runs Cargo in the root of the repository.
pub fn cargo() -> Command {
    let cargo = env::var_os("CARGO");
    let mut command = Command::new(cargo.as_deref().unwrap_or(OsStr::new("cargo")));
    command.current_dir(root());
    // Remove the variables that Cargo sets for this process: with them build scripts would run
    // again, and all dependents would be rebuilt.
    for (variable, _) in env::vars_os() {
        let is_of_package = ["CARGO_MANIFEST_", "CARGO_PKG_"]
            .iter()
            .any(|prefix| variable.to_str().is_some_and(|variable| variable.starts_with(prefix)));
        if is_of_package {
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

/// Builds an example, with the same features of dependencies, and returns the path of its program.
///
/// # Errors
///
/// If the build fails; Cargo has printed the reason.
pub fn example(name: &str) -> io::Result<PathBuf> {
    build(name, &["--quiet", "--workspace", "--example", name])
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
    let mut flags = env::var("RUSTFLAGS").unwrap_or_default();
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
    let messages = String::from_utf8_lossy(&built.stdout);
    let executable = messages.lines().filter_map(executable).find(|path| path.ends_with(binary));
    let executable = executable.filter(|_| built.status.success());
    executable.ok_or_else(|| io::Error::other("cargo did not report a binary"))
}

/// The program that a message of Cargo names. The names of tests end with a hash.
fn executable(message: &str) -> Option<PathBuf> {
    // A parser of JSON would have to be compiled before anything else.
    let (_, path) = message.split_once(r#""executable":""#)?;
    path.split('"').next().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo_name_programs() {
        let message =
            r#"{"reason":"compiler-artifact","executable":"/target/debug/xtask","fresh":true}"#;
        assert_eq!(executable(message), Some(PathBuf::from("/target/debug/xtask")));
        let library = r#"{"reason":"compiler-artifact","executable":null,"fresh":true}"#;
        assert_eq!(executable(library), None);
    }
}
