//! Mistakes in the objects of a job.

use serde::{Deserialize, Serialize};

use crate::{
    column::QueueIdx,
    facts::pod_hints::MetadataPlace,
    group_version::GroupVersion,
    name::{Name, ObjectKey},
    queue_tree::{MAX_DEPTH, NotServed},
    reason::Reason,
};

/// Why a job is not scheduled at all in a cycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum JobProblem {
    /// Its pods name a PodGroup that does not exist.
    NoPodGroup(ObjectKey),
    /// The API of its PodGroup is served, and cannot be read.
    Unreadable(GroupVersion),
    /// Its pods wait until a controller has put them in a PodGroup.
    NotInGroup {
        /// The scheduler that they name.
        scheduler: Name,
    },
    /// It names a queue that does not exist.
    QueueNotFound(Name),
    /// Its queue serves nothing.
    // Parity: see docs/parity.md#q1.
    QueueParent {
        /// The queue.
        queue: Name,
        /// Why.
        why: PathProblem,
    },
    /// Other queues are below its queue.
    // Parity: see docs/parity.md#q1.
    QueueNotLeaf {
        /// The queue.
        queue: Name,
        /// The first of those below it.
        first: Vec<Name>,
        /// How many there are.
        n: usize,
    },
    /// Its queue, or one above that, is closed.
    // Parity: see docs/parity.md#q10.
    QueueClosed(Name),
    /// Its queue, or one above that, is not for its namespace.
    // Parity: see docs/parity.md#q13.
    QueueNotAllowed {
        /// The queue.
        queue: Name,
        /// The namespace.
        namespace: Name,
    },
    /// It has fewer tasks than its minimum.
    NotEnoughTasks {
        /// Tasks that could count toward the minimum.
        valid: u32,
        /// The minimum.
        min: u32,
    },
    /// It has fewer tasks of a role than the minimum of that role.
    NotEnoughTasksOfRole {
        /// The role.
        role: Name,
        /// Tasks of the role that could count toward its minimum.
        valid: u32,
        /// Its minimum.
        min: u32,
    },
    /// It names another queue than the outermost composite PodGroup above it.
    QueueDiffers {
        /// The queue that it names.
        own: Name,
        /// The composite PodGroup.
        root: ObjectKey,
        /// Its queue.
        of_root: Name,
    },
    /// Its PodGroup is part of a composite one that does not exist.
    NoComposite(ObjectKey),
    /// More composite PodGroups are above its PodGroup than are read.
    TooManyComposites {
        /// How many are read.
        most: usize,
        /// The first that is not.
        next: ObjectKey,
    },
    /// A composite PodGroup above it requires more groups with enough pods than there are.
    NotEnoughGroups {
        /// The composite PodGroup.
        composite: ObjectKey,
        /// How many it requires.
        min: u32,
        /// How many there are.
        n_valid: u32,
    },
    /// It requires a topology domain, and no plugin knows any.
    TopologyNotSupported,
    /// It requires a tier of the topology that the configuration does not declare.
    TierNotDeclared {
        /// The tier.
        tier: u32,
        /// How many are declared.
        n_tiers: usize,
    },
    /// Its pods and its PodGroup contradict one another.
    Inconsistent(Contradiction),
    /// Its running pods are not in one domain of the level that it requires.
    Scattered(Scattering),
    /// The running pods of a composite PodGroup above it are not in one domain of the level that this requires.
    ScatteredComposite(ObjectKey),
    /// A reason of a plugin outside this project.
    Other {
        /// The reason of the condition: one word in CamelCase.
        reason: Name,
        /// The message of the condition: a sentence for people.
        message: Name,
    },
}

impl JobProblem {
    /// The reason code.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoPodGroup(_) | Self::NotInGroup { .. } => Reason::PodGroupNotFound,
            Self::Unreadable(_) => Reason::PodGroupUnreadable,
            Self::QueueNotFound(_) => Reason::QueueNotFound,
            Self::QueueParent { .. } => Reason::QueueParent,
            Self::QueueNotLeaf { .. } => Reason::QueueNotLeaf,
            Self::QueueClosed(_) => Reason::QueueClosed,
            Self::QueueNotAllowed { .. } => Reason::QueueNotAllowed,
            Self::QueueDiffers { .. } => Reason::QueueDiffers,
            Self::NotEnoughTasks { .. } | Self::NotEnoughTasksOfRole { .. } => {
                Reason::NotEnoughTasks
            }
            Self::NoComposite(_) => Reason::CompositePodGroupNotFound,
            Self::TooManyComposites { .. } => Reason::CompositePodGroupTooDeep,
            Self::NotEnoughGroups { .. } => Reason::NotEnoughGroups,
            Self::TopologyNotSupported => Reason::TopologyNotSupported,
            Self::TierNotDeclared { .. } => Reason::TopologyLevelNotFound,
            Self::Inconsistent(_) | Self::Scattered(_) | Self::ScatteredComposite(_) => {
                Reason::SchedulerError
            }
            Self::Other { reason, .. } => Reason::from(reason.clone()),
        }
    }

    /// Whether it is reported on the pods too, where users look for it, and not only on their PodGroup.
    pub const fn is_reported_on_pods(&self) -> bool {
        match self {
            Self::QueueNotFound(_)
            | Self::QueueParent { .. }
            | Self::QueueNotLeaf { .. }
            | Self::QueueClosed(_)
            | Self::QueueNotAllowed { .. }
            | Self::Inconsistent(_)
            | Self::Scattered(_)
            | Self::ScatteredComposite(_) => true,
            Self::NoPodGroup(_)
            | Self::Unreadable(_)
            | Self::NotInGroup { .. }
            | Self::QueueDiffers { .. }
            | Self::NotEnoughTasks { .. }
            | Self::NotEnoughTasksOfRole { .. }
            | Self::NoComposite(_)
            | Self::TooManyComposites { .. }
            | Self::NotEnoughGroups { .. }
            | Self::TopologyNotSupported
            | Self::TierNotDeclared { .. }
            | Self::Other { .. } => false,
        }
    }
}

/// Why a queue serves nothing: its path does not end at the top.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PathProblem {
    /// A parent does not exist.
    ParentNotFound {
        /// The queue above it that names the parent; `None` if it does itself.
        above: Option<Name>,
        /// The parent.
        parent: Name,
    },
    /// Queues are above each other.
    Loop {
        /// The first of them by age.
        first: Vec<Name>,
        /// How many there are.
        n: usize,
    },
    /// Too many queues are above each other.
    TooDeep {
        /// How many, the lowest included.
        n: usize,
        /// How many are served.
        most: usize,
    },
}

/// How many queues of a large circle a message names.
const MAX_NAMED: usize = 2;

impl PathProblem {
    /// Why `queue` serves nothing, with the names of the queues; `None` of the top, which has no problem.
    pub fn new(
        queue: QueueIdx,
        not_served: &NotServed,
        name_of: impl Fn(QueueIdx) -> Name,
    ) -> Option<Self> {
        let problem = match not_served {
            NotServed::Top => return None,
            NotServed::NoParent { child, parent } => {
                let above = (*child != queue).then(|| name_of(*child));
                Self::ParentNotFound { above, parent: parent.clone() }
            }
            NotServed::Loop(queues) => {
                let most = if queues.len() <= MAX_DEPTH { queues.len() } else { MAX_NAMED };
                let first = queues.iter().take(most).copied().map(name_of).collect();
                Self::Loop { first, n: queues.len() }
            }
            NotServed::TooDeep(n) => Self::TooDeep { n: *n, most: MAX_DEPTH },
        };
        Some(problem)
    }
}

/// How a pod and its PodGroup contradict one another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Contradiction {
    /// They have different priorities.
    Priority {
        /// That of the pod.
        pod: i32,
        /// That of the PodGroup.
        group: i32,
    },
    /// The pod names a scheduler that is not this one.
    Scheduler {
        /// The scheduler that it names.
        pod: Name,
        /// The first name of this one.
        ours: Name,
    },
    /// Only one of them never preempts.
    PreemptionPolicy {
        /// Whether the pod never preempts; the PodGroup then may, and the other way round.
        pod_never: bool,
    },
}

/// Why the running pods of a job are not in one topology domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Scattering {
    /// One of their nodes is in no domain.
    NoLabel {
        /// The node.
        node: Name,
        /// The label that it lacks.
        key: Name,
    },
    /// They are in several.
    Domains(Vec<Name>),
}

/// A mistake in the objects of a job that does not keep it from being scheduled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum JobWarning {
    /// Its PodGroup names a PriorityClass that does not exist.
    PriorityClassNotFound {
        /// The class.
        class: Name,
        /// The priority of the job instead.
        priority: i32,
    },
    /// Its PriorityClass is one of the system, and no pod of the job has that priority.
    SystemPriorityClass {
        /// The class.
        class: Name,
        /// The priority of the job instead.
        priority: i32,
    },
    /// Pods name its PodGroup, but another scheduler.
    OtherScheduler {
        /// Number of such pods that are not bound.
        n_pods: u32,
        /// The scheduler that the first of them names.
        scheduler: Name,
    },
    /// The annotation of a pod cannot be read.
    UnreadableAnnotation {
        /// The pod.
        pod: ObjectKey,
        /// Its key.
        key: Name,
        /// Its value.
        value: Name,
    },
    /// The pods have different values of an annotation.
    DifferentAnnotations {
        /// Its key.
        key: Name,
        /// The value that counts.
        counts: Name,
    },
    /// Pods that have the same controller as pods of the job do not name its PodGroup.
    NotAnnotated {
        /// Number of such pods.
        n_pods: u32,
        /// The first of them by namespace and name.
        first: ObjectKey,
    },
    /// Pods name its PodGroup where that has no effect.
    MisplacedGroup {
        /// Number of such pods.
        n_pods: u32,
        /// The first of them by namespace and name.
        first: ObjectKey,
        /// Where the first names it.
        place: MetadataPlace,
        /// The key of that label or annotation.
        key: Name,
    },
    /// A pod of a gang that lacks pods has an annotation because of which the others are created only once it has
    /// a node.
    ExclusiveTopology {
        /// The pod.
        pod: ObjectKey,
        /// The annotation.
        annotation: Name,
        /// What has the same purpose and works for a gang.
        instead: Name,
    },
    /// A Job of `batch` fails for good if more of its pods are evicted than it accepts, and that may happen.
    // Parity: see docs/parity.md#p16.
    FailsWhenEvicted {
        /// The first such Job, by name.
        first: Name,
        /// How many more there are.
        n_more: usize,
        /// How many of its pods may be evicted; `None` if they count by index, and an index may lose none.
        left: Option<u32>,
    },
}

impl JobWarning {
    /// The reason code.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::PriorityClassNotFound { .. } => "PriorityClassNotFound",
            Self::SystemPriorityClass { .. } => "SystemPriorityClass",
            Self::OtherScheduler { .. } => "OtherScheduler",
            Self::UnreadableAnnotation { .. } => "UnreadableAnnotation",
            Self::DifferentAnnotations { .. } => "DifferentAnnotations",
            Self::NotAnnotated { .. } => "PodsNotAnnotated",
            Self::MisplacedGroup { .. } => "GroupNameMisplaced",
            Self::ExclusiveTopology { .. } => "ExclusiveTopology",
            Self::FailsWhenEvicted { .. } => "FailsWhenEvicted",
        }
    }

    /// Whether it changes only with the objects of the job, so that its report holds until then.
    pub const fn follows_from_job(&self) -> bool {
        matches!(self, Self::FailsWhenEvicted { .. })
    }

    /// Whether it may be why pods are missing to the minimum of the job.
    pub const fn explains_missing_pods(&self) -> bool {
        match self {
            Self::PriorityClassNotFound { .. }
            | Self::SystemPriorityClass { .. }
            | Self::FailsWhenEvicted { .. } => false,
            Self::OtherScheduler { .. }
            | Self::UnreadableAnnotation { .. }
            | Self::DifferentAnnotations { .. }
            | Self::NotAnnotated { .. }
            | Self::MisplacedGroup { .. }
            | Self::ExclusiveTopology { .. } => true,
        }
    }
}

/// The APIs of two objects of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The API of the object that is ignored.
    pub ignored: GroupVersion,
    /// The API of the object that is used.
    pub counts: GroupVersion,
}

/// An object that is ignored, because another one has the same name and takes precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// A PodGroup.
    DuplicateGroup(ObjectKey, Duplicate),
    /// A queue.
    DuplicateQueue(Name, Duplicate),
}
