//! PodGroup and Queue, as users write them and as the API server stores them.
//!
//! The two API groups are field for field the same, so there is one spec and one status for each
//! kind, and a thin shell around them for each group. Objects stored by kube-batch v0.5.0 are read
//! as they are, and what is written here is read by it.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
        CustomResourceDefinitionSpec, CustomResourceDefinitionVersion,
        CustomResourceSubresourceStatus, CustomResourceSubresources, CustomResourceValidation,
        JSONSchemaProps, ValidationRule,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
    },
};
use kube::core::Resource;
use kube_batch_model::{
    facts::queue::QueueOrder,
    group_version::GroupVersion,
    object_status::{PodGroupStatus, QueueStatus},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Pods that start together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    /// How many pods must be placeable together before any of them starts. 0, or no value, is
    /// always ready: pods then start one by one.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub min_member: i32,
    /// Name of the queue whose share the pods count against. The scheduler's default queue if
    /// empty.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub queue: String,
    /// Name of the PriorityClass that ranks the group among the groups of its queue. The global
    /// default class if empty, and 0 if there is none.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub priority_class_name: String,
}

/// A share of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSpec {
    /// Part of the cluster the queue deserves, relative to the weights of the other queues that
    /// want something. A queue of weight 0 deserves nothing and lives on what others leave idle.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub weight: i32,
    /// Hard limits: the queue never holds more than this of the resources named here, whatever its
    /// share. Resources that are not named are not limited.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "resource_list_schema")]
    pub capability: BTreeMap<String, Quantity>,
    /// The queue above this one. What that deserves is divided among the queues below it, and only queues
    /// without others below them take jobs. At the top if absent. At most ten queues are above each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub parent: Option<String>,
    /// What the queue gets before weights count, as far as its pods request it, by resource. A resource
    /// that is not named is what the queues below it get in this way; a number, 0 too, is used as it is.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "resource_list_schema")]
    pub deserved: BTreeMap<String, Quantity>,
    /// What is kept free for the queue and those below it, whether they use it or not, by resource.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "resource_list_schema")]
    pub guarantee: BTreeMap<String, Quantity>,
    /// Of the queues below one parent, those of higher priority are served first: of what guarantees and
    /// deserved amounts leave, they get all that they can use before others get anything. 0 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -1_000_000, max = 1_000_000))]
    pub priority: Option<i32>,
    /// Whether queues outside this one may have its pods evicted to take back what they deserve; also the
    /// pods of the queues below it. True if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaimable: Option<bool>,
    /// Closed: the queue and those below it start nothing, and what runs stays. Open if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "desired_state_schema")]
    pub state: Option<DesiredState>,
    /// How many jobs of the queue and those below it hold resources at the same time. No limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_running_jobs: Option<i32>,
    /// The order of the jobs of the queue. Priority, if absent: as the configuration says. Fifo: by
    /// priority, then by age. StrictFifo: the same, and no job starts while one
    /// before it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "queue_order_schema")]
    pub order: Option<QueueOrder>,
    /// The namespaces whose jobs may use the queue and those below it, by their labels. Every namespace if
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector_schema")]
    pub namespace_selector: Option<LabelSelector>,
    /// How long a pod or gang of the queue runs before it may be evicted for another, such as `10m`: a
    /// number with a unit from `ms` to `h`, or several. Pods of system priority classes evict it
    /// earlier. If absent, the time of the queue above it, if that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration_schema")]
    pub min_runtime: Option<String>,
}

/// Whether a queue is to start jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DesiredState {
    /// It does.
    Open,
    /// It starts nothing.
    Closed,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// Go writes absent values as null.
fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Quantities that are not negative.
fn resource_list_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "pattern": r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$",
        },
    })
}

/// A label selector, with bounds.
fn label_selector_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let values = schemars::json_schema!({
        "type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 63},
    });
    schemars::json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": {
                "type": "array",
                "maxItems": 64,
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "maxLength": 317},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": values,
                    },
                },
            },
        },
    })
}

/// The names of [`DesiredState`].
fn desired_state_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "enum": ["Open", "Closed"]})
}

/// The names of [`QueueOrder`].
fn queue_order_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "enum": ["Priority", "Fifo", "StrictFifo"]})
}

/// A duration as Kubernetes writes it.
fn duration_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "maxLength": 32,
        "pattern": r"^(0|([0-9]+(\.[0-9]+)?(ms|s|m|h))+)$",
    })
}

/// What the schemas say of statuses. The statuses themselves are in the model, which knows no schemas.
mod schema {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};
    use schemars::JsonSchema;
    use serde::Serialize;

    /// What the scheduler last saw of a PodGroup.
    #[derive(Default, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct PodGroupStatus {
        /// Pending: fewer than the minimum have a place. Running: at least the minimum have one.
        /// Unknown: some run, but the minimum cannot be reached. Completed: all pods have finished,
        /// or its Job was deleted.
        phase: String,
        /// The latest observations, one for each type.
        conditions: Vec<PodGroupCondition>,
        /// Number of pods that count towards the minimum: those that have a node, and those that finished
        /// well.
        ready: i32,
        /// Number of pods that run.
        running: i32,
        /// Number of pods that finished well.
        succeeded: i32,
        /// Number of pods that failed.
        failed: i32,
    }

    /// One observation about a PodGroup.
    #[derive(Default, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct PodGroupCondition {
        /// What is observed: Unschedulable, Misconfigured, Preempted or Reclaimed.
        #[serde(rename = "type")]
        type_: String,
        /// True, False or Unknown.
        status: String,
        /// Id of the scheduling cycle that last changed the status.
        #[serde(rename = "transitionID")]
        transition_id: String,
        /// When the status last changed.
        last_transition_time: Option<Time>,
        /// One word for programs, for instance NotEnoughResources, NeverFits, NotEnoughTasks,
        /// QueueNotFound, QueueCapability, QueueShare, NotTried, VolumeNotReady,
        /// PriorityClassNotFound or GangEvicted.
        reason: String,
        /// What is wrong, in a sentence.
        message: String,
    }

    /// What the scheduler last saw of a queue.
    #[derive(Default, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct QueueStatus {
        /// Open, Closing while it is closed and pods of it run, then Closed.
        state: String,
        /// How many queues name it as parent.
        children: i32,
        /// Number of its PodGroups, and of its gangs without one, in phase Unknown.
        unknown: i32,
        /// Number of its PodGroups, and of its gangs without one, in phase Pending.
        pending: i32,
        /// Number of its PodGroups, and of its gangs without one, in phase Running.
        running: i32,
        /// What its pods hold.
        #[schemars(schema_with = "super::resource_list_schema")]
        allocated: BTreeMap<String, Quantity>,
        /// What its pods hold, and those that wait request.
        #[schemars(schema_with = "super::resource_list_schema")]
        requested: BTreeMap<String, Quantity>,
        /// What it deserves: its part of the cluster by weight, with what other queues do not request, but
        /// at most what its own pods request and its capability.
        #[schemars(schema_with = "super::resource_list_schema")]
        deserved: BTreeMap<String, Quantity>,
        /// What of that is kept free for it.
        #[schemars(schema_with = "super::resource_list_schema")]
        guaranteed: BTreeMap<String, Quantity>,
        /// What it would deserve if it and all queues that have jobs requested all that there is.
        #[schemars(schema_with = "super::resource_list_schema")]
        fair_share: BTreeMap<String, Quantity>,
        /// What is kept free for the job of the queue that has a reservation.
        #[schemars(schema_with = "super::resource_list_schema")]
        reserved: BTreeMap<String, Quantity>,
        /// The largest part of its deserved amount that is allocated, over all resources, as a
        /// decimal number.
        share: String,
        /// What is held of what is deserved, for people.
        #[serde(rename = "use")]
        usage: String,
        /// What else was seen.
        conditions: Vec<QueueCondition>,
    }

    /// One observation about a queue.
    #[derive(Default, Serialize, JsonSchema)]
    #[serde(rename_all = "camelCase", default)]
    pub(super) struct QueueCondition {
        /// What is observed: Active or Oversubscribed.
        #[serde(rename = "type")]
        type_: String,
        /// True or False.
        status: String,
        /// One word for programs.
        reason: String,
        /// A sentence for people.
        message: String,
        /// When the status last changed.
        last_transition_time: Option<Time>,
        /// The generation of the queue that was observed.
        observed_generation: i64,
    }
}

macro_rules! shell {
    ($doc:literal, $kind:ident, $spec:ident, $status:ident, $version:expr, $scope:ident, $plural:literal) => {
        #[doc = $doc]
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $kind {
            /// Name, namespace, labels and the like.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// What the user wants.
            #[serde(default)]
            pub spec: $spec,
            /// What the scheduler saw.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<$status>,
        }

        impl Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $version.group().into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.version().into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

/// The older API group, `scheduling.incubator.k8s.io/v1alpha1`.
pub mod v1alpha1 {
    use super::*;

    shell!(
        "A gang: pods that start together or not at all.",
        PodGroup,
        PodGroupSpec,
        PodGroupStatus,
        GroupVersion::V1Alpha1,
        NamespaceResourceScope,
        "podgroups"
    );
    shell!(
        "A queue: a share of the cluster.",
        Queue,
        QueueSpec,
        QueueStatus,
        GroupVersion::V1Alpha1,
        ClusterResourceScope,
        "queues"
    );
}

/// The newer API group, `scheduling.sigs.dev/v1alpha2`; it wins where both have an object of one
/// name.
pub mod v1alpha2 {
    use super::*;

    shell!(
        "A gang: pods that start together or not at all.",
        PodGroup,
        PodGroupSpec,
        PodGroupStatus,
        GroupVersion::V1Alpha2,
        NamespaceResourceScope,
        "podgroups"
    );
    shell!(
        "A queue: a share of the cluster.",
        Queue,
        QueueSpec,
        QueueStatus,
        GroupVersion::V1Alpha2,
        ClusterResourceScope,
        "queues"
    );
}

/// The four CustomResourceDefinitions, by the file name of their manifest.
pub fn definitions() -> Vec<(String, CustomResourceDefinition)> {
    GroupVersion::OWN
        .into_iter()
        .flat_map(|version| [pod_group_definition(version), queue_definition(version)])
        .map(|definition| {
            let names = &definition.spec.names;
            (format!("{}_{}.yaml", definition.spec.group, names.plural), definition)
        })
        .collect()
}

fn pod_group_definition(version: GroupVersion) -> CustomResourceDefinition {
    definition(
        version,
        Kind {
            name: "PodGroup",
            plural: "podgroups",
            short_name: "pg",
            scope: "Namespaced",
            about: "PodGroup is a gang: pods that name it in the annotation \
                    scheduling.k8s.io/group-name start together or not at all.",
            rule: None,
            columns: vec![
                Column::new("Queue", "string", ".spec.queue", "Queue whose share it uses"),
                Column::new(
                    "Phase",
                    "string",
                    ".status.phase",
                    "Pending, Running, Unknown or Completed",
                ),
                Column::new("Reason", "string", UNSCHEDULABLE_REASON, "Why it does not start"),
                Column::new("Min", "integer", ".spec.minMember", "Pods that must start together"),
                Column::new(
                    "Ready",
                    "integer",
                    ".status.ready",
                    "Pods that count towards the minimum",
                ),
                Column::new("Running", "integer", ".status.running", "Pods that run"),
                Column::new("Succeeded", "integer", ".status.succeeded", "Pods that finished well"),
                Column::new("Failed", "integer", ".status.failed", "Pods that failed").wide(),
                Column::new("Priority", "string", ".spec.priorityClassName", "PriorityClass")
                    .wide(),
                Column::new("Age", "date", ".metadata.creationTimestamp", "Time since creation"),
                Column::new(
                    "Message",
                    "string",
                    UNSCHEDULABLE_MESSAGE,
                    "The reason, in a sentence",
                )
                .wide(),
            ],
        },
        schema_of::<PodGroupSpec>(),
        schema_of::<schema::PodGroupStatus>(),
    )
}

fn queue_definition(version: GroupVersion) -> CustomResourceDefinition {
    let mut spec = schema_of::<QueueSpec>();
    let weight = spec.properties.as_mut().and_then(|p| p.get_mut("weight"));
    // Parity: differs, see docs/parity.md#d3. The type reads an absent weight as 0, as objects
    // stored before the default have it; the API server fills in 1 from now on.
    weight.expect("QueueSpec has a weight").default =
        Some(k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON(1.into()));
    definition(
        version,
        Kind {
            name: "Queue",
            plural: "queues",
            short_name: "q",
            scope: "Cluster",
            about: "Queue is a share of the cluster: PodGroups that name it count against it.",
            rule: Some(ValidationRule {
                rule: "!has(self.spec) || !has(self.spec.parent) || self.spec.parent != self.metadata.name".to_owned(),
                message: Some("spec.parent must not be the queue itself".to_owned()),
                ..Default::default()
            }),
            columns: vec![
                Column::new("Parent", "string", ".spec.parent", "The queue above it"),
                Column::new("State", "string", ".status.state", "Whether it starts jobs"),
                Column::new("Weight", "integer", ".spec.weight", "Relative part of the cluster"),
                Column::new("Pending", "integer", ".status.pending", "PodGroups that wait"),
                Column::new("Running", "integer", ".status.running", "PodGroups that run"),
                Column::new(
                    "Unknown",
                    "integer",
                    ".status.unknown",
                    "PodGroups that lost pods of their minimum",
                ),
                Column::new(
                    "Share",
                    "string",
                    ".status.share",
                    "Largest allocated part of what it deserves",
                ),
                Column::new("Capability", "string", ".spec.capability", "Hard limits"),
                Column::new(
                    "GPUs",
                    "string",
                    r".status.allocated.nvidia\.com/gpu",
                    "nvidia.com/gpu that its pods hold",
                )
                .wide(),
                Column::new("Allocated", "string", ".status.allocated", "What its pods hold")
                    .wide(),
                Column::new(
                    "Deserved",
                    "string",
                    ".status.deserved",
                    "At most what its pods request",
                )
                .wide(),
                Column::new(
                    "Fair Share",
                    "string",
                    ".status.fairShare",
                    "What it deserves if all want all",
                )
                .wide(),
                Column::new("Priority", "integer", ".spec.priority", "Place among its siblings")
                    .wide(),
                Column::new("Children", "integer", ".status.children", "Queues below it").wide(),
                Column::new("Guaranteed", "string", ".status.guaranteed", "What is kept free")
                    .wide(),
                Column::new("Use", "string", ".status.use", "What is held of what is deserved")
                    .wide(),
                Column::new("Age", "date", ".metadata.creationTimestamp", "Time since creation"),
            ],
        },
        spec,
        schema_of::<schema::QueueStatus>(),
    )
}

/// Without this annotation the API server refuses kinds in a group of Kubernetes' own.
const APPROVAL: &str = "api-approved.kubernetes.io";
/// The kinds were not reviewed: v0.5.0 defined them before approval was required.
const UNAPPROVED: &str = "unapproved, kinds of kube-batch v0.5.0 from before approval was required";

/// Whether a group is kept for Kubernetes itself.
fn is_protected(group: &str) -> bool {
    [".k8s.io", ".kubernetes.io"].iter().any(|suffix| group.ends_with(suffix))
}

struct Kind {
    name: &'static str,
    plural: &'static str,
    short_name: &'static str,
    scope: &'static str,
    about: &'static str,
    /// What an object must fulfil by itself.
    rule: Option<ValidationRule>,
    columns: Vec<Column>,
}

/// A column that `kubectl get` prints.
struct Column {
    title: &'static str,
    type_: &'static str,
    path: &'static str,
    about: &'static str,
    /// Printed with `-o wide` only.
    is_wide: bool,
}

impl Column {
    const fn new(
        title: &'static str,
        type_: &'static str,
        path: &'static str,
        about: &'static str,
    ) -> Self {
        Self { title, type_, path, about, is_wide: false }
    }

    const fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }
}

/// Empty while the condition is False: only a condition that holds has a reason.
const UNSCHEDULABLE_REASON: &str = r#".status.conditions[?(@.type=="Unschedulable")].reason"#;
const UNSCHEDULABLE_MESSAGE: &str = r#".status.conditions[?(@.type=="Unschedulable")].message"#;

fn definition(
    version: GroupVersion,
    kind: Kind,
    spec: JSONSchemaProps,
    status: JSONSchemaProps,
) -> CustomResourceDefinition {
    let text = |text: &str| Some(text.to_owned());
    let columns = kind.columns.iter().map(|column| CustomResourceColumnDefinition {
        name: column.title.to_owned(),
        type_: column.type_.to_owned(),
        json_path: column.path.to_owned(),
        description: text(column.about),
        priority: column.is_wide.then_some(1),
        ..Default::default()
    });
    let described = |about: &str, schema: JSONSchemaProps| JSONSchemaProps {
        description: text(about),
        ..schema
    };
    let schema = JSONSchemaProps {
        type_: text("object"),
        description: text(kind.about),
        x_kubernetes_validations: kind.rule.map(|rule| vec![rule]),
        properties: Some(BTreeMap::from([
            ("spec".to_owned(), described("What the user wants.", spec)),
            ("status".to_owned(), described("What the scheduler last saw.", status)),
        ])),
        ..Default::default()
    };
    CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}", kind.plural, version.group())),
            annotations: is_protected(version.group())
                .then(|| BTreeMap::from([(APPROVAL.to_owned(), UNAPPROVED.to_owned())])),
            ..Default::default()
        },
        spec: CustomResourceDefinitionSpec {
            group: version.group().to_owned(),
            names: CustomResourceDefinitionNames {
                kind: kind.name.to_owned(),
                list_kind: Some(format!("{}List", kind.name)),
                plural: kind.plural.to_owned(),
                singular: Some(kind.name.to_lowercase()),
                short_names: Some(vec![kind.short_name.to_owned()]),
                categories: Some(vec!["kube-batch".to_owned()]),
            },
            scope: kind.scope.to_owned(),
            // Set although it is the default: a CRD that was created as `v1beta1` keeps the value true
            // until a manifest changes it, and its schema may then have no defaults.
            preserve_unknown_fields: Some(false),
            versions: vec![CustomResourceDefinitionVersion {
                name: version.version().to_owned(),
                served: true,
                storage: true,
                additional_printer_columns: Some(columns.collect()),
                schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
                subresources: Some(CustomResourceSubresources {
                    status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
                    ..Default::default()
                }),
                ..Default::default()
            }],
            ..Default::default()
        },
        status: None,
    }
}

/// The structural schema of a type.
fn schema_of<T: JsonSchema>() -> JSONSchemaProps {
    let generator = schemars::generate::SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(kube::core::schema::StructuralSchemaRewriter)
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    schema.remove("title");
    remove_noise(schema.as_object_mut().expect("a struct's schema is an object"));
    serde_json::from_value(schema.to_value()).expect("schemars writes structural schemas")
}

/// Drops what `#[serde(default)]` adds, as explicit zeros would be stored into every object, and
/// where our comments break their lines.
fn remove_noise(schema: &mut serde_json::Map<String, serde_json::Value>) {
    schema.remove("default");
    if let Some(serde_json::Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    for value in schema.values_mut() {
        if let Some(nested) = value.as_object_mut() {
            remove_noise(nested);
        }
    }
}

#[cfg(test)]
mod tests {
    use kube_batch_model::{object_status::PodGroupCondition, queue_condition::QueueCondition};

    use super::*;

    #[test]
    fn groups_of_kubernetes_say_that_they_are_not_approved() {
        for (name, definition) in definitions() {
            let annotations = definition.metadata.annotations.unwrap_or_default();
            let is_marked = annotations.get(APPROVAL).is_some_and(|v| v.starts_with("unapproved"));
            assert_eq!(is_marked, name.contains("incubator.k8s.io"), "{name}");
        }
    }

    #[test]
    fn objects_of_v0_5_0_are_read_and_written_back_unchanged() {
        let stored = serde_json::json!({
            "metadata": {"name": "qj-1", "namespace": "default"},
            "spec": {"minMember": 6, "queue": "default", "priorityClassName": "high"},
            "status": {
                "phase": "Pending",
                "conditions": [{
                    "type": "Unschedulable", "status": "True",
                    "transitionID": "7c5f0b51", "lastTransitionTime": "2019-07-25T10:00:00Z",
                    "reason": "NotEnoughResources", "message": "6/6 tasks in gang unschedulable",
                }],
                "running": 2, "succeeded": 1, "failed": 3,
            },
        });
        let group: v1alpha1::PodGroup = serde_json::from_value(stored.clone()).expect("reads");
        assert_eq!(group.spec.min_member, 6);
        let mut written = serde_json::to_value(&group).expect("writes");
        assert_eq!(
            written["status"].as_object_mut().expect("a status").remove("ready"),
            Some(0.into())
        );
        assert_eq!(written, stored);

        let stored = serde_json::json!({
            "metadata": {"name": "q"},
            "spec": {"weight": 3, "capability": {"cpu": "4"}},
            "status": {"unknown": 1, "pending": 2, "running": 3},
        });
        let queue: v1alpha2::Queue = serde_json::from_value(stored.clone()).expect("reads");
        assert_eq!(serde_json::to_value(&queue).expect("writes"), stored);
    }

    #[test]
    fn what_go_leaves_out_or_writes_as_null_is_read() {
        let group: v1alpha1::PodGroup = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "g"},
            "spec": {"minMember": null, "queue": null},
            "status": {"conditions": [{"type": "Unschedulable", "status": "True", "lastTransitionTime": null}]},
        }))
        .expect("reads");
        assert_eq!(group.spec, PodGroupSpec::default());
        let queue: v1alpha1::Queue =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "q"}})).expect("reads");
        assert_eq!(queue.spec.weight, 0);
    }

    #[test]
    fn definitions_are_structural_and_described() {
        for (file, definition) in definitions() {
            let version = &definition.spec.versions[0];
            let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref());
            for part in ["spec", "status"] {
                let properties = &schema.expect(&file).properties.as_ref().expect(&file)[part];
                for (name, field) in properties.properties.as_ref().expect(&file) {
                    assert!(field.description.is_some(), "{file}: {part}.{name}");
                    assert!(field.type_.is_some(), "{file}: {part}.{name}");
                }
            }
        }
    }

    #[test]
    fn schemas_have_the_fields_of_statuses() {
        let condition = PodGroupCondition {
            transition_id: "1".to_owned(),
            last_transition_time: Some(jiff::Timestamp::UNIX_EPOCH),
            reason: "r".to_owned(),
            message: "m".to_owned(),
            ..PodGroupCondition::default()
        };
        let (phase, conditions) = ("Pending".to_owned(), vec![condition]);
        let group = PodGroupStatus { phase, conditions, ..PodGroupStatus::default() };
        let amounts = || [("cpu".to_owned(), "1".to_owned())].into();
        let condition_of_queue = QueueCondition {
            last_transition_time: Some(jiff::Timestamp::UNIX_EPOCH),
            observed_generation: Some(1),
            message: "m".to_owned(),
            reason: "r".to_owned(),
            ..QueueCondition::default()
        };
        let queue = QueueStatus {
            state: "Open".to_owned(),
            children: 1,
            allocated: amounts(),
            requested: amounts(),
            deserved: amounts(),
            guaranteed: amounts(),
            usage: "cpu 1/1".to_owned(),
            conditions: vec![condition_of_queue],
            fair_share: amounts(),
            reserved: amounts(),
            share: "1".to_owned(),
            ..QueueStatus::default()
        };
        let fields = |schema: JSONSchemaProps| {
            schema.properties.expect("fields").into_keys().collect::<Vec<_>>()
        };
        let written = |status: serde_json::Value| {
            status.as_object().expect("fields").keys().cloned().collect::<Vec<_>>()
        };
        let condition = serde_json::json!(group.conditions[0]);
        assert_eq!(
            fields(schema_of::<schema::PodGroupStatus>()),
            written(serde_json::json!(group))
        );
        assert_eq!(fields(schema_of::<schema::PodGroupCondition>()), written(condition));
        let condition = serde_json::json!(queue.conditions[0]);
        assert_eq!(fields(schema_of::<schema::QueueStatus>()), written(serde_json::json!(queue)));
        assert_eq!(fields(schema_of::<schema::QueueCondition>()), written(condition));
    }
}
