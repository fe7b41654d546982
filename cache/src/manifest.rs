//! Manifests: from the bytes of files to typed objects, with a [`Diagnostic`] for whatever is wrong.
//!
//! A [`Reader`] takes YAML (one or many documents) and JSON (a value, an array, or values one after
//! the other), opens every kind of list, and hands objects to a [`Sink`] one at a time in the order
//! of the text; a file is never held as a tree. One wrong object costs that object, one broken
//! document that document. Kinds that scheduling does not look at are counted ([`Summary`]).
//!
//! It does not fill in defaults ([`crate::defaults`]), and it does not know what becomes of the
//! objects: the sink says what it cannot use, and the reader finds the line.

mod diagnostic;
mod item;
mod place;
mod pool;
mod render;
mod source;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

use kube_batch_api::{facts::FactError, name::ObjectKey, yaml::documents};

use self::item::Event;
pub use self::{
    diagnostic::{Diagnostic, Excerpt, Severity},
    place::Place,
    render::{Paint, render},
    source::{Source, collect_sources},
};
use crate::{
    defaults,
    object::{Kind, Object, Served, TypeMeta},
};

/// Takes what a [`Reader`] reads.
pub trait Sink {
    /// Takes an object that was read at `place`.
    ///
    /// # Errors
    ///
    /// [`FactError`] if the object cannot be used: the reader makes it a problem with its line.
    fn object(&mut self, object: Object, place: &Place<'_>) -> Result<(), FactError>;

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
        let bytes = source::decode(bytes);
        let documents: Vec<_> = documents(&bytes).collect();
        let source: Arc<str> = name.into();
        let mut is_empty = true;
        pool::read_documents(name, &documents, &mut |event| {
            is_empty = false;
            self.take(event, &source, sink);
        });
        if is_empty {
            self.note(Diagnostic::of_source(Severity::Warning, name, "holds no objects"), sink);
        }
    }

    /// Reads sources one after the other.
    pub fn read_sources(&mut self, sources: &[Source], sink: &mut dyn Sink) {
        for source in sources {
            let name = source.to_string();
            match source.load() {
                Ok(bytes) => self.read(&name, &bytes, sink),
                Err(error) => self.note(source::unreadable(&name, &error), sink),
            }
        }
    }

    /// What was read in all.
    pub fn into_summary(self) -> Summary {
        self.summary
    }

    fn take(&mut self, event: Event<'_>, source: &Arc<str>, sink: &mut dyn Sink) {
        match event {
            Event::Object(object, place) => self.take_object(object, &place, source, sink),
            Event::Problem(diagnostic) => self.note(diagnostic, sink),
            Event::UnknownField(kind, diagnostic) => {
                let field = diagnostic.field.as_deref().unwrap_or_default();
                if self.unknown_fields.insert((kind, without_positions(field))) {
                    self.note(diagnostic, sink);
                }
            }
            Event::NotNeeded(type_meta) => {
                *self.summary.not_needed.entry(type_meta).or_default() += 1;
            }
            Event::Nothing => {}
        }
    }

    fn take_object(
        &mut self,
        object: Object,
        place: &Place<'_>,
        source: &Arc<str>,
        sink: &mut dyn Sink,
    ) {
        let mut key = object.key();
        if object.kind().is_namespaced() && key.namespace.is_empty() {
            key.namespace = defaults::NAMESPACE.into();
        }
        let identity = (object.kind(), object.served(), key);
        if let Some(Definition { source, line }) = self.seen.get(&identity) {
            let message = format!("is already defined at {source}:{line}");
            let name = format!("{} {}", identity.0, identity.2);
            let diagnostic = place.diagnostic(Severity::Error, Some(name), message);
            return self.note(diagnostic, sink);
        }
        match sink.object(object, place) {
            Ok(()) => {
                self.summary.n_objects += 1;
                let definition = Definition { source: Arc::clone(source), line: place.line() };
                self.seen.insert(identity, definition);
            }
            Err(error) => self.note(place.diagnose(&error), sink),
        }
    }

    fn note(&mut self, diagnostic: Diagnostic, sink: &mut dyn Sink) {
        match diagnostic.severity {
            Severity::Error => self.summary.n_errors += 1,
            Severity::Warning => self.summary.n_warnings += 1,
        }
        sink.problem(diagnostic);
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
