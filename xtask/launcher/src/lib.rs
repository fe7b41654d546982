//! Programs that development commands need, besides Rust and a C compiler: how they are installed, and in
//! [`build`] how those of this repository are built.
//!
//! The launcher provides them before it compiles anything else, and `xtask` reads from the same table
//! which tests to leave out.

pub mod build;

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use self::build::root;

/// A development command that needs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// `cargo xtask test`.
    Test,
    /// `cargo xtask instructions`.
    Instructions,
}

impl Task {
    /// The task of this name, if it needs programs.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "test" => Some(Self::Test),
            "instructions" => Some(Self::Instructions),
            _ => None,
        }
    }
}

/// What cannot run without a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// One test of `operator/tests/integration/cli.rs`.
    CompletionsTest(&'static str),
    /// [`SERVER_TESTS`]: the servers are built with the program.
    Servers,
    /// The whole task.
    All,
}

/// A program that a task needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name of its file.
    pub name: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// The task that needs it.
    pub task: Task,
    /// What the task cannot do without it.
    pub used_by: Use,
}

/// Where a program comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A package of Debian and its derivatives.
    Package(&'static str),
    /// The user has to install it: Debian's package is too old.
    User(&'static str),
}

/// All programs that tasks need, in the order in which they are reported.
pub const PROGRAMS: [Program; 5] = [
    shell("bash", "bash_completes_flags_after_a_subcommand"),
    shell("zsh", "zsh_completes_flags_after_a_subcommand"),
    shell("fish", "fish_completes_flags_after_a_subcommand"),
    Program {
        name: "go",
        source: Source::User("Go 1.26 or later"),
        task: Task::Test,
        used_by: Use::Servers,
    },
    Program {
        name: "valgrind",
        source: Source::Package("valgrind"),
        task: Task::Instructions,
        used_by: Use::All,
    },
];

/// The test targets that start the servers of the test bed: package and name of the target.
pub const SERVER_TESTS: [(&str, &str); 2] =
    [("kube-batch-testbed", "control_plane"), ("kube-batch-tests", "e2e")];

/// A shell, whose package has its name.
const fn shell(name: &'static str, test: &'static str) -> Program {
    Program {
        name,
        source: Source::Package(name),
        task: Task::Test,
        used_by: Use::CompletionsTest(test),
    }
}

impl Program {
    /// Whether it can be run, in a version that is new enough.
    pub fn is_installed(&self) -> bool {
        match self.used_by {
            Use::Servers => builds_servers(self.name),
            Use::CompletionsTest(_) | Use::All => is_in_path(self.name),
        }
    }

    /// Whether the task can do without it: servers that are built already are used again.
    ///
    /// This does not compare their version: only the test bed can do that, and it is not compiled yet.
    fn is_dispensable(&self) -> bool {
        match self.used_by {
            Use::Servers => has_servers(),
            Use::CompletionsTest(_) | Use::All => false,
        }
    }
}

/// What `cargo xtask test` compiles, at once: for another selection of packages and targets, Cargo may turn
/// on other features of dependencies, and compile them again. Without benchmarks.
pub const SELECTION: [&str; 5] = ["--workspace", "--lib", "--bins", "--tests", "--examples"];

/// What every other command compiles at first: `xtask`, with the features of dependencies that the whole workspace
/// needs, so that [`SELECTION`] does not compile them again. `cargo xtask tidy` checks that tests do not need others.
pub const XTASK_SELECTION: [&str; 3] = ["--workspace", "--bin", "xtask"];

/// Installs the programs of a task that are missing, as root where there is apt-get, and prints a line that says so.
/// If some are still missing, prints a line that names their packages.
///
/// # Errors
///
/// That line, if the task can do nothing without one of them, or must be complete.
pub fn provide(task: Task, completeness: Completeness) -> Result<(), String> {
    let needed = PROGRAMS.into_iter().filter(|program| program.task == task);
    let mut missing: Vec<Program> =
        needed.filter(|program| !program.is_dispensable() && !program.is_installed()).collect();
    let packages = packages(&missing);
    let mut reason = String::new();
    if !packages.is_empty() && is_in_path("apt-get") && is_root() {
        eprintln!("installing what is missing: apt-get install {}", packages.join(" "));
        if let Err(error) = install(&packages) {
            reason = format!(" ({error})");
        }
        missing.retain(|program| !program.is_installed());
    }
    if missing.is_empty() {
        return Ok(());
    }
    let advice = format!("{}{reason}", advice(&missing));
    let is_useless = missing.iter().any(|program| program.used_by == Use::All);
    if is_useless || completeness == Completeness::Required {
        return Err(advice);
    }
    let pronoun = pronoun(&missing);
    eprintln!("{advice}; the tests that need {pronoun} are left out");
    Ok(())
}

/// Whether a task may leave out what it has no program for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// It does what it can.
    Optional,
    /// It fails.
    Required,
}

/// Which programs are missing and how to install them.
fn advice(missing: &[Program]) -> String {
    let names: Vec<&str> = missing.iter().map(|program| program.name).collect();
    let verb = if missing.len() == 1 { "is" } else { "are" };
    let packages = packages(missing);
    let mut ways = Vec::new();
    if !packages.is_empty() {
        let is_all = packages.len() == missing.len();
        let what = if is_all { pronoun(missing).to_owned() } else { packages.join(", ") };
        ways.push(format!("{what}, for example with apt-get install {}", packages.join(" ")));
    }
    ways.extend(missing.iter().filter_map(|program| match program.source {
        Source::User(what) => Some(what.to_owned()),
        Source::Package(_) => None,
    }));
    format!("{} {verb} missing: install {}", names.join(", "), ways.join(", and "))
}

fn pronoun(missing: &[Program]) -> &'static str {
    if missing.len() == 1 { "it" } else { "them" }
}

fn packages(missing: &[Program]) -> Vec<&'static str> {
    let packages = missing.iter().filter_map(|program| match program.source {
        Source::Package(package) => Some(package),
        Source::User(_) => None,
    });
    packages.collect()
}

/// Installs packages of Debian.
///
/// # Errors
///
/// The last line that apt-get printed.
fn install(packages: &[&str]) -> Result<(), String> {
    // A fresh machine has no lists of packages. If only some lists can be updated, those may be enough.
    let _ = apt_get(&["update"]);
    let arguments = ["install", "--yes", "--no-install-recommends"];
    apt_get(&[&arguments, packages].concat())
}

fn apt_get(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run apt-get: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    let last = messages.lines().last().unwrap_or("no message");
    Err(format!("apt-get failed: {last}"))
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout == b"0\n")
}

fn is_in_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| is_executable(&directory.join(name)))
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Whether this Go is new enough for the module of the servers, or downloads one that is.
fn builds_servers(go: &str) -> bool {
    let status = Command::new(go)
        .args(["list", "-m"])
        .current_dir(root().join("tests/envtest"))
        .env("GOWORK", "off")
        .env("GOFLAGS", "")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Whether `KUBEBUILDER_ASSETS` names a directory of servers, or some were built in the user's cache.
fn has_servers() -> bool {
    if env::var_os("KUBEBUILDER_ASSETS").is_some_and(|directory| !directory.is_empty()) {
        return true;
    }
    let Some(cache) = cache() else { return false };
    // Locks are files, and a directory that is not complete has another suffix.
    let entries = fs::read_dir(cache.join("kube-batch/envtest")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.is_dir() && path.extension().is_none())
}

fn cache() -> Option<PathBuf> {
    let named = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || env::home_dir().map(|home| home.join(".cache"));
    named.filter(|path| path.is_absolute()).or_else(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Program> {
        PROGRAMS.into_iter().filter(|program| names.contains(&program.name)).collect()
    }

    #[test]
    fn the_line_names_what_is_missing_and_the_packages() {
        for (missing, expected) in [
            (&["zsh"][..], "zsh is missing: install it, for example with apt-get install zsh"),
            (
                &["zsh", "fish"],
                "zsh, fish are missing: install them, for example with apt-get install zsh fish",
            ),
            (&["go"], "go is missing: install Go 1.26 or later"),
            (
                &["fish", "go"],
                "fish, go are missing: install fish, for example with apt-get install fish, and Go 1.26 or later",
            ),
        ] {
            assert_eq!(advice(&named(missing)), expected);
        }
    }

    #[test]
    fn only_files_that_can_be_run_are_programs() {
        assert!(is_in_path("sh"));
        assert!(!is_in_path("no-such-program"));
        assert!(!is_executable(&root().join("Cargo.toml")));
        assert!(!is_executable(root()));
    }
}
