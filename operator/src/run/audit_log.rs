//! The audit log: every decision as one line of JSON.
//!
//! A thread of its own writes the lines, so that a slow disk delays neither cycles nor the API
//! server's answers.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
    sync::mpsc,
    thread::JoinHandle,
};

use anyhow::Context;
use jiff::Timestamp;
use kube_batch_api::{
    decision::{Decision, PodRef},
    name::{JobKey, Name, ObjectKey},
};
use serde::Serialize;
use tracing::warn;

use super::cycle_log::Decided;

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
            job: decided.job.as_ref().map(JobKey::object),
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
            Decision::Evict { node, reason, by, queue, .. } => Self {
                decision: "evict",
                node: Some(node),
                reason: Some(reason.to_string()),
                for_job: Some(by.object()),
                for_queue: Some(queue),
                ..line
            },
        }
    }
}

/// The audit log. Dropping it writes what is pending.
#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    /// `None` if there is no audit log.
    writer: Option<(mpsc::Sender<Vec<u8>>, JoinHandle<()>)>,
}

impl AuditLog {
    /// Appends to a file, or writes to standard output if the path is `-`.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::to(io::stdout()));
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot open the audit log {}", path.display()))?;
        Ok(Self::to(file))
    }

    fn to(mut output: impl Write + Send + 'static) -> Self {
        let (sender, lines) = mpsc::channel::<Vec<u8>>();
        let write = move || {
            for lines in lines {
                if let Err(error) = output.write_all(&lines).and_then(|()| output.flush()) {
                    warn!(%error, "cannot write the audit log");
                }
            }
        };
        Self { writer: Some((sender, std::thread::spawn(write))) }
    }

    /// Writes the decisions of a cycle.
    pub(crate) fn write(&self, time: Timestamp, cycle: &str, decided: &[Decided<'_>]) {
        let Some((writer, _)) = &self.writer else { return };
        if decided.is_empty() {
            return;
        }
        let mut lines = Vec::new();
        for decided in decided {
            let line = Line::new(time, cycle, decided);
            serde_json::to_writer(&mut lines, &line).expect("writing to memory does not fail");
            lines.push(b'\n');
        }
        // The thread ends only when this sender is dropped.
        let _ = writer.send(lines);
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.writer.take() {
            drop(sender);
            // If it panicked, there is nothing left to write.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube_batch_api::decision::EvictReason;

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
                reason: EvictReason::Reclaim,
                by: job("g"),
                queue: "q".into(),
            },
            Decision::Nominate { pod: pod("b"), node: "n2".into(), devices: [].into() },
            Decision::Withdraw { pod: pod("gone") },
        ];
        let queue = Name::from("q");
        let decided: Vec<Decided<'_>> = decisions
            .iter()
            .map(|decision| {
                let is_known = decision.pod().key.name != "gone".into();
                let queue = is_known.then_some(&queue);
                Decided { decision, job: is_known.then(|| job("j")), queue }
            })
            .collect();
        let output = Shared::default();
        let log = AuditLog::to(output.clone());
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
}
