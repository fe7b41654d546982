//! Counts the instructions of a cycle, and compares them with the counts that are committed.
//!
//! Counts are repeatable where times are not, so that a cycle that became dearer is found before a change is
//! merged. They are those of a program that the dev profile optimises less than a release, so only their
//! differences mean something.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context, bail, ensure};
use xtask_launcher::{
    Completeness, Task,
    build::{self, root},
    provide,
};

/// The committed counts, by shape.
const COUNTS: &str = "tests/figures/instructions.json";

/// One for each way in which a cycle can become dear; small, because counting is fifty times slower.
const SHAPES: [&str; 6] = [
    "FILL-100-1000-10",
    "FILLMIX-100-1000-10",
    "SAT-100-1000-10",
    "PREEMPT-100-100",
    "RECLAIM-100-1",
    "SPREAD-100",
];

/// How many percent more instructions are too many. Repeated runs differ by up to
/// 0.5 %, because hash tables are seeded at random.
const TOLERANCE_PERCENT: u64 = 5;

/// The function whose instructions are counted, with all that it calls.
const COUNTED: &str = "kube_batch_tests::shapes::Shape::first_cycle";
/// The function whose instructions are not: it compares the ledgers with sums over all tasks, and is not in
/// a release.
const NOT_COUNTED: &str = "kube_batch_model::audit::*::audit";

type Counts = BTreeMap<String, u64>;

/// What to do with the counts.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the counts instead of comparing them.
    #[arg(long)]
    update: bool,
}

/// Counts instructions, and fails if there are too many.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    provide(Task::Instructions, Completeness::Required).map_err(anyhow::Error::msg)?;
    let program = build::example("first_cycle").context("build the program that is counted")?;
    let counts: Counts = SHAPES
        .iter()
        .map(|shape| Ok((shape.to_string(), count(&program, shape)?)))
        .collect::<anyhow::Result<_>>()?;
    let path = root().join(COUNTS);
    if args.update {
        return fs::write(path, serde_json::to_string_pretty(&counts)? + "\n").context(COUNTS);
    }
    let committed = fs::read_to_string(path).context(COUNTS)?;
    compare(&serde_json::from_str(&committed).context(COUNTS)?, &counts)
}

/// The instructions of the first cycle of a shape.
fn count(program: &Path, shape: &str) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--toggle-collect={NOT_COUNTED}"))
        .args([program.as_os_str(), shape.as_ref()])
        .output()
        .context("run valgrind")?;
    let log = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind failed on {shape}:\n{log}");
    let collected = log.lines().find_map(|line| line.split_once("Collected :"));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok()).unwrap_or(0);
    // Were the function inlined or renamed, nothing would be counted.
    ensure!(count > 0, "no instructions of {COUNTED} were counted:\n{log}");
    Ok(count)
}

/// Prints the counts, and fails if one has grown too much.
fn compare(committed: &Counts, counts: &Counts) -> anyhow::Result<()> {
    let mut grown = Vec::new();
    for (shape, count) in counts {
        let before = committed.get(shape).with_context(|| format!("{COUNTS} has no {shape}"))?;
        let percent = (*count as f64 / *before as f64 - 1.0) * 100.0;
        println!("{shape:<22} {before:>12} {count:>12} {percent:>+7.2} %");
        if count * 100 > before * (100 + TOLERANCE_PERCENT) {
            grown.push(format!("{shape}: {percent:+.1} %"));
        }
    }
    if grown.is_empty() {
        return Ok(());
    }
    bail!(
        "a cycle needs more instructions than {COUNTS} says; if there is a reason, run \
         `cargo xtask instructions --update`:\n  {}",
        grown.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(before: u64, count: u64) -> bool {
        let counts = |count| Counts::from([("SHAPE".to_owned(), count)]);
        compare(&counts(before), &counts(count)).is_ok()
    }

    #[test]
    fn only_counts_that_grow_too_much_fail() {
        assert!(check(1000, 1050));
        assert!(check(1000, 500));
        assert!(!check(1000, 1051));
    }

    #[test]
    fn a_shape_without_a_committed_count_fails() {
        let counts = Counts::from([("SHAPE".to_owned(), 1)]);
        assert!(compare(&Counts::new(), &counts).is_err());
    }
}
