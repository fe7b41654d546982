//! Reads manifests into typed objects, with a [`Diagnostic`] for every problem.
//!
//! A [`Reader`] accepts YAML (one or many documents) and JSON (a value, an array, or consecutive
//! values), lists of every kind and [`Dump`]s. It passes objects to a [`Sink`] one at a time, in the
//! order of the text; a file is never in memory as a tree. An invalid object or document is ignored,
//! and the rest is read. Kinds that the scheduler does not read are counted ([`Summary`]).
//!
//! It does not set defaults ([`crate::defaults`]) and does not validate objects: the sink rejects
//! objects that it cannot use, and the reader finds the line.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use kube_batch_cache::dump::{self, Dump, DumpError};
use kube_batch_model::{facts::FactError, name::ObjectKey};
use kube_batch_yaml::{MAX_PROBLEMS, Problem};

use crate::{
    defaults,
    diagnostic::{Diagnostic, Severity},
    item::ItemEvent,
    object::{Kind, Object, Served, TypeMeta},
    place::Place,
    pool,
    source::{self, Source},
};

/// Receives the objects and problems that a [`Reader`] finds.
pub trait Sink {
    /// Receives an object that was read at `place`.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the object cannot be used: the reader reports it with its line.
    fn object(&mut self, object: Object, place: &Place<'_>) -> Result<(), FactError>;

    /// Receives the content of a dump.
    fn dump(&mut self, dump: Dump);

    /// Receives a problem.
    fn problem(&mut self, diagnostic: Diagnostic);
}

/// Reads manifests, and rejects objects that were already defined in any source.
#[derive(Debug, Default)]
pub struct Reader {
    seen: HashMap<Identity, Definition>,
    /// Unknown fields that have been reported, by kind and path without positions.
    unknown_fields: HashSet<(Kind, String)>,
    summary: Summary,
}

type Identity = (Kind, Served, ObjectKey);

/// Where an object was first defined.
#[derive(Debug)]
struct Definition {
    source: Arc<str>,
    line: u32,
}

/// Totals over all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Objects that the sink accepted.
    pub n_objects: usize,
    /// Problems because of which an object or a document was ignored.
    pub n_errors: usize,
    /// Problems because of which nothing was ignored.
    pub n_warnings: usize,
    /// Objects of kinds that the scheduler does not read.
    pub ignored: BTreeMap<TypeMeta, usize>,
}

impl Reader {
    /// A reader that has read nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the manifests in `bytes`; problems refer to them as `name`.
    pub fn read(&mut self, name: &str, bytes: &[u8], sink: &mut dyn Sink) {
        if dump::is_dump(bytes) {
            return self.read_dump(name, bytes, sink);
        }
        let bytes = source::decode(bytes);
        let mut source_reader =
            SourceReader { reader: self, source: name.into(), sink, n_problems: 0 };
        let mut is_empty = true;
        pool::read_documents(name, &bytes, &mut |event| {
            is_empty = false;
            source_reader.handle(event);
        });
        if is_empty {
            source_reader.report(Diagnostic::of_source(
                Severity::Warning,
                name,
                "contains no objects",
            ));
        }
        source_reader.finish();
    }

    fn read_dump(&mut self, name: &str, bytes: &[u8], sink: &mut dyn Sink) {
        match dump::read(bytes) {
            Ok(dump) => {
                self.summary.n_objects += dump.store.len();
                sink.dump(dump);
            }
            Err(DumpError { line, problem }) => {
                let problem = Problem { line, column: 1, path: String::new(), message: problem };
                self.summary.count(Severity::Error);
                sink.problem(Diagnostic::unplaced(Severity::Error, name, problem));
            }
        }
    }

    /// Reads sources one after the other.
    pub fn read_sources(&mut self, sources: &[Source], sink: &mut dyn Sink) {
        for source in sources {
            let name = source.to_string();
            match source.load() {
                Ok(bytes) => self.read(&name, &bytes, sink),
                Err(error) => {
                    self.summary.count(Severity::Error);
                    sink.problem(source::unreadable(&name, &error));
                }
            }
        }
    }

    /// Totals over all sources.
    pub fn into_summary(self) -> Summary {
        self.summary
    }
}

/// Handles the objects and problems of one source.
struct SourceReader<'r> {
    reader: &'r mut Reader,
    source: Arc<str>,
    sink: &'r mut dyn Sink,
    n_problems: usize,
}

impl SourceReader<'_> {
    fn handle(&mut self, event: ItemEvent<'_>) {
        match event {
            ItemEvent::Object(object, place) => self.handle_object(object, &place),
            ItemEvent::Problem(diagnostic) => self.report(diagnostic),
            ItemEvent::UnshownProblem => self.count(Severity::Error),
            ItemEvent::UnknownField(kind, diagnostic) => {
                let field = diagnostic.field.as_deref().unwrap_or_default();
                if self.reader.unknown_fields.insert((kind, without_positions(field))) {
                    self.report(diagnostic);
                }
            }
            ItemEvent::Ignored(type_meta) => {
                *self.reader.summary.ignored.entry(type_meta).or_default() += 1;
            }
            ItemEvent::Nothing => {}
        }
    }

    fn handle_object(&mut self, object: Object, place: &Place<'_>) {
        let mut key = object.key();
        if object.kind().is_namespaced() && key.namespace.is_empty() {
            key.namespace = defaults::NAMESPACE.into();
        }
        let identity = (object.kind(), object.served(), key);
        if let Some(Definition { source, line }) = self.reader.seen.get(&identity) {
            let message = format!("is already defined at {source}:{line}");
            let name = format!("{} {}", identity.0, identity.2);
            return self.report(place.diagnostic(Severity::Error, Some(name), message));
        }
        match self.sink.object(object, place) {
            Ok(()) => {
                self.reader.summary.n_objects += 1;
                let definition =
                    Definition { source: Arc::clone(&self.source), line: place.line() };
                self.reader.seen.insert(identity, definition);
            }
            // Finding the field would parse the object again.
            Err(_) if self.n_problems >= MAX_PROBLEMS => self.count(Severity::Error),
            Err(error) => self.report(place.diagnose(&error)),
        }
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.count(diagnostic.severity);
        if self.n_problems <= MAX_PROBLEMS {
            self.sink.problem(diagnostic);
        }
    }

    fn count(&mut self, severity: Severity) {
        self.n_problems += 1;
        self.reader.summary.count(severity);
    }

    fn finish(self) {
        if let Some(n_unshown @ 1..) = self.n_problems.checked_sub(MAX_PROBLEMS) {
            let message = format!("{n_unshown} more problems are not shown");
            self.sink.problem(Diagnostic::of_source(Severity::Error, &*self.source, message));
        }
    }
}

impl Summary {
    fn count(&mut self, severity: Severity) {
        match severity {
            Severity::Error => self.n_errors += 1,
            Severity::Warning => self.n_warnings += 1,
        }
    }
}

/// `spec.containers[0].name` as `spec.containers[].name`.
fn without_positions(path: &str) -> String {
    let mut inside = false;
    let outside = path.chars().filter(|letter| {
        inside = (inside || *letter == '[') && *letter != ']';
        !inside || *letter == '['
    });
    outside.collect()
}

impl fmt::Display for Summary {
    /// One line: `3 objects, 1 error; ignored: 2 v1 ConfigMap`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: usize, noun: &str| {
            format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
        };
        f.write_str(&counted(self.n_objects, "object"))?;
        for (count, noun) in [(self.n_errors, "error"), (self.n_warnings, "warning")] {
            if count > 0 {
                write!(f, ", {}", counted(count, noun))?;
            }
        }
        for (at, (type_meta, count)) in self.ignored.iter().enumerate() {
            let before = if at == 0 { "; ignored: " } else { ", " };
            write!(f, "{before}{count} {type_meta}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_compared_without_positions() {
        assert_eq!(
            without_positions("spec.containers[0].ports[17].x"),
            "spec.containers[].ports[].x"
        );
        assert_eq!(without_positions("spec"), "spec");
        assert_eq!(without_positions("a[b"), "a[");
    }

    #[test]
    fn a_summary_is_one_line() {
        let type_meta =
            |kind: &str| TypeMeta { api_version: "v1".to_owned(), kind: kind.to_owned() };
        let ignored = BTreeMap::from([(type_meta("Secret"), 2), (type_meta("ConfigMap"), 1)]);
        let summary = Summary { n_objects: 1, n_errors: 2, n_warnings: 1, ignored };
        assert_eq!(
            summary.to_string(),
            "1 object, 2 errors, 1 warning; ignored: 1 v1 ConfigMap, 2 v1 Secret"
        );
        assert_eq!(Summary::default().to_string(), "0 objects");
    }
}
