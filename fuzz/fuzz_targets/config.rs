//! Any text as a configuration: no panic, every problem points into the text, and what was read is
//! a configuration that a cycle can be run with.

#![no_main]

use kube_batch_actions::action;
use kube_batch_framework::conf;
use kube_batch_plugins::{CATALOG, policy};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let n_lines = text.chars().filter(|letter| matches!(letter, '\n' | '\r')).count() + 2;
    let problems = match conf::parse(text, &CATALOG) {
        Ok(read) => {
            assert!(read.conf.actions.iter().all(|name| action(name).is_some()));
            let _ = policy(&read.conf);
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
