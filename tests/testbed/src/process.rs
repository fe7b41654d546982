//! Servers as child processes that do not outlive the process that started them.
//!
//! A server ends when its [`Process`] is dropped, also while a panic unwinds, and when this process ends for
//! any reason. Ctrl-C in the terminal does not end it, because this process stops its servers in order.
//! The last two need `setpriv` of util-linux, because the system call itself needs unsafe code; without
//! `setpriv`, the servers of a killed test keep running.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{LazyLock, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{Error, Result};

/// Time between two checks of a condition.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Number of lines of a log that an error shows.
const N_TAIL_LINES: usize = 20;

/// A running server and its log file.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` and appends its output to `log`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the log cannot be opened or the program cannot be started.
    pub fn start(name: &str, command: &Command, log: &Path) -> Result<Self> {
        let opened = OpenOptions::new().create(true).append(true).open(log);
        let stdout = opened.map_err(Error::io(format!("open {}", log.display())))?;
        let stderr = stdout.try_clone().map_err(Error::io(format!("open {}", log.display())))?;
        let mut command = guarded(command);
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        let child = spawn(command).map_err(Error::io(format!("start {name}")))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Its name, as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the system does not report it.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(Error::io(format!("query the state of {}", self.name)))
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Server`] with the end of its log.
    pub fn expect_running(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(self.problem(format!("ended with {status}"))),
        }
    }

    /// An error about this server, with the end of its log.
    pub fn problem(&self, problem: impl Into<String>) -> Error {
        Error::Server {
            server: self.name.clone(),
            problem: problem.into(),
            log: self.log.clone(),
            tail: tail(&self.log),
        }
    }

    fn signal(&self, action: &str, signal: Signal) -> Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.expect("the system gave this process its id");
        let sent = kill_process(id, signal).map_err(io::Error::from);
        sent.map_err(Error::io(format!("{action} {}", self.name)))
    }

    /// Sends SIGTERM, and SIGKILL after `grace`; returns its exit status.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it can be neither signalled nor waited for.
    pub fn stop(mut self, grace: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + grace;
        if self.ended()?.is_none() {
            self.signal("end", Signal::TERM)?;
        }
        while Instant::now() < deadline {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
        self.kill()
    }

    /// Suspends it (SIGSTOP) until [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be signalled.
    pub fn suspend(&self) -> Result<()> {
        self.signal("suspend", Signal::STOP)
    }

    /// Resumes it (SIGCONT) after [`suspend`](Self::suspend).
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be signalled.
    pub fn resume(&self) -> Result<()> {
        self.signal("resume", Signal::CONT)
    }

    /// Kills it (SIGKILL) and returns its exit status.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it can be neither killed nor waited for.
    pub fn kill(mut self) -> Result<ExitStatus> {
        let action = format!("kill {}", self.name);
        self.child.kill().and_then(|()| self.child.wait()).map_err(Error::io(action))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `check` returns a value.
///
/// # Errors
///
/// Those of `check` at once, [`Error::Timeout`] if `timeout` passes first.
pub fn wait_for<T>(
    what: &str,
    timeout: Duration,
    mut check: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = check()? {
            return Ok(value);
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout { what: what.to_owned(), timeout });
        }
        thread::sleep(POLL);
    }
}

/// The last lines of a file; empty if it cannot be read.
fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(N_TAIL_LINES)..].join("\n")
}

/// Changes `command` so that the kernel kills it when its parent ends, if `setpriv` is available.
fn guarded(command: &Command) -> Command {
    static SETPRIV: LazyLock<bool> = LazyLock::new(|| {
        let mut probe = Command::new("setpriv");
        probe.args(["--pdeathsig", "KILL", "--", "true"]);
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    });
    let mut guarded = if *SETPRIV {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
        // Ctrl-C in the terminal does not reach a separate process group.
        setpriv.process_group(0);
        setpriv
    } else {
        Command::new(command.get_program())
    };
    guarded.args(command.get_args());
    for (variable, value) in command.get_envs() {
        match value {
            Some(value) => guarded.env(variable, value),
            None => guarded.env_remove(variable),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        guarded.current_dir(directory);
    }
    guarded
}

/// Starts `command` from a thread that lives as long as this process.
///
/// To the kernel, the parent of a process is the *thread* that started it. It would kill a server that the
/// thread of a test started when that test ends, although other tests may share the server.
fn spawn(command: Command) -> io::Result<Child> {
    type Request = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<mpsc::Sender<Request>> = LazyLock::new(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, reply) in requests {
                // The reply is lost only if the requesting thread died; then the child is not needed.
                if let Err(mpsc::SendError(Ok(mut child))) = reply.send(command.spawn()) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        });
        sender
    });
    let (reply, response) = mpsc::channel();
    SPAWNER.send((command, reply)).expect("the spawning thread never ends");
    response.recv().expect("the spawning thread replies to every request")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(log: &Path) -> Process {
        let mut command = Command::new("sleep");
        command.arg("600");
        Process::start("sleeper", &command, log).unwrap()
    }

    fn is_alive(id: u32) -> bool {
        let id = Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        rustix::process::test_kill_process(id).is_ok()
    }

    #[test]
    fn dropped_process_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let process = sleeper(&directory.path().join("log"));
        let id = process.id();
        assert!(is_alive(id));
        drop(process);
        assert!(!is_alive(id));
    }

    #[test]
    fn process_outlives_the_thread_that_started_it() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut process = thread::spawn(move || sleeper(&log)).join().unwrap();
        thread::sleep(POLL);
        process.expect_running().unwrap();
    }

    #[test]
    fn stopped_process_gets_its_grace_period() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done"]);
        let process = Process::start("shell", &command, &log).unwrap();
        wait_for("the trap", Duration::from_secs(10), || {
            Ok(fs::read_to_string(&log).is_ok_and(|text| text.contains("up")).then_some(()))
        })
        .unwrap();
        let status = process.stop(Duration::from_secs(10)).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(fs::read_to_string(&log).unwrap(), "up\nbye\n");
    }

    #[test]
    fn a_suspended_process_goes_on_when_it_is_resumed() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do echo tick; sleep 0.01; done"]);
        let process = Process::start("shell", &command, &log).unwrap();
        let length = || fs::metadata(&log).map_or(0, |metadata| metadata.len());
        let grows = || {
            let before = length();
            wait_for("a line", Duration::from_secs(10), || Ok((length() > before).then_some(())))
        };
        grows().unwrap();
        process.suspend().unwrap();
        // The signal may arrive a little later.
        thread::sleep(5 * POLL);
        let suspended = length();
        thread::sleep(5 * POLL);
        assert_eq!(length(), suspended);
        process.resume().unwrap();
        grows().unwrap();
    }

    #[test]
    fn error_about_an_ended_process_shows_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo cannot start >&2; exit 7"]);
        let mut process = Process::start("shell", &command, &directory.path().join("log")).unwrap();
        let error =
            wait_for("the end", Duration::from_secs(10), || Ok(process.expect_running().err()))
                .unwrap();
        let message = error.to_string();
        assert!(message.starts_with("shell ended with exit status: 7"), "{message}");
        assert!(message.ends_with("cannot start"), "{message}");
    }
}
