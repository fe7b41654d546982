//! The APIs of PodGroups and queues.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The API group and version of a PodGroup or queue.
///
/// Ordered by precedence, lowest first: if pods name several PodGroups, or if several queues have one name,
/// the scheduler uses the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum GroupVersion {
    /// `scheduling.k8s.io/v1beta1`, Kubernetes' own.
    Kubernetes,
    /// `scheduling.x-k8s.io/v1alpha1`, of scheduler-plugins.
    Coscheduling,
    /// `scheduling.volcano.sh/v1beta1`.
    Volcano,
    /// `scheduling.incubator.k8s.io/v1alpha1`.
    V1Alpha1,
    /// `scheduling.sigs.dev/v1alpha2`.
    V1Alpha2,
}

impl GroupVersion {
    /// All versions, in order of precedence.
    pub const ALL: [Self; 5] =
        [Self::Kubernetes, Self::Coscheduling, Self::Volcano, Self::V1Alpha1, Self::V1Alpha2];
    /// The versions whose kinds this project defines.
    pub const OWN: [Self; 2] = [Self::V1Alpha1, Self::V1Alpha2];

    /// The API group, the version inside it, and how pods name its PodGroups.
    const fn parts(self) -> (&'static str, &'static str, Join) {
        match self {
            Self::Kubernetes => ("scheduling.k8s.io", "v1beta1", Join::SchedulingGroup),
            Self::Coscheduling => ("scheduling.x-k8s.io", "v1alpha1", Join::Label),
            Self::Volcano => ("scheduling.volcano.sh", "v1beta1", Join::Annotation),
            Self::V1Alpha1 => ("scheduling.incubator.k8s.io", "v1alpha1", Join::Annotation),
            Self::V1Alpha2 => ("scheduling.sigs.dev", "v1alpha2", Join::Annotation),
        }
    }

    /// The API group.
    pub const fn group(self) -> &'static str {
        self.parts().0
    }

    /// The version inside the group.
    pub const fn version(self) -> &'static str {
        self.parts().1
    }

    /// How pods name its PodGroups.
    pub const fn join(self) -> Join {
        self.parts().2
    }

    /// Whether this project defines its kinds.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::V1Alpha1 | Self::V1Alpha2)
    }

    /// Parses the `apiVersion` of an object.
    pub fn parse(api_version: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.to_string() == api_version)
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group(), self.version())
    }
}

/// How pods name a PodGroup. PodGroups with the same name that pods name in the same way are one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Join {
    /// In the field `spec.schedulingGroup`.
    SchedulingGroup,
    /// In the label of scheduler-plugins.
    Label,
    /// In an annotation.
    Annotation,
}

/// A set of APIs: those that the cluster serves, or those of them that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedApis(u8);

impl ServedApis {
    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether an API is served.
    pub const fn has(self, version: GroupVersion) -> bool {
        self.0 & (1 << version as u8) != 0
    }

    /// Records whether an API is served. Returns whether that has changed.
    pub const fn set(&mut self, version: GroupVersion, is_served: bool) -> bool {
        let has_changed = self.has(version) != is_served;
        if has_changed {
            self.0 ^= 1 << version as u8;
        }
        has_changed
    }
}
