//! What is known of the versions of one kind: what its watch has shown, and what answers of the API
//! server have shown beyond it.
//!
//! A watch shows every change of a kind in the order of its versions, but late. The answer to a write
//! shows one object, possibly before the watch does, and possibly long after: then it is outdated. So
//! an answer counts only if its version is higher than every version that the watch has shown. With
//! this rule a late answer can neither restore a deleted object nor undo a change.
//!
//! The API server compares versions of one kind as numbers, and permits clients to do so (KEP-5504).

use std::collections::BTreeMap;

use kube_batch_model::name::{Name, ObjectKey};

/// A resource version. Versions of one kind are in the order in which they were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u64);

impl Version {
    /// From text; `None` if it is no number.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// One version of an object. Objects without namespace have the empty one.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectVersion<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid, if it has one.
    pub uid: Option<&'a str>,
    /// Its version; `None` if it has none, or one that is no number.
    pub version: Option<Version>,
}

impl ObjectVersion<'_> {
    fn key(self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.into(), name: self.name.into() }
    }
}

/// The versions of one kind. Objects without namespace have the empty one.
///
/// Each method that takes an object returns whether it is to be stored or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Everything up to this version was shown by the watch.
    seen: Version,
    /// Objects that answers have shown in a version that the watch has not reached.
    ahead: BTreeMap<ObjectKey, Version>,
    /// Objects that the API server no longer has, by their uid, and whose deletion the watch has not
    /// shown yet.
    gone: BTreeMap<ObjectKey, Name>,
}

impl History {
    /// The version up to which the watch has shown everything.
    pub const fn seen(&self) -> Version {
        self.seen
    }

    /// An object of a list that is being received.
    pub fn listed(&self, object: ObjectVersion<'_>) -> bool {
        if self.is_plain() {
            return true;
        }
        let key = object.key();
        let ahead = self.ahead.get(&key);
        let is_outdated = ahead.zip(object.version).is_some_and(|(ahead, v)| v < *ahead);
        !is_outdated && !self.is_gone(&key, object)
    }

    /// An object that the watch shows as added or modified.
    pub fn shown(&mut self, object: ObjectVersion<'_>) -> bool {
        let is_current = self.listed(object);
        self.catch_up(object);
        is_current
    }

    /// An object that the watch shows as deleted.
    pub fn deleted(&mut self, object: ObjectVersion<'_>) -> bool {
        if self.is_plain() {
            self.catch_up(object);
            return true;
        }
        let key = object.key();
        // An answer may have shown the next object of that name already.
        let ahead = self.ahead.get(&key);
        let is_outdated = ahead.zip(object.version).is_some_and(|(ahead, v)| v < *ahead);
        if self.is_gone(&key, object) {
            self.gone.remove(&key);
        }
        self.catch_up(object);
        !is_outdated
    }

    /// An object with which the API server answered.
    pub fn answered(&mut self, object: ObjectVersion<'_>) -> bool {
        let Some(version) = object.version else { return true };
        if version <= self.seen {
            return false;
        }
        let key = object.key();
        let known = self.ahead.get(&key).copied().unwrap_or_default();
        let is_news = version > known && !self.is_gone(&key, object);
        if is_news {
            self.ahead.insert(key, version);
        }
        is_news
    }

    /// The API server answered that it has no object of this name, or another one: the object with
    /// this uid is deleted.
    pub fn gone(&mut self, key: &ObjectKey, uid: &Name) {
        self.ahead.remove(key);
        self.gone.insert(key.clone(), uid.clone());
    }

    /// The watch shows that nothing else has changed up to this version.
    pub fn reached(&mut self, version: Version) {
        self.seen = self.seen.max(version);
    }

    /// Objects that exist although a complete list of this version does not have them: they are newer.
    pub fn newer_than(&self, list: Version) -> impl Iterator<Item = &ObjectKey> {
        self.ahead.iter().filter(move |(_, ahead)| **ahead > list).map(|(key, _)| key)
    }

    /// A complete list of this version was received, in which an object exists if `is_listed`.
    pub fn end_of_list(&mut self, list: Version, is_listed: impl Fn(&ObjectKey) -> bool) {
        self.gone.retain(|key, _| is_listed(key));
        self.ahead.retain(|_, ahead| *ahead > list);
        self.reached(list);
    }

    /// Whether the watch has shown everything that answers have.
    fn is_plain(&self) -> bool {
        self.ahead.is_empty() && self.gone.is_empty()
    }

    fn catch_up(&mut self, object: ObjectVersion<'_>) {
        let Some(version) = object.version else { return };
        self.reached(version);
        if !self.ahead.is_empty() {
            let key = object.key();
            if self.ahead.get(&key).is_some_and(|ahead| *ahead <= version) {
                self.ahead.remove(&key);
            }
        }
    }

    fn is_gone(&self, key: &ObjectKey, object: ObjectVersion<'_>) -> bool {
        let gone = self.gone.get(key);
        gone.is_some_and(|uid| object.uid == Some(&**uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ObjectKey {
        ObjectKey::new("ns", "p")
    }

    fn object(uid: &str, version: u64) -> ObjectVersion<'_> {
        ObjectVersion {
            namespace: "ns",
            name: "p",
            uid: Some(uid),
            version: Some(Version(version)),
        }
    }

    fn history(seen: u64) -> History {
        let mut history = History::default();
        history.reached(Version(seen));
        history
    }

    #[test]
    fn a_late_answer_is_ignored() {
        let mut history = history(10);
        assert!(history.deleted(object("u", 12)));
        for version in [9, 11, 12] {
            assert!(!history.answered(object("u", version)), "{version}");
        }
        assert!(history.answered(object("v", 13)), "the next object of that name");
    }

    #[test]
    fn what_an_answer_showed_is_not_undone_by_the_watch() {
        let mut history = history(10);
        assert!(history.answered(object("u", 15)));
        assert!(!history.answered(object("u", 14)), "answers may be out of order");
        assert!(!history.shown(object("u", 12)));
        assert!(!history.deleted(object("t", 13)), "an object of that name before");
        assert!(history.shown(object("u", 15)));
        assert!(history.deleted(object("u", 16)));
        assert_eq!(history.seen(), Version(16));
        assert!(history.ahead.is_empty());
    }

    #[test]
    fn a_deletion_that_was_read_is_final() {
        let mut history = history(10);
        history.gone(&key(), &"u".into());
        assert!(!history.shown(object("u", 11)), "the watch is behind");
        assert!(!history.answered(object("u", 12)));
        assert!(!history.listed(object("u", 11)));
        assert!(history.shown(object("v", 14)), "the next object of that name");
        assert!(history.deleted(object("u", 13)));
        assert!(history.gone.is_empty());
    }

    #[test]
    fn an_object_that_a_list_does_not_have_yet_is_kept() {
        let mut history = history(10);
        assert!(history.answered(object("u", 21)));
        assert_eq!(history.newer_than(Version(20)).collect::<Vec<_>>(), [&key()]);
        assert_eq!(history.newer_than(Version(21)).count(), 0);
        history.end_of_list(Version(20), |_| false);
        assert!(!history.shown(object("u", 20)));
        history.end_of_list(Version(22), |_| false);
        assert_eq!(history, self::history(22));
    }

    #[test]
    fn an_object_without_version_is_always_stored() {
        let mut history = history(10);
        let unknown = ObjectVersion { version: Version::parse("x"), ..object("u", 0) };
        assert!(history.answered(unknown) && history.shown(unknown));
        assert!(history.deleted(unknown));
        assert_eq!(history, self::history(10));
    }
}
