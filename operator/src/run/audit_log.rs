//! The audit log: every decision as one line of JSON.
//!
//! A thread of its own writes the lines, so that a slow disk delays neither cycles nor the API
//! server's answers. What it cannot write, or not in time, is lost and counted: an audit log must not stop the
//! scheduler.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use anyhow::Context;
use jiff::Timestamp;
use kube_batch_model::{
    decision::{Decision, PodRef},
    name::{JobKey, Name, ObjectKey},
};
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use tracing::{info, warn};

use super::cycle_log::Decided;

/// The lines that wait for the disk take at most this many bytes.
const MAX_WAITING: usize = 16 << 20;

/// For how long the end of the process waits for the disk.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// One line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'d> {
    /// When the cycle ended.
    time: Timestamp,
    /// The id of the cycle, as in `transitionID` of conditions that it changed.
    cycle: &'d str,
    decision: &'static str,
    pod: &'d ObjectKey,
    uid: &'d Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'d Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'d ObjectKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'d Name>,
    /// Of an eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The job that a pod is evicted for, and its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    for_job: Option<&'d ObjectKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    for_queue: Option<&'d Name>,
}

impl<'d> Line<'d> {
    fn new(time: Timestamp, cycle: &'d str, decided: &'d Decided<'_>) -> Self {
        let PodRef { uid, key } = decided.decision.pod();
        let line = Self {
            time,
            cycle,
            decision: "",
            pod: key,
            uid,
            node: None,
            job: decided.job.map(JobKey::object),
            queue: decided.queue,
            reason: None,
            for_job: None,
            for_queue: None,
        };
        match decided.decision {
            Decision::Bind { node, .. } => Self { decision: "bind", node: Some(node), ..line },
            Decision::Nominate { node, .. } => {
                Self { decision: "nominate", node: Some(node), ..line }
            }
            Decision::Withdraw { .. } => Self { decision: "withdraw", ..line },
            Decision::Deallocate { .. } => Self { decision: "deallocate", ..line },
            Decision::Evict { node, cause, .. } => Self {
                decision: "evict",
                node: Some(node),
                reason: Some(cause.reason().to_string()),
                for_job: Some(cause.job().job.object()),
                for_queue: Some(&cause.job().queue),
                ..line
            },
        }
    }
}

/// The audit log. Dropping it writes what is pending, if the disk takes it within 5 s.
#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    /// `None` if there is no audit log.
    writer: Option<Writer>,
}

/// The thread that writes, as the others see it.
#[derive(Debug)]
struct Writer {
    batches: mpsc::Sender<Batch>,
    /// The bytes that wait.
    waiting: Arc<AtomicUsize>,
    /// Lines that were not written.
    lost: Counter,
    /// Disconnected when the thread has ended.
    ended: mpsc::Receiver<()>,
}

/// The lines of a cycle.
#[derive(Debug)]
struct Batch {
    n_lines: u64,
    text: Vec<u8>,
}

impl AuditLog {
    /// Appends to a file, or writes to standard output if the path is `-`. `lost` counts the lines that could not be
    /// written.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub(crate) fn open(path: &Path, lost: &Counter) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::to(io::stdout(), lost));
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot open the audit log {}", path.display()))?;
        Ok(Self::to(file, lost))
    }

    fn to(output: impl Write + Send + 'static, lost: &Counter) -> Self {
        let (batches, received) = mpsc::channel();
        let (ends, ended) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (counted, of_thread) = (Arc::clone(&waiting), lost.clone());
        std::thread::spawn(move || {
            write_batches(output, received, &counted, &of_thread);
            drop::<mpsc::Sender<()>>(ends);
        });
        Self { writer: Some(Writer { batches, waiting, lost: lost.clone(), ended }) }
    }

    /// Writes the decisions of a cycle.
    pub(crate) fn write(&self, time: Timestamp, cycle: &str, decided: &[Decided<'_>]) {
        let Some(writer) = &self.writer else { return };
        if decided.is_empty() {
            return;
        }
        let mut text = Vec::new();
        for decided in decided {
            let line = Line::new(time, cycle, decided);
            serde_json::to_writer(&mut text, &line).expect("writing to memory does not fail");
            text.push(b'\n');
        }
        writer.send(Batch { n_lines: decided.len() as u64, text });
    }
}

impl Writer {
    fn send(&self, batch: Batch) {
        let n_bytes = batch.text.len();
        if self.waiting.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes > MAX_WAITING {
            self.waiting.fetch_sub(n_bytes, Ordering::Relaxed);
            self.lost.inc_by(batch.n_lines);
            return;
        }
        // The thread ends only when this sender is dropped.
        let _ = self.batches.send(batch);
    }
}

/// Writes what is received until the sender is gone.
fn write_batches(
    mut output: impl Write,
    batches: mpsc::Receiver<Batch>,
    waiting: &AtomicUsize,
    lost: &Counter,
) {
    let mut has_failed = false;
    for Batch { n_lines, text } in batches {
        // A part of a line may be there: what follows begins a new one.
        let separator = if has_failed { output.write_all(b"\n") } else { Ok(()) };
        let written =
            separator.and_then(|()| output.write_all(&text)).and_then(|()| output.flush());
        match &written {
            Err(error) if !has_failed => {
                warn!(%error, "cannot write the audit log; kube_batch_audit_lines_lost_total counts what is lost");
            }
            Ok(()) if has_failed => info!("the audit log is written again"),
            Err(_) | Ok(()) => {}
        }
        has_failed = written.is_err();
        if has_failed {
            lost.inc_by(n_lines);
        }
        waiting.fetch_sub(text.len(), Ordering::Relaxed);
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        let Some(Writer { batches, ended, .. }) = self.writer.take() else { return };
        drop(batches);
        if ended.recv_timeout(LAST_WRITES) == Err(mpsc::RecvTimeoutError::Timeout) {
            warn!("the last lines of the audit log could not be written in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube_batch_model::decision::{EvictionCause, JobInQueue};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_decision_is_one_line() {
        let pod = |name: &str| PodRef { uid: name.into(), key: ObjectKey::new("ns", name) };
        let job = |name: &str| JobKey::annotated(ObjectKey::new("ns", name));
        let decisions = [
            Decision::Bind {
                minimum: 1,
                protected_until: None,
                queue: "q".into(),
                pod: pod("a"),
                node: "n1".into(),
                claims: vec![],
                devices: Vec::new(),
            },
            Decision::Evict {
                pod: pod("v"),
                node: "n2".into(),
                cause: EvictionCause::Reclaim(JobInQueue {
                    job: job("g"),
                    queue: "q".into(),
                    is_named: true,
                }),
            },
            Decision::Nominate { pod: pod("b"), node: "n2".into(), devices: [].into() },
            Decision::Withdraw { pod: pod("gone") },
        ];
        let (queue, known) = (Name::from("q"), job("j"));
        let decided: Vec<Decided<'_>> = decisions
            .iter()
            .map(|decision| {
                let is_known = decision.pod().key.name != "gone".into();
                let queue = is_known.then_some(&queue);
                Decided { decision, report: None, job: is_known.then_some(&known), queue }
            })
            .collect();
        let output = Shared::default();
        let log = AuditLog::to(output.clone(), &Counter::default());
        log.write(Timestamp::UNIX_EPOCH, "me-7", &decided);
        log.write(Timestamp::UNIX_EPOCH, "me-8", &[]);
        drop(log);
        let written = String::from_utf8(output.0.lock().expect("not poisoned").clone());
        let head = r#"{"time":"1970-01-01T00:00:00Z","cycle":"me-7","#;
        let expected = [
            r#""decision":"bind","pod":"ns/a","uid":"a","node":"n1","job":"ns/j","queue":"q"}"#,
            r#""decision":"evict","pod":"ns/v","uid":"v","node":"n2","job":"ns/j","queue":"q","reason":"reclaim","forJob":"ns/g","forQueue":"q"}"#,
            r#""decision":"nominate","pod":"ns/b","uid":"b","node":"n2","job":"ns/j","queue":"q"}"#,
            r#""decision":"withdraw","pod":"ns/gone","uid":"gone"}"#,
        ];
        let expected: String = expected.iter().map(|line| format!("{head}{line}\n")).collect();
        assert_eq!(written.expect("UTF-8"), expected);
    }

    /// A disk that is full after some bytes, until it is emptied.
    #[derive(Clone, Default)]
    struct Disk {
        written: Arc<Mutex<Vec<u8>>>,
        free: Arc<AtomicUsize>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n_free = self.free.load(Ordering::SeqCst).min(bytes.len());
            if n_free == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.free.fetch_sub(n_free, Ordering::SeqCst);
            self.written.lock().expect("not poisoned").extend(&bytes[..n_free]);
            Ok(n_free)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn withdraw(log: &AuditLog, name: &str) {
        let pod = PodRef { uid: name.into(), key: ObjectKey::new("ns", name) };
        let decision = Decision::Withdraw { pod };
        let decided = [Decided { decision: &decision, report: None, job: None, queue: None }];
        log.write(Timestamp::UNIX_EPOCH, "me-7", &decided);
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        for _ in 0..1_000 {
            if holds() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("{what}");
    }

    #[test]
    fn after_a_full_disk_whole_lines_follow_and_what_was_lost_is_counted() {
        let (disk, lost) = (Disk::default(), Counter::default());
        let log = AuditLog::to(disk.clone(), &lost);
        disk.free.store(10, Ordering::SeqCst);
        withdraw(&log, "a");
        until("a is lost", || lost.get() == 1);
        withdraw(&log, "b");
        until("b is lost", || lost.get() == 2);
        disk.free.store(1_000, Ordering::SeqCst);
        withdraw(&log, "c");
        withdraw(&log, "d");
        drop(log);
        let written = String::from_utf8(disk.written.lock().expect("not poisoned").clone());
        let written = written.expect("UTF-8");
        let (first, others) = written.split_once('\n').expect("lines");
        assert_eq!(first.len(), 10, "a part of the first line");
        let names = others.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("a whole line");
            line["uid"].as_str().expect("a uid").to_owned()
        });
        assert_eq!(names.collect::<Vec<_>>(), ["c", "d"]);
        assert_eq!(lost.get(), 2);
    }

    /// A disk that does not answer while the lock is held.
    struct Hangs(Arc<Mutex<()>>);

    impl Write for Hangs {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(self.0.lock());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_does_not_answer_fills_no_memory_and_does_not_keep_the_process() {
        let (answer, lost) = (Arc::new(Mutex::new(())), Counter::default());
        let held = answer.lock().expect("not poisoned");
        let log = AuditLog::to(Hangs(Arc::clone(&answer)), &lost);
        let long = "x".repeat(1 << 20);
        (0..20).for_each(|_| withdraw(&log, &long));
        // Each line has the name twice: seven of them are 14 MiB.
        assert_eq!(lost.get(), 13);
        let start = std::time::Instant::now();
        drop(log);
        assert!(start.elapsed() < 2 * LAST_WRITES, "{:?}", start.elapsed());
        drop(held);
    }
}
