//! Objects that arrive while the simulation runs.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_batch_manifest::{
    defaults::NAMESPACE,
    object::{Kind, Object},
};
use kube_batch_model::{
    duration,
    facts::FactError,
    name::{Name, ObjectKey},
};

/// Annotation of an object that is created while the simulation runs: the time since its beginning, in seconds or as a
/// duration such as `1m30s`, or a time such as `2025-01-01T09:00:00Z`.
pub const ARRIVAL_ANNOTATION: &str = "kube-batch.sim/arrives-at";

/// When an object arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArrivalTime {
    After(SignedDuration),
    At(Timestamp),
}

impl ArrivalTime {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        let after = duration::parse_or_seconds(text).map_err(|problem| {
            format!("\"{text}\" is neither a time nor a duration since the beginning: {problem}")
        })?;
        Ok(Self::After(SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX)))
    }

    /// A time beyond the calendar is never.
    fn from(self, start: Timestamp) -> Timestamp {
        match self {
            Self::After(after) => start.checked_add(after).unwrap_or(Timestamp::MAX),
            Self::At(at) => at,
        }
    }
}

/// An object that was read.
pub(crate) enum Announced {
    /// It is there when the simulation begins.
    Now(Object),
    /// A copy of one that is kept until it arrives.
    Later(Object),
}

/// Objects that arrive later.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Before the simulation begins.
    announced: Vec<(ArrivalTime, Object)>,
    /// The next one last.
    coming: Vec<(Timestamp, Object)>,
    /// Their kinds and names.
    names: BTreeSet<(Kind, ObjectKey)>,
    has_begun: bool,
}

impl Arrivals {
    /// Keeps an object that arrives later.
    ///
    /// # Errors
    ///
    /// [`FactError`] if its annotation is no time.
    pub(crate) fn announce(&mut self, mut object: Object) -> Result<Announced, FactError> {
        if self.has_begun {
            return Ok(Announced::Now(object));
        }
        let annotations = |meta: &ObjectMeta| {
            meta.annotations.as_ref().and_then(|all| all.get(ARRIVAL_ANNOTATION)).cloned()
        };
        let Some(text) = annotations(object.meta()) else { return Ok(Announced::Now(object)) };
        let at = ArrivalTime::parse(&text).map_err(|problem| {
            let field = format!("metadata.annotations[{ARRIVAL_ANNOTATION}]");
            FactError::new(format!("{} {}", object.kind(), object.key()), field, problem)
        })?;
        object.meta_mut().creation_timestamp = None;
        let mut key = object.key();
        if object.kind().is_namespaced() && key.namespace.is_empty() {
            key.namespace = Name::from(NAMESPACE);
        }
        self.names.insert((object.kind(), key));
        self.announced.push((at, object.clone()));
        Ok(Announced::Later(object))
    }

    /// Whether an object of this kind and name arrives later.
    pub(crate) fn expects(&self, kind: Kind, key: &ObjectKey) -> bool {
        self.names.contains(&(kind, key.clone()))
    }

    /// Whether any object arrives later.
    pub(crate) const fn is_empty(&self) -> bool {
        self.announced.is_empty() && self.coming.is_empty()
    }

    /// The simulation begins.
    pub(crate) fn begin(&mut self, start: Timestamp) {
        self.has_begun = true;
        let announced = std::mem::take(&mut self.announced).into_iter();
        self.coming = announced.map(|(at, object)| (at.from(start), object)).collect();
        // Those of one time arrive in the order of the input.
        self.coming.reverse();
        self.coming.sort_by(|(l, _), (r, _)| r.cmp(l));
    }

    /// When the next object arrives.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.coming.last().map(|(at, _)| *at)
    }

    /// The next object that has arrived by now.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Object> {
        self.coming.pop_if(|(at, _)| *at <= now).map(|(_, object)| object)
    }
}
