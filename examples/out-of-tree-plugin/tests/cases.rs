//! Runs the cases of this plugin with the scheduler that has it.

use std::process::Command;

#[test]
fn every_case_passes() {
    let output = Command::new(env!("CARGO_BIN_EXE_node-price"))
        .args(["test", concat!(env!("CARGO_MANIFEST_DIR"), "/cases")])
        .output()
        .expect("the scheduler runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("3 passed, 0 failed"), "{printed}");
}
