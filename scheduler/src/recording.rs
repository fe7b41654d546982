//! A cycle before it runs, written down: the state of its scheduler and all that it depends on. A cycle is a function of
//! these, so it can be run again elsewhere, and decides the same.
//!
//! A recording is text: a line with the state of the scheduler, a line with what it remembers, and then a
//! [dump] of the facts and the decisions in flight. It contains what a dump contains, the
//! configuration, and the reports of jobs that wait.

use std::{
    io::{self, Write},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube_batch_cache::{
    assumed::Assumed,
    dump::{self, Dump},
    durations::Durations,
    live::LiveSnapshot,
    snapshot::{SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::{candidates::Search, memory::written::WrittenMemory};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    conf,
    core::{Core, CycleInput, CyclePoint, CycleResult},
    registry::Registry,
};

/// The format that is written; any other is rejected.
const FORMAT: &str = "kube-batch cycle 1";

/// A recorded cycle.
#[derive(Debug)]
pub struct Recording {
    /// The scheduler before the cycle.
    pub core: Core,
    /// The facts.
    pub store: Store,
    /// The decisions in flight.
    pub assumed: Assumed,
    /// The time of day.
    pub now: Timestamp,
    /// The time since a fixed moment.
    pub elapsed: Duration,
}

/// A recording cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{part} of the recording: {problem}")]
pub struct RecordingError {
    /// Which part of it.
    pub part: &'static str,
    /// What is wrong with that part.
    pub problem: String,
}

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    format: String,
    now: Timestamp,
    elapsed: Duration,
    search: Search,
    options: SnapshotOptions,
    durations: Durations,
    conf: Box<RawValue>,
}

impl Core {
    /// Writes the state of this scheduler and what its next cycle depends on.
    ///
    /// The snapshot of that cycle is made from scratch, as it is when the recording is read. One that has followed what
    /// changed leads to the same decisions, but may have classes of tasks that nothing tells apart any more. Searches
    /// for them take longer, so turns that are cut off would be cut elsewhere.
    ///
    /// # Errors
    ///
    /// The errors of `out`.
    pub fn record(&mut self, input: &CycleInput<'_>, out: &mut dyn Write) -> io::Result<()> {
        self.live = LiveSnapshot::default();
        let Self { conf, options, search, durations, memory, live: _ } = self;
        let CycleInput { store, assumed, now, elapsed } = input;
        let header = Header {
            format: FORMAT.to_owned(),
            now: *now,
            elapsed: *elapsed,
            search: *search,
            options: options.clone(),
            durations: durations.clone(),
            conf: serde_json::value::to_raw_value(&**conf)?,
        };
        let snapshot = take_snapshot(store, assumed, options);
        line(out, &header)?;
        line(out, &memory.written(&snapshot.cluster))?;
        dump::write(store, assumed, *now, out)
    }
}

impl Recording {
    /// Reads a recording. The plugins and actions of its configuration are looked up in `registry`.
    ///
    /// # Errors
    ///
    /// [`RecordingError`] at the first part that cannot be read.
    pub fn read(bytes: &[u8], registry: &Registry) -> Result<Self, RecordingError> {
        let mut lines = bytes.splitn(3, |byte| *byte == b'\n');
        let mut next = || lines.next().unwrap_or_default();
        let header: Header = parse("the first line", next())?;
        let memory: WrittenMemory = parse("the second line", next())?;
        let Header { format, now, elapsed, search, options, durations, conf } = header;
        if format != FORMAT {
            let problem = format!("format \"{format}\" is not \"{FORMAT}\"");
            return Err(RecordingError { part: "the first line", problem });
        }
        let conf = conf::parse(conf.get(), registry).map_err(|problems| {
            let problems = problems.iter().map(ToString::to_string);
            RecordingError {
                part: "the configuration",
                problem: problems.collect::<Vec<_>>().join("; "),
            }
        })?;
        let conf = Arc::new(conf.conf);
        let of_dump = |error: dump::DumpError| RecordingError {
            part: "the dump",
            problem: error.to_string(),
        };
        let Dump { store, assumed, .. } = dump::read(next()).map_err(of_dump)?;
        let snapshot = take_snapshot(&store, &assumed, &options);
        let memory = memory.read(&snapshot.cluster, &conf.action_names()).map_err(|error| {
            RecordingError { part: "the second line", problem: error.to_string() }
        })?;
        let live = LiveSnapshot::default();
        let core = Core { conf, options, search, durations, memory, live };
        Ok(Self { core, store, assumed, now, elapsed })
    }

    /// Runs the cycle. `reached` is called for each point that it reaches.
    pub fn cycle(&mut self, reached: &mut dyn FnMut(CyclePoint<'_>)) -> CycleResult {
        let Self { core, store, assumed, now, elapsed } = self;
        core.cycle(CycleInput { store, assumed, now: *now, elapsed: *elapsed }, reached)
    }
}

fn line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

fn parse<'de, T: Deserialize<'de>>(
    part: &'static str,
    text: &'de [u8],
) -> Result<T, RecordingError> {
    let problem = |error: serde_json::Error| RecordingError { part, problem: error.to_string() };
    serde_json::from_slice(text).map_err(problem)
}
