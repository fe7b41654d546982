//! Removes what is left of an idle control plane when the process ends that started it.
//!
//! A process that ends drops nothing that is `static`. So a shell waits for its end: it reads from a pipe that only
//! this process writes to, and that the kernel closes, however the process ends.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::error::{Error, Result};

/// Its arguments are a directory and the ids of processes. Servers end at about the same time as the pipe, and
/// while one is still writing, its directory cannot be removed.
const SCRIPT: &str = r#"
read -r word && exit
directory=$1
shift
kill -KILL "$@" 2>/dev/null
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$directory" 2>/dev/null && exit
    sleep 0.1
done
"#;

/// A shell that removes a directory and kills processes when this process ends.
#[derive(Debug)]
pub(crate) struct Janitor(Child);

impl Janitor {
    /// Starts the shell.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be started.
    pub(crate) fn start(directory: &Path, processes: &[u32]) -> Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "janitor"]).arg(directory);
        command.args(processes.iter().map(u32::to_string));
        // Ctrl-C in the terminal does not reach a separate process group.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self).map_err(Error::io("start a shell"))
    }

    /// Ends the shell; it removes and kills nothing.
    pub(crate) fn dismiss(mut self) {
        let stdin = self.0.stdin.take();
        // Errors mean that it has already ended.
        let _ = stdin.map(|mut stdin| stdin.write_all(b"dismissed\n"));
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;
    use crate::process::{Process, wait_for};

    fn sleeper(directory: &Path) -> Process {
        let mut command = Command::new("sleep");
        command.arg("600");
        Process::start("sleeper", &command, &directory.join("log")).unwrap()
    }

    #[test]
    fn end_of_this_process_removes_the_directory_and_kills_the_servers() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("plane");
        fs::create_dir(&directory).unwrap();
        let mut server = sleeper(&directory);
        let mut janitor = Janitor::start(&directory, &[server.id()]).unwrap();
        // As the kernel does at the end of this process.
        drop(janitor.0.stdin.take());
        janitor.0.wait().unwrap();
        assert!(!directory.exists());
        wait_for("the server to end", Duration::from_secs(10), || server.ended()).unwrap();
    }

    #[test]
    fn dismissed_janitor_removes_and_kills_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut server = sleeper(directory.path());
        Janitor::start(directory.path(), &[server.id()]).unwrap().dismiss();
        server.expect_running().unwrap();
        assert!(directory.path().join("log").exists());
    }
}
