//! The workflows of GitHub. They cannot be run here, so they do as little as possible: what they run are
//! tasks that run here too, and a few tools that need the network or an identity.

use std::fs;

use anyhow::Context;
use serde_json::Value;
use xtask_launcher::build::root;

/// What a step may run.
const COMMANDS: [&str; 10] = [
    "cargo xtask ",
    ".ci/run",
    // What `.ci/run` needs of the system, and cannot change without being root.
    "sudo apt-get install ",
    "sudo sysctl --write ",
    // These push to a registry or make a release, with credentials that only the workflow has.
    "cosign attest ",
    "cosign sign ",
    "cosign sign-blob ",
    "docker buildx ",
    "gh release create ",
    "helm push ",
];

/// What would make several commands of one.
const SEPARATORS: [&str; 4] = ["\n", ";", "&", "|"];

/// Steps of workflows that do more than a task, actions that may change, and permissions that are not
/// listed.
pub(super) fn violations() -> anyhow::Result<Vec<String>> {
    let mut violations = Vec::new();
    let directory = root().join(".github/workflows");
    for entry in fs::read_dir(&directory).context("list .github/workflows")? {
        let path = entry?.path();
        let name = format!(".github/workflows/{}", path.file_name().unwrap_or_default().display());
        match serde_saphyr::from_str(&fs::read_to_string(&path)?) {
            Ok(workflow) => violations.extend(
                of_workflow(&workflow).into_iter().map(|problem| format!("{name}: {problem}")),
            ),
            Err(error) => violations.push(format!("{name}: {error}")),
        }
    }
    violations.sort();
    Ok(violations)
}

fn of_workflow(workflow: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    if workflow["permissions"] != serde_json::json!({}) {
        violations.push("permissions must be {}, so that each job lists its own".to_owned());
    }
    let Some(jobs) = workflow["jobs"].as_object() else {
        violations.push("there are no jobs".to_owned());
        return violations;
    };
    for (job, content) in jobs {
        let mut report = |problem: String| violations.push(format!("job {job}: {problem}"));
        if !content["permissions"].is_object() {
            report("it lists no permissions".to_owned());
        }
        let steps = content["steps"].as_array().into_iter().flatten();
        for step in steps.chain([content]) {
            if let Some(action) = step["uses"].as_str().filter(|action| !is_pinned(action)) {
                report(format!("{action} is not pinned by a commit"));
            }
            if let Some(command) = step["run"].as_str().filter(|command| !is_allowed(command)) {
                report(format!("`{}` is not an allowed command", command.trim_end()));
            }
        }
    }
    violations
}

/// Whether an action is of this repository, or of a commit and not of a tag, which can be moved.
fn is_pinned(action: &str) -> bool {
    let commit = action.rsplit_once('@').map_or("", |(_, commit)| commit);
    action.starts_with("./")
        || commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_allowed(command: &str) -> bool {
    let command = command.trim_end();
    COMMANDS.iter().any(|allowed| command.starts_with(allowed))
        && !SEPARATORS.iter().any(|separator| command.contains(separator))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_runs_one_command_of_the_list() {
        for command in ["cargo xtask tidy", ".ci/run", "cosign sign --yes \"$I@$(cat digest)\"\n"] {
            assert!(is_allowed(command), "{command}");
        }
        for command in ["cargo test", "cargo xtask tidy && ls", "cargo xtask tidy\nls", "ls"] {
            assert!(!is_allowed(command), "{command}");
        }
    }

    #[test]
    fn what_a_workflow_may_not_do_is_listed() {
        let workflow = json!({
            "permissions": {"contents": "read"},
            "jobs": {
                "test": {"steps": [{"uses": "actions/checkout@v4"}, {"run": "make"}]},
                "other": {"permissions": {}, "uses": "./.github/workflows/ci.yml"},
            },
        });
        let expected = [
            "permissions must be {}, so that each job lists its own",
            "job test: it lists no permissions",
            "job test: actions/checkout@v4 is not pinned by a commit",
            "job test: `make` is not an allowed command",
        ];
        let mut expected: Vec<&str> = expected.to_vec();
        let mut found = of_workflow(&workflow);
        found.sort();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
