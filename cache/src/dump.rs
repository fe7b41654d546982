//! A dump: a store written to a file, with every fact and every decision in flight, one record a
//! line.
//!
//! A dump contains exactly the facts that a scheduler used, so a cycle over it makes the same
//! decisions. It contains nothing else: environment variables, arguments, annotations and secrets
//! are never stored and cannot be in it.
//!
//! The file is JSON, one value a line, so that text tools can split and compare it. Labels and
//! templates precede the pods that share them; a pod refers to them by position.

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use jiff::Timestamp;
use kube_batch_model::{
    facts::{class::PodTemplate, pod::TaskFacts},
    group_version::GroupVersion,
    intern::{InternId, Interned},
    selector::Labels,
    status::TaskStatus,
};
use serde::{Deserialize, Serialize};

use crate::{
    assumed::{Assumed, WrittenDecision},
    store::Store,
};

/// The format that is written; any other is rejected.
const FORMAT: &str = "kube-batch store 1";
/// The last second at which a dump can be taken, the year 9000: cycles go on from there, and no time is after the year
/// 9999.
const LAST_TAKEN: i64 = 221_845_392_000;
/// The first bytes of every dump.
const OPENING: &[u8] = br#"{"format":"#;

/// The state of a scheduler at one moment.
#[derive(Debug)]
pub struct Dump {
    /// When it was taken.
    pub taken: Timestamp,
    /// The facts.
    pub store: Store,
    /// The decisions in flight.
    pub assumed: Assumed,
}

/// A dump cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct DumpError {
    /// The line, from 1.
    pub line: u32,
    /// The message.
    pub problem: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    taken: Timestamp,
    /// The APIs of PodGroups and queues that are served; an older dump does not have them.
    #[serde(default)]
    served: Vec<GroupVersion>,
    /// Those of them that cannot be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<GroupVersion>,
    /// The generation of the store; an older dump does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
}

macro_rules! declare_records {
    ($($(#[$doc:meta])* $table:ident: $record:ident($facts:ty), $key:ty = |$of:ident| $by:expr;)*) => {
        /// A line after the first.
        #[derive(Debug, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        enum Record {
            $( $record(Arc<$facts>), )*
            Labels(Arc<Labels>),
            Template(Arc<PodTemplate>),
            Pod {
                /// Positions in the labels and templates so far, from 0.
                labels: usize,
                template: usize,
                facts: Arc<TaskFacts>,
            },
            InFlight(WrittenDecision),
        }

        /// Writes a line for each object but pods.
        fn write_tables(store: &Store, out: &mut dyn Write) -> io::Result<()> {
            $( for facts in store.$table.values() {
                line(out, &Record::$record(Arc::clone(facts)))?;
            } )*
            Ok(())
        }

        impl Loader {
            fn take(&mut self, record: Record) -> Result<(), String> {
                match record {
                    $( Record::$record(facts) => self.store.put_shared(facts), )*
                    Record::Labels(labels) => self.labels.push(labels),
                    Record::Template(template) => self.templates.push(template),
                    Record::InFlight(written) => self.assumed.restore(written),
                    Record::Pod { labels, template, facts } => {
                        self.pod(labels, template, Arc::unwrap_or_clone(facts))?;
                    }
                }
                Ok(())
            }
        }
    };
}

each_table!(without pods: declare_records);

/// Writes a store and the decisions in flight.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(
    store: &Store,
    assumed: &Assumed,
    taken: Timestamp,
    out: &mut dyn Write,
) -> io::Result<()> {
    let served = GroupVersion::ALL.into_iter().filter(|version| store.served().has(*version));
    let unreadable = GroupVersion::ALL.into_iter().filter(|api| store.unreadable().has(*api));
    let (served, unreadable) = (served.collect(), unreadable.collect());
    let (format, generation) = (FORMAT.to_owned(), Some(store.generation()));
    line(out, &Header { format, taken, served, unreadable, generation })?;
    write_tables(store, out)?;
    let mut labels = Positions::default();
    let mut templates = Positions::default();
    for facts in store.pods.values() {
        let labels = labels.of(&facts.labels, |new| line(out, &Record::Labels(new)))?;
        let template = templates.of(&facts.template, |new| line(out, &Record::Template(new)))?;
        line(out, &Record::Pod { labels, template, facts: Arc::clone(facts) })?;
    }
    assumed.written().try_for_each(|decision| line(out, &Record::InFlight(decision)))
}

fn line(out: &mut dyn Write, record: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, record)?;
    out.write_all(b"\n")
}

/// Positions of the values that are written once and shared by pods.
#[derive(Default)]
struct Positions(HashMap<InternId, usize>);

impl Positions {
    /// The position of `shared`; `write` is called if it is new.
    fn of<T>(
        &mut self,
        shared: &Interned<T>,
        write: impl FnOnce(Arc<T>) -> io::Result<()>,
    ) -> io::Result<usize> {
        let next = self.0.len();
        if let Some(position) = self.0.get(&shared.id()) {
            return Ok(*position);
        }
        write(shared.share())?;
        self.0.insert(shared.id(), next);
        Ok(next)
    }
}

/// Whether a file is a dump, by its first bytes.
pub fn is_dump(bytes: &[u8]) -> bool {
    bytes.starts_with(OPENING)
}

/// Reads a dump.
///
/// # Errors
///
/// [`DumpError`] at the first line that cannot be read: a part of a dump would be a different
/// cluster.
pub fn read(bytes: &[u8]) -> Result<Dump, DumpError> {
    let lines = bytes.split(|byte| *byte == b'\n');
    // An editor may have written line breaks of its own.
    let mut lines = (1..).zip(lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)));
    let (_, first) = lines.next().expect("a split gives at least one part");
    let header: Header = parse(1, first)?;
    if header.format != FORMAT {
        let problem = format!("format \"{}\" is not \"{FORMAT}\"", header.format);
        return Err(DumpError { line: 1, problem });
    }
    if header.taken.as_second() > LAST_TAKEN {
        let problem = format!("taken {} is too late", header.taken);
        return Err(DumpError { line: 1, problem });
    }
    let mut loader = Loader::default();
    for version in header.served {
        loader.store.set_served(version, true);
    }
    for version in header.unreadable {
        loader.store.set_readable(version, false);
    }
    for (number, text) in lines.filter(|(_, text)| !text.is_empty()) {
        loader.take(parse(number, text)?).map_err(|problem| DumpError { line: number, problem })?;
    }
    let Loader { mut store, assumed, .. } = loader;
    if let Some(generation) = header.generation {
        store.set_generation(generation);
    }
    Ok(Dump { taken: header.taken, store, assumed })
}

fn parse<'de, T: Deserialize<'de>>(line: u32, text: &'de [u8]) -> Result<T, DumpError> {
    serde_json::from_slice(text).map_err(|error| {
        // serde_json numbers the lines of this text, which is always one.
        let problem = error.to_string().replace("at line 1 column", "at column");
        DumpError { line, problem }
    })
}

#[derive(Default)]
struct Loader {
    store: Store,
    assumed: Assumed,
    labels: Vec<Arc<Labels>>,
    templates: Vec<Arc<PodTemplate>>,
}

impl Loader {
    fn pod(&mut self, labels: usize, template: usize, facts: TaskFacts) -> Result<(), String> {
        let key = facts.key.clone();
        let missing = |what, position| format!("pod {key}: {what} {position} does not exist");
        match facts.status {
            TaskStatus::Allocated
            | TaskStatus::Pipelined
            | TaskStatus::Binding
            | TaskStatus::Stuck => {
                return Err(format!(
                    "pod {key}: status {} exists only within a cycle",
                    facts.status
                ));
            }
            TaskStatus::Pending
            | TaskStatus::Bound
            | TaskStatus::Running
            | TaskStatus::Releasing
            | TaskStatus::Succeeded
            | TaskStatus::Failed
            | TaskStatus::Unknown => {}
        }
        let labels = self.labels.get(labels).ok_or_else(|| missing("labels", labels))?;
        let found = self.templates.get(template);
        let template = found.ok_or_else(|| missing("template", template))?;
        self.store.restore_pod(facts, Arc::clone(labels), Arc::clone(template));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_model::{
        decision::{ClaimChoice, PodRef},
        facts::device::DeviceId,
        name::ObjectKey,
    };
    use serde_json::json;

    use super::*;
    use crate::assumed::InFlight;

    fn store() -> Store {
        let mut store = Store::default();
        store.put_node(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"}},
        }));
        for name in ["a", "b"] {
            store.put_pod(json!({
                        "apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": name, "namespace": "ns", "uid": name,
                                     "labels": {"app": "x"}},
                        "spec": {"schedulerName": "kube-batch", "containers": [{
                            "name": "c", "env": [{"name": "PASSWORD", "value": "s3cret"}],
                            "resources": {"requests": {"cpu": "1500m"}}}]},
            }));
        }
        store
    }

    fn assumed() -> Assumed {
        let mut assumed = Assumed::default();
        let pod = |name: &str| PodRef { uid: name.into(), key: ObjectKey::new("ns", name) };
        let claim = ClaimChoice {
            claim: ObjectKey::new("ns", "c"),
            volume: Some("v".into()),
            made_for: None,
        };
        let bind = InFlight::Bind {
            queue: Some("q".into()),
            node: "n".into(),
            claims: vec![claim],
            devices: Vec::new(),
        };
        assumed.insert(pod("a"), bind, Timestamp::UNIX_EPOCH);
        assumed.insert(pod("b"), InFlight::Evict, Timestamp::UNIX_EPOCH);
        let device = DeviceId { driver: "d".into(), pool: "n".into(), device: "gpu-0".into() };
        let nominate = InFlight::Nominate { node: "n".into(), devices: [device].into() };
        assumed.insert(pod("c"), nominate, Timestamp::UNIX_EPOCH);
        assumed
    }

    fn written(store: &Store, assumed: &Assumed) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(store, assumed, Timestamp::UNIX_EPOCH, &mut bytes).expect("memory takes all");
        bytes
    }

    #[test]
    fn a_written_dump_is_read_back() {
        let bytes = written(&store(), &assumed());
        assert!(is_dump(&bytes));
        let dump = read(&bytes).expect("a dump");
        assert_eq!(dump.store.pods, store().pods);
        assert_eq!(dump.store.nodes, store().nodes);
        assert_eq!(dump.assumed, assumed());
        assert_eq!(dump.store.generation(), store().generation());
        assert_eq!(written(&dump.store, &dump.assumed), bytes);
        let templates: Vec<_> = dump.store.pods.values().map(|facts| &facts.template).collect();
        assert_eq!(templates[0].id(), templates[1].id(), "shared values stay shared");
    }

    #[test]
    fn it_contains_no_secrets() {
        let text = String::from_utf8(written(&store(), &assumed())).expect("text");
        assert!(text.contains("1500"));
        assert!(!text.contains("s3cret"));
    }

    #[test]
    fn line_breaks_of_any_editor_are_read() {
        let text = String::from_utf8(written(&store(), &assumed())).expect("text");
        let dump = read(format!("{text}\n").replace('\n', "\r\n").as_bytes()).expect("a dump");
        assert_eq!(dump.store.pods, store().pods);
    }

    #[test]
    fn a_dump_from_the_end_of_time_is_refused() {
        let text = r#"{"format":"kube-batch store 1","taken":"9999-12-30T22:00:00Z"}"#;
        let error = read(text.as_bytes()).expect_err("too late").to_string();
        assert_eq!(error, "line 1: taken 9999-12-30T22:00:00Z is too late");
    }

    #[test]
    fn an_invalid_line_is_reported() {
        let bytes = written(&store(), &assumed());
        let text = String::from_utf8(bytes).expect("text");
        for (from, to, problem) in [
            (
                "kube-batch store 1",
                "kube-batch store 9",
                "line 1: format \"kube-batch store 9\" is not",
            ),
            ("\"template\":0", "\"template\":7", "line 5: pod ns/a: template 7 does not exist"),
            (
                "\"Pending\"",
                "\"Allocated\"",
                "line 5: pod ns/a: status Allocated exists only within a cycle",
            ),
            ("1500", "-1500", "line 4: cpu amount \"-1500\" is negative"),
            ("{\"node\":{\"name\"", "{\"node\":{\"nam\"", "line 2: missing field `name`"),
        ] {
            let invalid = text.replacen(from, to, 1);
            assert_ne!(invalid, text, "{from}");
            let error = read(invalid.as_bytes()).expect_err("invalid").to_string();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
