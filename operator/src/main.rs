//! The command `kube-batch` with the plugins and actions of this project.

use std::process::ExitCode;

use kube_batch::{App, Registry};

fn main() -> ExitCode {
    App::new(Registry::builtin()).main()
}
