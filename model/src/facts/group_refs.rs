//! The PodGroups that a pod names.

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use crate::{
    api_version::{ApiVersion, Join, ServedApis},
    membership::named_groups,
    name::{Name, Names, is_dns_subdomain},
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
    pub only_with: Option<ApiVersion>,
}

/// The PodGroups that a pod names, in order of precedence. Most pods name at most one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct GroupRefs(SmallVec<[GroupRef; 1]>);

impl GroupRefs {
    /// Reads them from a pod.
    ///
    /// # Errors
    ///
    /// The field that has no valid name.
    pub(super) fn of(pod: &Pod, names: &mut Names) -> Result<Self, &'static str> {
        let mut refs = SmallVec::new();
        for (field, name) in named_groups(&pod.metadata, pod.spec.as_ref()) {
            if !is_dns_subdomain(name) {
                return Err(field.name);
            }
            let only_with = field.only_if_served.then_some(field.version);
            refs.push(GroupRef { join: field.version.join(), name: names.intern(name), only_with });
        }
        Ok(Self(refs))
    }

    /// Returns the PodGroup that the pod belongs to.
    pub fn first(&self, served: ServedApis) -> Option<&GroupRef> {
        let is_active = |only_with: Option<ApiVersion>| only_with.is_none_or(|v| served.has(v));
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
