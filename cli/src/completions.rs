//! Completion scripts for shells.

use std::io::{self, Write};

use clap_complete::{Shell, generate};

/// Writes the completion script of a program for a shell.
pub(crate) fn write(
    shell: Shell,
    mut program: clap::Command,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut script = Vec::new();
    generate(shell, &mut program, "kube-batch", &mut script);
    if shell == Shell::Bash {
        let text = String::from_utf8_lossy(&script);
        // clap_complete spells the hyphen of our name in two ways, and then finds no subcommand:
        // https://github.com/clap-rs/clap/issues/6421.
        script = text.replace("kube__subcmd__batch", "kube__batch").into_bytes();
    }
    out.write_all(&script)
}
