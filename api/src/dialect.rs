//! Dialects: the kinds of PodGroups that users and controllers create, one file each.
//!
//! A dialect says which objects are watched, as what facts they are read, and what is written to their
//! status. The rest of the scheduler knows facts only: [`GroupFacts`] and [`QueueFacts`].
//! To add one, write its file, and name it in [`ApiVersion`], [`ApiVersion::spec`] and [`with_version`].
//!
//! A dialect whose API the cluster does not serve has no effect.
//!
//! [`with_version`]: crate::with_version

mod coscheduling;
pub mod kubernetes;
mod object;
mod own;
mod report;
pub mod volcano;

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::{
    object::{GroupOf, QueueOf, RawObject},
    report::{GroupReport, Phase, Transition, set_condition},
};
use crate::{
    crd::{PodGroupCondition, PodGroupStatus, QueueStatus},
    facts::{
        FactError,
        group::{GroupFacts, min_member},
        metadata::MetadataPrefixes,
        queue::QueueFacts,
    },
    name::Name,
};

/// The label or annotation that names the queue of PodGroups without such a field, of pods without a
/// PodGroup, and of namespaces.
pub const QUEUE_LABEL: &str = "scheduling.sigs.dev/queue";

/// The queue that a label, or else an annotation, names.
pub(crate) fn queue_of(meta: &ObjectMeta) -> Option<Name> {
    let named = |map: &Option<BTreeMap<String, String>>| {
        map.as_ref()?
            .get(QUEUE_LABEL)
            .filter(|name| !name.is_empty())
            .map(|name| Name::from(name.as_str()))
    };
    named(&meta.labels).or_else(|| named(&meta.annotations))
}

/// The API has no queues.
fn no_queues(object: &RawObject) -> FactError {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    FactError::new(format!("Queue {name}"), "apiVersion", "has no queues")
}

/// An object without some of its fields, which its API does not have.
fn without(mut object: Value, fields: &[&str]) -> Value {
    let map = object.as_object_mut().expect("a struct is an object");
    fields.iter().for_each(|field| drop(map.remove(*field)));
    object
}

/// Whether texts differ in nothing but numbers.
fn has_the_words_of(l: &str, r: &str) -> bool {
    let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    words(l) == words(r)
}

/// The API group and version that an object lives in.
///
/// In order of precedence: of several PodGroups that the same pods name, and of several queues of one name,
/// the last counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum ApiVersion {
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

impl ApiVersion {
    /// All, in order of precedence.
    pub const ALL: [Self; 5] =
        [Self::Kubernetes, Self::Coscheduling, Self::Volcano, Self::V1Alpha1, Self::V1Alpha2];
    /// Those whose kinds this project defines.
    pub const OWN: [Self; 2] = [Self::V1Alpha1, Self::V1Alpha2];

    /// What is specific to its objects.
    pub const fn spec(self) -> &'static DialectSpec {
        match self {
            Self::Kubernetes => &kubernetes::SPEC,
            Self::Coscheduling => &coscheduling::SPEC,
            Self::Volcano => &volcano::SPEC,
            Self::V1Alpha1 => &own::V1ALPHA1,
            Self::V1Alpha2 => &own::V1ALPHA2,
        }
    }

    /// The API group.
    pub const fn group(self) -> &'static str {
        self.spec().group
    }

    /// The version inside the group.
    pub const fn version(self) -> &'static str {
        self.spec().version
    }

    /// How pods name its PodGroups.
    pub const fn join(self) -> Join {
        self.spec().join
    }

    /// Whether this project defines its kinds.
    pub fn is_own(self) -> bool {
        Self::OWN.contains(&self)
    }

    /// How its objects are read and reported.
    pub const fn dialect(self) -> &'static dyn Dialect {
        self.spec().dialect
    }

    /// The version of an `apiVersion` text, if it is one of these.
    pub fn parse(api_version: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.to_string() == api_version)
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group(), self.version())
    }
}

/// Evaluates an expression for the version that a variable has, with the constant `$number` for its number:
/// `with_version!(version, V => Api::<GroupOf<V>>::all(client))`.
#[macro_export]
macro_rules! with_version {
    ($version:expr, $number:ident => $body:expr) => {
        $crate::with_version!(@each $version, $number => $body;
            Kubernetes Coscheduling Volcano V1Alpha1 V1Alpha2)
    };
    (@each $version:expr, $number:ident => $body:expr; $($variant:ident)*) => {
        match $version {
            $($crate::dialect::ApiVersion::$variant => {
                const $number: u8 = $crate::dialect::ApiVersion::$variant as u8;
                $body
            })*
        }
    };
}

/// How pods name a PodGroup. PodGroups of one name that pods name in the same way are one job.
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

/// The APIs that the cluster serves, as far as that matters to pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedApis(u8);

impl ServedApis {
    /// Whether this one is served.
    pub const fn has(self, version: ApiVersion) -> bool {
        self.0 & (1 << version as u8) != 0
    }

    /// Sets whether this one is served; returns whether that is news.
    pub const fn set(&mut self, version: ApiVersion, is_served: bool) -> bool {
        let is_news = self.has(version) != is_served;
        if is_news {
            self.0 ^= 1 << version as u8;
        }
        is_news
    }
}

/// A field of pods that may name a PodGroup.
pub struct MemberField {
    /// How messages call it, as in "the annotation example.com/group".
    pub name: &'static str,
    /// Its path.
    pub path: &'static str,
    /// Reads it.
    pub read: for<'a> fn(&'a ObjectMeta, Option<&'a PodSpec>) -> Option<&'a String>,
    /// Whether it counts only where the API is served: other programs may use it for something else.
    pub only_if_served: bool,
}

/// The names of PodGroups in a pod or template, with the field and the API of each. The first that counts does.
pub fn named_groups<'a>(
    meta: &'a ObjectMeta,
    spec: Option<&'a PodSpec>,
) -> impl Iterator<Item = (&'static MemberField, ApiVersion, &'a String)> {
    let versions = ApiVersion::ALL.into_iter().rev();
    let fields = versions.flat_map(|v| v.spec().members.iter().map(move |field| (field, v)));
    fields.filter_map(move |(field, version)| {
        let name = (field.read)(meta, spec).filter(|name| !name.is_empty())?;
        Some((field, version, name))
    })
}

/// What a dialect is made of.
pub struct DialectSpec {
    /// The API group.
    pub group: &'static str,
    /// The version inside the group.
    pub version: &'static str,
    /// PodGroups as RBAC and `kubectl` name them: plural and group.
    pub groups: &'static str,
    /// The same for queues; `None` if it has none.
    pub queues: Option<&'static str>,
    /// How pods name its PodGroups.
    pub join: Join,
    /// Where pods name its PodGroups; the first that a pod has counts.
    pub members: &'static [MemberField],
    /// How the status of PodGroups is written.
    pub patch: Patch,
    /// How its objects are read and reported.
    pub dialect: &'static dyn Dialect,
}

/// How the status of PodGroups is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// To the subresource, as a merge patch. Conditions are replaced as a whole, so the patch names the
    /// version that it was made for.
    Status,
    /// To the subresource, as a strategic merge patch, which merges conditions by type.
    StatusByType,
    /// To the object, as a merge patch: there is no subresource.
    Object,
}

/// How the objects of one API are read and reported.
pub trait Dialect: Sync {
    /// Reads a PodGroup.
    ///
    /// # Errors
    ///
    /// [`FactError`] if a field that the scheduler uses cannot be read: skip the object.
    fn read_group(
        &self,
        object: &RawObject,
        prefixes: &MetadataPrefixes,
    ) -> Result<GroupFacts, FactError>;

    /// Reads a queue. Called only for a dialect that has queues.
    ///
    /// # Errors
    ///
    /// [`FactError`] if a field that the scheduler uses cannot be read: skip the object.
    fn read_queue(&self, object: &RawObject) -> Result<QueueFacts, FactError>;

    /// The status of a PodGroup after a cycle. Only fields that its API has may differ from those of the
    /// stored status: a field that the API server drops would be written again and again.
    fn next_status(&self, report: &GroupReport<'_>, at: Transition<'_>) -> PodGroupStatus;

    /// Whether the status says already why the group waits.
    fn says(&self, status: &PodGroupStatus, condition: &str, message: &str) -> bool {
        let has_the_words = |own: &PodGroupCondition| has_the_words_of(&own.message, message);
        let mut conditions = status.conditions.iter().filter(|own| own.type_ == condition);
        conditions.any(|own| own.status == "True" && has_the_words(own))
    }

    /// The fields of a status that are written, as the API has them.
    fn status_value(&self, status: &PodGroupStatus) -> Value {
        json!(status)
    }

    /// The status of a queue after a cycle, given the one with all fields.
    fn next_queue_status(&self, _stored: &QueueStatus, next: QueueStatus) -> QueueStatus {
        next
    }
}
