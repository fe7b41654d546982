//! The PodGroups that a pod names.

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use crate::{
    group_version::{GroupVersion, Join, ServedApis},
    name::Name,
};

/// A PodGroup that a pod names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRef {
    /// How the pod names it.
    pub join: Join,
    /// The name; the namespace is that of the pod.
    pub name: Name,
    /// The API without which this name is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_with: Option<GroupVersion>,
}

/// The PodGroups that a pod names, in order of precedence. Most pods name at most one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct GroupRefs(SmallVec<[GroupRef; 1]>);

impl FromIterator<GroupRef> for GroupRefs {
    fn from_iter<I: IntoIterator<Item = GroupRef>>(refs: I) -> Self {
        Self(refs.into_iter().collect())
    }
}

impl GroupRefs {
    /// Returns the PodGroup that the pod belongs to.
    pub fn first(&self, served: ServedApis) -> Option<&GroupRef> {
        let is_active = |only_with: Option<GroupVersion>| only_with.is_none_or(|v| served.has(v));
        self.0.iter().find(|group| is_active(group.only_with))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The format in dumps: only the name, if the pod has just the annotation, as in earlier versions.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Annotation(Option<Name>),
    All(Vec<GroupRef>),
}

impl From<Stored> for GroupRefs {
    fn from(stored: Stored) -> Self {
        let join = Join::Annotation;
        match stored {
            Stored::Annotation(None) => Self::default(),
            Stored::Annotation(Some(name)) => {
                Self(smallvec![GroupRef { join, name, only_with: None }])
            }
            Stored::All(refs) => Self(refs.into()),
        }
    }
}

impl From<GroupRefs> for Stored {
    fn from(refs: GroupRefs) -> Self {
        match &*refs.0 {
            [] => Self::Annotation(None),
            [GroupRef { join: Join::Annotation, name, only_with: None }] => {
                Self::Annotation(Some(name.clone()))
            }
            all => Self::All(all.to_vec()),
        }
    }
}
