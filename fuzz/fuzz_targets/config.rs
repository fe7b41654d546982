//! Any text as a configuration: no panic, every problem points into the text, and what was read is
//! a configuration that a cycle can be run with.

#![no_main]

use kube_batch_scheduler::{conf, registry::Registry};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let n_lines = text.chars().filter(|letter| matches!(letter, '\n' | '\r')).count() + 2;
    let problems = match conf::parse(text, &Registry::builtin()) {
        Ok(read) => {
            let _ = read.conf.policy();
            read.warnings
        }
        Err(problems) => {
            assert!(!problems.is_empty(), "refused without a reason");
            problems
        }
    };
    for problem in problems {
        assert!(usize::try_from(problem.line).expect("small") <= n_lines, "{problem}");
    }
});
