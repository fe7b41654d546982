//! Names and identities of objects outside a cycle.

use std::{
    borrow::Borrow,
    cmp::Ordering,
    collections::HashSet,
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{group_version::Join, shards::Shards};

/// A cheap-to-clone piece of text: an object's name, a label key, a uid.
#[derive(Clone, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        // Most names are shared, and the texts not in the processor's cache.
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether something else has the same allocation.
    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl Default for Name {
    fn default() -> Self {
        Self::from("")
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Compares names byte by byte, except that the numbers in them are compared as numbers: `p-2` is
/// before `p-10`. Equal numbers are compared as text, so only equal names are equal.
pub fn natural_order(l: &str, r: &str) -> Ordering {
    let (l, r) = (l.as_bytes(), r.as_bytes());
    let n_same = l.iter().zip(r).take_while(|(l, r)| l == r).count();
    // The first difference may be inside a number, which begins before it.
    let before = l[..n_same].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (l, r) = (&l[n_same - before..], &r[n_same - before..]);
    let (l_number, r_number) = (leading_number(l), leading_number(r));
    if l_number.is_empty() || r_number.is_empty() {
        return l.cmp(r);
    }
    by_value(l_number, r_number).then_with(|| l_number.cmp(r_number)).then_with(|| l.cmp(r))
}

fn leading_number(text: &[u8]) -> &[u8] {
    &text[..text.iter().take_while(|byte| byte.is_ascii_digit()).count()]
}

/// Compares numbers of any length: of two without leading zeros, the longer one is larger.
fn by_value(l: &[u8], r: &[u8]) -> Ordering {
    let (l, r) = (without_zeros(l), without_zeros(r));
    l.len().cmp(&r.len()).then_with(|| l.cmp(r))
}

fn without_zeros(digits: &[u8]) -> &[u8] {
    &digits[digits.iter().take_while(|digit| **digit == b'0').count()..]
}

/// Whether a text can be the name of an object: a DNS subdomain (RFC 1123), as most kinds require.
pub fn is_dns_subdomain(text: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(is_inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Gives equal texts one allocation.
#[derive(Clone, Debug, Default)]
pub struct Names(Shards<HashSet<Name>>);

/// The longest text that is shared, in bytes: namespace, separator and name of an object.
const MAX_SHARED: usize = 63 + 1 + 253;

impl Names {
    /// The one [`Name`] of a text. One that is too long to be a name is not shared: what is not kept would stay here
    /// until the next sweep.
    pub fn intern(&mut self, text: &str) -> Name {
        if text.len() > MAX_SHARED {
            return Name::from(text);
        }
        let shard = self.0.of(text);
        if let Some(name) = shard.get(text) {
            return name.clone();
        }
        let name = Name::from(text);
        shard.insert(name.clone());
        name
    }

    #[cfg(test)]
    pub(crate) fn len(&mut self) -> usize {
        self.0.all().map(|shard| shard.len()).sum()
    }

    /// Frees the texts that nothing else uses any more.
    pub fn sweep(&mut self) {
        self.0.all().for_each(|shard| shard.retain(Name::is_shared));
    }

    /// Frees a part of the texts that nothing else uses any more, another one with each call.
    pub fn sweep_some(&mut self) {
        self.0.next().retain(Name::is_shared);
    }
}

/// Namespace and name of an object; orders by namespace, then name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace, empty for cluster-scoped objects.
    pub namespace: Name,
    /// The name.
    pub name: Name,
}

impl ObjectKey {
    /// The key of `namespace/name`.
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Reads `namespace/name`, or a bare name as a cluster-scoped object.
    pub fn parse(text: &str) -> Self {
        match text.split_once('/') {
            Some((namespace, name)) => Self::new(namespace, name),
            None => Self::new("", text),
        }
    }
}

impl Serialize for ObjectKey {
    /// As one text, `namespace/name`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::parse(&String::deserialize(deserializer)?))
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The identity of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobKey {
    /// The PodGroup of this namespace and name that pods name in this way.
    Group(Join, ObjectKey),
    /// Pods without a group that share a controller.
    Shadow {
        /// Namespace and name of the controller.
        owner: ObjectKey,
        /// Uid of the controller.
        uid: Name,
    },
    /// A pod without a group and without a controller.
    Pod {
        /// Namespace and name of the pod.
        pod: ObjectKey,
        /// Uid of the pod.
        uid: Name,
    },
}

impl JobKey {
    /// The job of the PodGroup that pods name in the annotation.
    pub const fn annotated(group: ObjectKey) -> Self {
        Self::Group(Join::Annotation, group)
    }

    /// Namespace and name, as messages and reports show it.
    pub const fn object(&self) -> &ObjectKey {
        match self {
            Self::Group(_, key) => key,
            Self::Shadow { owner, .. } => owner,
            Self::Pod { pod, .. } => pod,
        }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.object().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A part of a name: a number with its digits, or another character.
    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Part {
        Below(u8),
        Number(u64, String),
        Above(u8),
    }

    fn parts(name: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut rest = name;
        while let Some(first) = rest.bytes().next() {
            let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (part, after) = rest.split_at(n_digits.max(1));
            parts.push(match part.parse() {
                Ok(number) => Part::Number(number, part.to_owned()),
                Err(_) if first < b'0' => Part::Below(first),
                Err(_) => Part::Above(first),
            });
            rest = after;
        }
        parts
    }

    #[test]
    fn numbers_in_names_are_compared_as_numbers() {
        let names =
            ["p", "p-1", "p-01-x", "p-2", "p-2-0", "p-10", "p-10-9", "p-10-10", "p-100", "pa"];
        let mut sorted = names;
        sorted.reverse();
        sorted.sort_by(|l, r| natural_order(l, r));
        // Of equal numbers, the text decides.
        let expected =
            ["p", "p-01-x", "p-1", "p-2", "p-2-0", "p-10", "p-10-9", "p-10-10", "p-100", "pa"];
        assert_eq!(sorted, expected);
    }

    proptest! {
        #[test]
        fn the_natural_order_compares_names_part_by_part(
            l in "[-a.019]{0,8}",
            r in "[-a.019]{0,8}",
        ) {
            prop_assert_eq!(natural_order(&l, &r), parts(&l).cmp(&parts(&r)), "{} {}", l, r);
        }
    }
}
