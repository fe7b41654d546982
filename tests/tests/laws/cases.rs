//! Every case file, run with the index and with the naive search.

use std::{fs, path::Path};

use kube_batch_framework::candidates::Search;
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::suite::{CaseOutcome, run_all};

#[test]
fn every_case_passes() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut paths: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let registry = Registry::builtin();
    let mut failures = Vec::new();
    let mut n_cases = 0;
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "yaml")) {
        let bytes = fs::read(path).unwrap();
        for search in [Search::Index, Search::Naive] {
            let results = run_all(&bytes, &registry, search);
            assert!(!results.is_empty(), "{} has no case", path.display());
            for result in results {
                n_cases += 1;
                if result.outcome != CaseOutcome::Pass {
                    failures.push(format!("{} ({search:?}): {:#?}", result.name, result.outcome));
                }
            }
        }
    }
    assert!(n_cases >= 2 * 640, "found only {n_cases} cases");
    assert!(
        failures.is_empty(),
        "{} of {n_cases} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
