//! Which test targets run, and which are left out because programs are missing.

use std::collections::BTreeSet;

use cargo_metadata::{MetadataCommand, TargetKind};
use kube_batch_testbed::assets::Assets;
use xtask_launcher::{PROGRAMS, Program, SELECTION, SERVER_TESTS, Task, Use, build::root};

/// Tests that cannot run, because programs are missing.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Names of tests.
    pub(super) skipped: Vec<&'static str>,
    /// Whether the tests that need servers are left out.
    pub(super) servers: bool,
    /// What is left out without one program, and why.
    pub(super) reasons: Vec<String>,
}

impl LeftOut {
    /// What cannot run on this machine.
    pub(super) fn here() -> Self {
        let is_missing = |program: &Program| match program.used_by {
            Use::Servers => !Assets::are_built() && !program.is_installed(),
            Use::CompletionsTest(_) | Use::All => !program.is_installed(),
        };
        let needed = PROGRAMS.into_iter().filter(|program| program.task == Task::Test);
        Self::without(&needed.filter(is_missing).collect::<Vec<_>>())
    }

    fn without(missing: &[Program]) -> Self {
        let mut left_out = Self::default();
        for program in missing {
            let tests = match program.used_by {
                Use::CompletionsTest(test) => {
                    left_out.skipped.push(test);
                    test.to_owned()
                }
                Use::Servers => {
                    left_out.servers = true;
                    let names =
                        SERVER_TESTS.map(|(package, name)| format!("-p {package} --test {name}"));
                    names.join(", ")
                }
                Use::All => continue,
            };
            left_out.reasons.push(format!("{tests}: {} is missing", program.name));
        }
        left_out
    }
}

/// What Cargo tests of those that need servers.
pub(super) fn with_servers() -> Vec<String> {
    let mut selection = vec!["--workspace".to_owned()];
    selection.extend(SERVER_TESTS.iter().flat_map(|(_, name)| test_target(name)));
    selection
}

/// What Cargo tests without servers: what it has compiled, except the targets that need them. Cargo has no flag for
/// this, so all others are named.
pub(super) fn without_servers() -> anyhow::Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for package in MetadataCommand::new().current_dir(root()).no_deps().exec()?.packages {
        let needs_servers = |target: &str| SERVER_TESTS.contains(&(package.name.as_str(), target));
        let targets = package.targets.iter().filter(|target| target.is_kind(TargetKind::Test));
        names.extend(
            targets.filter(|target| !needs_servers(&target.name)).map(|target| target.name.clone()),
        );
    }
    let mut selection: Vec<String> = SELECTION.iter().map(|&flag| flag.to_owned()).collect();
    selection.retain(|flag| flag != "--tests");
    selection.extend(names.iter().flat_map(|name| test_target(name)));
    Ok(selection)
}

fn test_target(name: &str) -> [String; 2] {
    ["--test".to_owned(), name.to_owned()]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tests_that_may_be_left_out_exist() {
        let cli = root().join("operator/tests/integration/cli.rs");
        let cli = fs::read_to_string(cli).expect("a file");
        let left_out = LeftOut::without(&PROGRAMS);
        assert_eq!(left_out.skipped.len(), 3);
        for test in &left_out.skipped {
            assert!(cli.contains(&format!("#[test]\nfn {test}()")), "{test}");
        }
    }

    /// Cargo selects a target by its name alone, in all packages.
    #[test]
    fn each_target_runs_once() {
        let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec();
        let with = with_servers();
        let without = without_servers().expect("metadata");
        for package in metadata.expect("metadata").packages {
            for target in package.targets.iter().filter(|target| target.is_kind(TargetKind::Test)) {
                let needs_servers =
                    SERVER_TESTS.contains(&(package.name.as_str(), target.name.as_str()));
                assert_eq!(with.contains(&target.name), needs_servers, "{}", target.name);
                assert_eq!(without.contains(&target.name), !needs_servers, "{}", target.name);
            }
        }
    }

    #[test]
    fn reasons_name_the_tests_and_the_program() {
        let go = PROGRAMS.into_iter().filter(|program| program.name == "go").collect::<Vec<_>>();
        let expected = "-p kube-batch-testbed --test control_plane, -p kube-batch-tests --test e2e: go is missing";
        assert_eq!(LeftOut::without(&go).reasons, [expected]);
    }
}
