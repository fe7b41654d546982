//! Manifests: from the bytes of files to typed objects, with a [`Diagnostic`] for whatever is wrong.
//!
//! A [`Reader`] takes YAML (one or many documents) and JSON (a value, an array, or values one after
//! the other), opens every kind of list and every [`Dump`], and hands objects to a [`Sink`] one at a time in the order
//! of the text; a file is never held as a tree. One wrong object costs that object, one broken
//! document that document. Kinds that scheduling does not look at are counted ([`Summary`]).
//!
//! It does not fill in defaults ([`crate::defaults`]), and it does not know what becomes of the
//! objects: the sink says what it cannot use, and the reader finds the line.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use kube_batch_api::{facts::FactError, name::ObjectKey};
use kube_batch_yaml::{MAX_PROBLEMS, Problem};

use crate::{
    defaults,
    diagnostic::{Diagnostic, Severity},
    dump::{self, Dump, DumpError},
    item::Event,
    object::{Kind, Object, Served, TypeMeta},
    place::Place,
    pool,
    source::{self, Source},
};

/// Takes what a [`Reader`] reads.
pub trait Sink {
    /// Takes an object that was read at `place`.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the object cannot be used: the reader makes it a problem with its line.
    fn object(&mut self, object: Object, place: &Place<'_>) -> Result<(), FactError>;

    /// Takes what a dump holds, if a source is one.
    fn dump(&mut self, dump: Dump);

    /// Takes note of a problem.
    fn problem(&mut self, diagnostic: Diagnostic);
}

/// Reads manifests, and remembers across sources which objects there were.
#[derive(Debug, Default)]
pub struct Reader {
    seen: HashMap<Identity, Definition>,
    /// Fields that do not exist and have been told of, by kind and path without positions.
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

/// What was read in all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Objects that the sink took.
    pub n_objects: usize,
    /// Problems that cost an object or a document.
    pub n_errors: usize,
    /// Problems that cost nothing.
    pub n_warnings: usize,
    /// Objects of kinds that scheduling does not look at.
    pub not_needed: BTreeMap<TypeMeta, usize>,
}

impl Reader {
    /// A reader that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the manifests in `bytes`; `name` is what problems call them.
    pub fn read(&mut self, name: &str, bytes: &[u8], sink: &mut dyn Sink) {
        if dump::is_dump(bytes) {
            return self.read_dump(name, bytes, sink);
        }
        let bytes = source::decode(bytes);
        let mut taker = Taker { reader: self, source: name.into(), sink, n_problems: 0 };
        let mut is_empty = true;
        pool::read_documents(name, &bytes, &mut |event| {
            is_empty = false;
            taker.take(event);
        });
        if is_empty {
            taker.note(Diagnostic::of_source(Severity::Warning, name, "holds no objects"));
        }
        taker.finish();
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

    /// What was read in all.
    pub fn into_summary(self) -> Summary {
        self.summary
    }
}

/// Takes what comes out of one source.
struct Taker<'r> {
    reader: &'r mut Reader,
    source: Arc<str>,
    sink: &'r mut dyn Sink,
    n_problems: usize,
}

impl Taker<'_> {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Object(object, place) => self.take_object(object, &place),
            Event::Problem(diagnostic) => self.note(diagnostic),
            Event::OneMore => self.count(Severity::Error),
            Event::UnknownField(kind, diagnostic) => {
                let field = diagnostic.field.as_deref().unwrap_or_default();
                if self.reader.unknown_fields.insert((kind, without_positions(field))) {
                    self.note(diagnostic);
                }
            }
            Event::NotNeeded(type_meta) => {
                *self.reader.summary.not_needed.entry(type_meta).or_default() += 1;
            }
            Event::Nothing => {}
        }
    }

    fn take_object(&mut self, object: Object, place: &Place<'_>) {
        let mut key = object.key();
        if object.kind().is_namespaced() && key.namespace.is_empty() {
            key.namespace = defaults::NAMESPACE.into();
        }
        let identity = (object.kind(), object.served(), key);
        if let Some(Definition { source, line }) = self.reader.seen.get(&identity) {
            let message = format!("is already defined at {source}:{line}");
            let name = format!("{} {}", identity.0, identity.2);
            return self.note(place.diagnostic(Severity::Error, Some(name), message));
        }
        match self.sink.object(object, place) {
            Ok(()) => {
                self.reader.summary.n_objects += 1;
                let definition =
                    Definition { source: Arc::clone(&self.source), line: place.line() };
                self.reader.seen.insert(identity, definition);
            }
            // To find the field costs a second look at the object.
            Err(_) if self.n_problems >= MAX_PROBLEMS => self.count(Severity::Error),
            Err(error) => self.note(place.diagnose(&error)),
        }
    }

    fn note(&mut self, diagnostic: Diagnostic) {
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
    /// One line: `3 objects, 1 error; not needed: 2 v1 ConfigMap`.
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
        for (at, (type_meta, count)) in self.not_needed.iter().enumerate() {
            let before = if at == 0 { "; not needed: " } else { ", " };
            write!(f, "{before}{count} {type_meta}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_equal_but_for_their_positions() {
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
        let not_needed = BTreeMap::from([(type_meta("Secret"), 2), (type_meta("ConfigMap"), 1)]);
        let summary = Summary { n_objects: 1, n_errors: 2, n_warnings: 1, not_needed };
        assert_eq!(
            summary.to_string(),
            "1 object, 2 errors, 1 warning; not needed: 1 v1 ConfigMap, 2 v1 Secret"
        );
        assert_eq!(Summary::default().to_string(), "0 objects");
    }
}
