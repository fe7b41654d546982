//! Mistakes in the objects of a job.

use std::fmt;

use crate::{
    api_version::ApiVersion,
    facts::pod_hints::MetadataPlace,
    name::{Name, ObjectKey},
};

/// Why a job is not scheduled at all in a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobProblem {
    /// Its pods name a PodGroup that does not exist.
    NoPodGroup(ObjectKey),
    /// The API of its PodGroup is served, and cannot be read.
    Unreadable(ApiVersion),
    /// Its pods wait until a controller has put them in a PodGroup.
    NotInGroup {
        /// The scheduler that they name.
        scheduler: Name,
    },
    /// It names a queue that does not exist.
    QueueNotFound(Name),
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
    /// Its pods and its PodGroup contradict one another. The message is that of kube-scheduler.
    Inconsistent(Name),
    /// Its running pods are not in one domain of the level that it requires. The message is that of kube-scheduler.
    Scattered(Name),
    /// A reason of a plugin outside this project.
    Other {
        /// The reason of the condition: one word in CamelCase.
        reason: &'static str,
        /// The message of the condition: a sentence for people.
        message: Name,
    },
}

impl JobProblem {
    /// The reason code of [`JobProblem::Inconsistent`] and [`JobProblem::Scattered`]; kube-scheduler's.
    pub const INCONSISTENT: &str = "SchedulerError";
    /// The reason code of [`JobProblem::NotEnoughTasks`].
    pub const NOT_ENOUGH_TASKS: &str = "NotEnoughTasks";
    /// The reason code of [`JobProblem::NoPodGroup`] and [`JobProblem::NotInGroup`].
    pub const NO_POD_GROUP: &str = "PodGroupNotFound";

    /// The reason code.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoPodGroup(_) | Self::NotInGroup { .. } => Self::NO_POD_GROUP,
            Self::Unreadable(_) => "PodGroupUnreadable",
            Self::QueueNotFound(_) => "QueueNotFound",
            Self::NotEnoughTasks { .. } | Self::NotEnoughTasksOfRole { .. } => {
                Self::NOT_ENOUGH_TASKS
            }
            Self::Inconsistent(_) | Self::Scattered(_) => Self::INCONSISTENT,
            Self::Other { reason, .. } => reason,
        }
    }
}

impl fmt::Display for JobProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPodGroup(key) => write!(f, "PodGroup {key} does not exist"),
            Self::Unreadable(version) => write!(
                f,
                "the PodGroups of {version} cannot be read; the log of kube-batch says why"
            ),
            Self::NotInGroup { scheduler } => write!(
                f,
                "waits until a controller creates a PodGroup and names it in the pod, as gang.waitForPodGroup \
                 requires of pods with schedulerName \"{scheduler}\""
            ),
            Self::QueueNotFound(queue) => write!(f, "queue \"{queue}\" does not exist"),
            Self::NotEnoughTasks { valid, min } => {
                write!(f, "only {valid} of the required {min} pods exist")
            }
            Self::NotEnoughTasksOfRole { role, valid, min } => {
                write!(f, "only {valid} of the required {min} pods of the role {role} exist")
            }
            Self::Inconsistent(message)
            | Self::Scattered(message)
            | Self::Other { message, .. } => f.write_str(message),
        }
    }
}

/// A mistake in the objects of a job that does not keep it from being scheduled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        key: &'static str,
        /// Its value.
        value: Name,
    },
    /// The pods have different values of an annotation.
    DifferentAnnotations {
        /// Its key.
        key: &'static str,
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
        instead: &'static str,
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
        }
    }

    /// Whether it may be why pods are missing to the minimum of the job.
    pub const fn explains_missing_pods(&self) -> bool {
        match self {
            Self::PriorityClassNotFound { .. } | Self::SystemPriorityClass { .. } => false,
            Self::OtherScheduler { .. }
            | Self::UnreadableAnnotation { .. }
            | Self::DifferentAnnotations { .. }
            | Self::NotAnnotated { .. }
            | Self::MisplacedGroup { .. }
            | Self::ExclusiveTopology { .. } => true,
        }
    }
}

impl fmt::Display for JobWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PriorityClassNotFound { class, priority } => {
                write!(f, "PriorityClass \"{class}\" does not exist; the priority is {priority}")
            }
            Self::SystemPriorityClass { class, priority } => write!(
                f,
                "PriorityClass \"{class}\" is reserved for the system and counts only if a pod of the \
                 job has it too; the priority is {priority}"
            ),
            Self::OtherScheduler { n_pods: 1, scheduler } => {
                write!(f, "1 pod names this PodGroup, but its schedulerName is \"{scheduler}\"")
            }
            Self::OtherScheduler { n_pods, scheduler } => {
                write!(
                    f,
                    "{n_pods} pods name this PodGroup, but their schedulerName is \"{scheduler}\""
                )
            }
            Self::UnreadableAnnotation { pod, key, value } => {
                write!(f, "the annotation {key} of pod {pod} is not a number: {value:?}")
            }
            Self::DifferentAnnotations { key, counts } => {
                write!(f, "its pods have different values of the annotation {key}; {counts} counts")
            }
            Self::NotAnnotated { n_pods: 1, first } => write!(
                f,
                "1 of the pods of its controllers does not name this PodGroup in an annotation: {first}"
            ),
            Self::NotAnnotated { n_pods, first } => write!(
                f,
                "{n_pods} of the pods of its controllers do not name this PodGroup in an annotation, \
                 among them {first}"
            ),
            Self::MisplacedGroup { n_pods: 1, first, place, key } => write!(
                f,
                "pod {first} names this PodGroup in the {place} {key}, which has to be {}",
                place.other().with_article()
            ),
            Self::MisplacedGroup { n_pods, first, place, key } => write!(
                f,
                "{n_pods} pods, among them {first}, name this PodGroup in the {place} {key}, which has to be \
                 {}",
                place.other().with_article()
            ),
            Self::ExclusiveTopology { pod, annotation, instead } => write!(
                f,
                "pod {pod} has the annotation {annotation}, with which the other pods are created only once \
                 it has a node, and it gets none before all pods of the gang exist: remove the annotation, and \
                 place the gang by topology, with {instead}"
            ),
        }
    }
}

/// The APIs of two objects of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The API of the object that is ignored.
    pub ignored: ApiVersion,
    /// The API of the object that is used.
    pub counts: ApiVersion,
}

/// An object that is ignored, because another one has the same name and takes precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// A PodGroup.
    DuplicateGroup(ObjectKey, Duplicate),
    /// A queue.
    DuplicateQueue(Name, Duplicate),
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name, Duplicate { ignored, counts }) = match self {
            Self::DuplicateGroup(key, apis) => ("PodGroup", key.to_string(), apis),
            Self::DuplicateQueue(name, apis) => ("Queue", name.to_string(), apis),
        };
        write!(f, "{kind} {name} of {ignored} is ignored: {counts} has one of that name")
    }
}
