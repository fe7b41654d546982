//! What people read about why jobs and pods wait and why pods are evicted: conditions, events, logs, tables and JSON
//! have the same words.

mod missing_pods;
mod others;

use std::fmt;

use crate::{
    decision::{EvictionCause, JobInQueue},
    name::Name,
    others::Shortage,
    people,
    problem::{Contradiction, Duplicate, Ignored, JobProblem, JobWarning, PathProblem, Scattering},
    reason::{FitReport, NodeReason, Reason, RefusingNodes},
    resource::PODS,
    why::{
        AdmissionLimit, BestDomain, Excess, GangEviction, Invalid, Lacking, LimitUse, NeverFits,
        NoDomain, NoPlace, NotAdmitted, NotEnoughGroups, NotTried, Obstacle, OverCapability,
        OwnPlaces, OwnReservation, ProtectedGang, QueueAtShare, ShareInUse, StuckPod, Why,
    },
};

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for NodeReason {
    /// The message that Kubernetes uses, to be preceded by a number of nodes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CutByAffinity => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            Self::NotReady => "node(s) were not ready",
            Self::NetworkUnavailable => "node(s) had unavailable network",
            Self::Unschedulable => "node(s) were unschedulable",
            Self::MemoryPressure => "node(s) had memory pressure",
            Self::DiskPressure => "node(s) had disk pressure",
            Self::PidPressure => "node(s) had pid pressure",
            Self::Taint => "node(s) had untolerated taint(s)",
            Self::EnforcedNodeAffinity => "node(s) didn't match scheduler-enforced node affinity",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::HostPorts => "node(s) didn't have free ports for the requested pod ports",
            Self::TooManyPods => "Too many pods",
            Self::Insufficient(resource) | Self::UnknownResource(resource) => {
                return write!(f, "Insufficient {resource}");
            }
            Self::DiskConflict => "node(s) had no available disk",
            Self::ClaimInUse => {
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode \
                 already in-use by another pod"
            }
            Self::CsiDriverMissing(driver) => {
                return write!(f, "{driver} CSI driver is not installed on the node");
            }
            Self::MaxVolumeCount => "node(s) exceed max volume count",
            Self::VolumeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Self::VolumeMissing => {
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
            }
            Self::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Self::VolumeZone => "node(s) had no available volume zone",
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::SpreadMissingLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingAntiAffinity => {
                "node(s) didn't satisfy existing pods anti-affinity rules"
            }
            Self::ResourceClaim => "resourceclaim not available on the node",
            Self::Devices => "cannot allocate all claims",
            Self::InvalidPools => "invalid resource pools were encountered",
            Self::DevicesTooComplex => {
                "node(s) where the search for devices of the resource claims takes too long"
            }
            Self::DeviceError => "node(s) with an error in the resource claims",
            Self::Other(text) => text,
        })
    }
}

impl fmt::Display for FitReport {
    /// As Kubernetes words it: `0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods.`,
    /// the parts sorted as plain texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.n_nodes() == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        write!(f, "0/{} nodes are available", self.n_nodes())?;
        let part = |nodes: &RefusingNodes| format!("{} {}", nodes.n_nodes, nodes.reason);
        let mut parts: Vec<String> = self.refused().iter().map(part).collect();
        parts.sort_unstable();
        parts.extend(self.for_all().map(|reason| reason.message.to_string()));
        if parts.is_empty() {
            return f.write_str(".");
        }
        write!(f, ": {}.", parts.join(", "))
    }
}

/// The first of `n` names, and how many more there are: `a`, `a and b`, `a, b and 3 more`.
fn some_of(first: &[Name], n: usize) -> String {
    let mut names: Vec<String> = first.iter().map(ToString::to_string).collect();
    let n_more = n.saturating_sub(names.len());
    if n_more > 0 {
        names.push(format!("{n_more} more"));
    }
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
}

impl fmt::Display for PathProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ParentNotFound { above: None, parent } => {
                write!(f, "parent \"{parent}\" does not exist")
            }
            Self::ParentNotFound { above: Some(above), parent } => {
                write!(f, "\"{above}\", above it, has no parent \"{parent}\"")
            }
            Self::Loop { first, n: 1 } => write!(f, "{} is above itself", some_of(first, 1)),
            Self::Loop { first, n } => write!(f, "{} are above each other", some_of(first, *n)),
            Self::TooDeep { n, most } => {
                write!(f, "{n} queues above each other, at most {most} are served")
            }
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
            Self::QueueParent { queue, why } => {
                write!(f, "queue \"{queue}\" serves nothing: {why}")
            }
            Self::QueueNotLeaf { queue, first, n } => write!(
                f,
                "queue \"{queue}\" has children ({}): jobs name one of them",
                some_of(first, *n)
            ),
            Self::QueueClosed(queue) => write!(f, "queue \"{queue}\" is closed"),
            Self::QueueNotAllowed { queue, namespace } => {
                write!(f, "queue \"{queue}\" may not be used from namespace \"{namespace}\"")
            }
            Self::NotEnoughTasks { valid, min } => {
                write!(f, "only {valid} of the required {min} pods exist")
            }
            Self::NotEnoughTasksOfRole { role, valid, min } => {
                write!(f, "only {valid} of the required {min} pods of the role {role} exist")
            }
            Self::QueueDiffers { own, root, of_root } => write!(
                f,
                "the PodGroup names queue \"{own}\", but CompositePodGroup {root} is in queue \"{of_root}\": its \
                 label scheduling.sigs.dev/queue decides for all PodGroups below it"
            ),
            Self::NoComposite(key) => write!(
                f,
                "CompositePodGroup {key} does not exist, or the API server does not serve composite PodGroups \
                 (scheduling.k8s.io/v1alpha3)"
            ),
            Self::TooManyComposites { most, next } => write!(
                f,
                "more than {most} composite PodGroups are above its PodGroup, or one is part of itself; \
                 the last one read is {next}"
            ),
            Self::NotEnoughGroups { composite, min, n_valid } => write!(
                f,
                "CompositePodGroup {composite} requires {min} groups with enough pods, and has {n_valid}"
            ),
            Self::TopologyNotSupported => f.write_str(
                "the PodGroup requires a topology domain, but the plugin topology is not configured; add it \
                 to the scheduler configuration",
            ),
            Self::TierNotDeclared { tier, n_tiers } => write!(
                f,
                "the PodGroup requires tier {tier}, but the argument levels of the plugin topology declares \
                 only {n_tiers} (kubernetes.io/hostname is not counted)"
            ),
            Self::Inconsistent(contradiction) => contradiction.fmt(f),
            Self::Scattered(scattering) => scattering.fmt(f),
            Self::ScatteredComposite(key) => write!(
                f,
                "cannot determine domain for already scheduled pods: more than 1 domain found for \
                 CompositePodGroup {key}"
            ),
            Self::Other { message, .. } => f.write_str(message),
        }
    }
}

impl fmt::Display for Contradiction {
    /// The words of kube-scheduler.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all pods in a single pod group should have the same ")?;
        match self {
            Self::Priority { pod, group } => {
                write!(f, "priority as the pod group's priority, got {pod} and {group}")
            }
            Self::Scheduler { pod, ours } => {
                write!(f, ".spec.schedulerName set, got: {pod:?} and {ours:?}")
            }
            Self::PreemptionPolicy { pod_never } => {
                let policy = |never| if never { "Never" } else { "PreemptLowerPriority" };
                let (pod, group) = (policy(*pod_never), policy(!pod_never));
                write!(
                    f,
                    "preemption policy as the pod group's preemption policy, got {pod} and {group}"
                )
            }
        }
    }
}

impl fmt::Display for Scattering {
    /// The words of kube-scheduler.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot determine domain for already scheduled pods: ")?;
        match self {
            Self::NoLabel { node, key } => write!(f, "node {node} has no label {key}"),
            Self::Domains(domains) => {
                write!(f, "more than 1 domain found for pod group: {}", domains.join(", "))
            }
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
            Self::FailsWhenEvicted { first, n_more, left } => {
                let more = match n_more {
                    0 => String::new(),
                    1 => " and 1 more of this PodGroup".to_owned(),
                    n => format!(" and {n} more of this PodGroup"),
                };
                let when = match left {
                    None => "a pod of an index that has no retries left is evicted".to_owned(),
                    Some(0) => "one of its pods is evicted".to_owned(),
                    Some(left) => format!("more than {left} of its pods are evicted"),
                };
                write!(
                    f,
                    "Job {first}{more} fails for good if {when}; add to the spec of the Job: \
                     podFailurePolicy: {{rules: [{{action: Ignore, onPodConditions: [{{type: DisruptionTarget}}]}}]}}"
                )
            }
        }
    }
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

impl fmt::Display for JobInQueue {
    /// As far as those may know who read it: `job ns/a of queue "q"`, `a job of queue "q"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, queue, is_named } = self;
        match is_named {
            true => write!(f, "job {job} of queue \"{queue}\""),
            false => write!(f, "a job of queue \"{queue}\""),
        }
    }
}

impl fmt::Display for EvictionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JobInQueue { job, queue, is_named } = self.job();
        match self {
            Self::Preempt(_) if *is_named => {
                write!(f, "preempted for {job} of queue \"{queue}\"")
            }
            Self::Preempt(job) => write!(f, "preempted for {job}"),
            Self::Reclaim(_) if *is_named => {
                write!(f, "queue \"{queue}\" reclaims its share for {job}")
            }
            Self::Reclaim(_) => write!(f, "queue \"{queue}\" reclaims its share"),
            Self::StaleGang(_) => write!(
                f,
                "{job} of queue \"{queue}\" has had fewer pods than its minimum for too long"
            ),
        }
    }
}

impl fmt::Display for GangEviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, n_pods } = self;
        write!(f, "all {n_pods} pods of the gang are evicted: {cause}")
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::NotAdmitted(why) => why.fmt(f),
            Self::NotTried(why) => why.fmt(f),
            Self::NoPlace(why) => why.fmt(f),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { problem, missing, similar } = self;
        problem.fmt(f)?;
        if let Some(similar) = similar {
            write!(f, "; did you mean \"{similar}\"?")?;
        }
        missing.as_ref().map_or(Ok(()), |missing| missing.fmt(f))
    }
}

impl fmt::Display for NotAdmitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, requested, limit } = self;
        let compared_with = match limit {
            AdmissionLimit::Capability { limit, .. } => *limit,
            AdmissionLimit::Cluster { total } => *total,
            AdmissionLimit::Idle { idle, .. } => *idle,
        };
        let [requested, compared_with] = people::compared(resource, [*requested, compared_with]);
        let requested = people::with_name(resource, &requested);
        write!(f, "its pods may not be created yet: its minResources are {requested}, and ")?;
        match limit {
            AdmissionLimit::Capability { queue, limit: _, in_use } => {
                write!(f, "queue \"{queue}\" is limited to {compared_with}")?;
                in_use.map_or(Ok(()), |in_use| write!(f, ", {}", in_words_of(resource, in_use)))
            }
            AdmissionLimit::Cluster { .. } => {
                write!(f, "the whole cluster has {compared_with}")
            }
            AdmissionLimit::Idle { idle: _, kept } => {
                write!(f, "{compared_with} are idle or being released")?;
                match *kept > 0 {
                    true => {
                        let kept = people::amount(resource, *kept);
                        write!(f, ", of which {kept} are kept for other PodGroups")
                    }
                    false => Ok(()),
                }
            }
        }
    }
}

/// What a queue uses, and keeps for others if that is more than nothing.
fn in_words_of(resource: &str, LimitUse { used, kept }: LimitUse) -> String {
    let [used, kept_amount] = [used, kept].map(|amount| people::amount(resource, amount));
    match kept > 0 {
        true => {
            format!("uses {used}, keeps {kept_amount} for the minResources of other PodGroups")
        }
        false => format!("uses {used}"),
    }
}

impl fmt::Display for NotTried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ManyTemplates => {
                "not tried in every cycle, because its pods have many different templates"
            }
            Self::OthersFirst => {
                "other jobs of its queue are tried before it, in this cycle or the next"
            }
            Self::AsBefore { message, .. } => message,
        })
    }
}

impl fmt::Display for NoPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.own_words();
        let others = self.others.as_ref().map(ToString::to_string).unwrap_or_default();
        match others.is_empty() {
            true => f.write_str(&own),
            // The first part of a sentence does not end with a dot.
            false => write!(f, "{}{others}", own.trim_end_matches('.')),
        }
    }
}

impl NoPlace {
    /// What it says without the others, which come last.
    fn own_words(&self) -> String {
        let Self { lacking, obstacle, protected, reservation, others } = self;
        let short = others.as_ref().and_then(|others| others.short.as_ref());
        let mut own = format!("{}{obstacle}", lacking.words(short.map(|short| &**short)));
        let protected = protected.as_ref().map(ToString::to_string);
        for part in protected.into_iter().chain(reservation.as_ref().map(ToString::to_string)) {
            own = format!("{}{part}", own.trim_end_matches('.'));
        }
        own
    }
}

impl Why {
    /// The message without its last part, about other jobs and queues, which changes as they start and end.
    pub fn own_words(&self) -> String {
        match self {
            Self::NoPlace(why) => why.own_words().trim_end_matches('.').to_owned(),
            Self::Invalid(_) | Self::NotAdmitted(_) | Self::NotTried(_) => self.to_string(),
        }
    }
}

impl Lacking {
    /// The beginning of a sentence; empty if the obstacle says all.
    fn words(self, short: Option<&Shortage>) -> String {
        match self {
            Self::Implied => String::new(),
            Self::OnlyPod => "the pod fits on no node: ".to_owned(),
            Self::NoGang => {
                "its pods name no PodGroup, so each starts by itself; it fits on no node: "
                    .to_owned()
            }
            Self::Pods(n_pods) => format!("{n_pods} more pods must be placed: "),
            Self::OfGang { min, .. } if min <= 1 => "none of its pods fits on a node: ".to_owned(),
            Self::OfGang { min, n_fitting } if n_fitting == min => {
                format!("{min} of {min} pods fit, but not at the same time: ")
            }
            Self::OfGang { min, n_fitting } => {
                let (missing, each) = match min - n_fitting {
                    1 => ("1 pod".to_owned(), ""),
                    n_missing => (format!("{n_missing} pods"), " each"),
                };
                let with = short.map(|Shortage { resource, requested, .. }| {
                    format!(" with {}{each}", people::named(resource, *requested))
                });
                let with = with.unwrap_or_default();
                format!("{n_fitting} of {min} pods can be placed; missing: {missing}{with}: ")
            }
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit { report, stuck: None } => report.fmt(f),
            Self::Unfit { report, stuck: Some(stuck) } => write!(f, "{report}; {stuck}"),
            Self::Undecided { min, n_fitting, .. } => write!(
                f,
                "{n_fitting} of {min} pods fit in the orders that were tried; the search for another one ended at \
                 its bound"
            ),
            Self::NoDomain(failure) => failure.fmt(f),
            Self::NotEnoughGroups(failure) => failure.fmt(f),
            Self::NeverFits { min, because } => never_fits(f, *min, because),
            Self::Capability(failure) => failure.fmt(f),
            Self::Jobs { queue, most: 1 } => write!(f, "queue \"{queue}\" may run 1 job at a time"),
            Self::Jobs { queue, most } => {
                write!(f, "queue \"{queue}\" may run {most} jobs at a time")
            }
            Self::Order { first: JobInQueue { job, queue, is_named: true } } => {
                write!(f, "job {job} is before it in queue \"{queue}\"")
            }
            Self::Order { first } => {
                write!(f, "another job is before it in queue \"{}\"", first.queue)
            }
            Self::Nominated(places) => places.fmt(f),
            Self::Guaranteed { queue, resource, amount } => {
                let amount = people::amount(resource, *amount);
                let resource = people::plural(resource);
                write!(f, "{amount} of the idle {resource} are guaranteed to queue \"{queue}\"")
            }
            Self::Withheld { queue, holder } => {
                write!(f, "{queue}; the idle resources are kept for ")?;
                match holder {
                    Some(JobInQueue { job, queue: other, is_named: true }) => {
                        write!(f, "queue \"{other}\" (job {job})")
                    }
                    Some(JobInQueue { queue: other, .. }) => write!(f, "queue \"{other}\""),
                    None => f.write_str("queues below their fair share"),
                }
            }
            Self::WouldBeReclaimed { by: JobInQueue { job, queue, is_named } } => {
                f.write_str("held back: the next cycle would reclaim its place for ")?;
                write!(f, "queue \"{queue}\"")?;
                if *is_named { write!(f, " (job {job})") } else { Ok(()) }
            }
            Self::WouldBePreempted { by } => {
                write!(f, "held back: {} would preempt it in the next cycle", of_same_queue(by))
            }
            Self::Reserved { node, holder, since } => {
                let holder = of_same_queue(holder);
                write!(f, "node {node} is reserved for {holder}, which has waited since {since}")
            }
            Self::Terminating { n_pods: 1 } => f.write_str("1 pod is being terminated"),
            Self::Terminating { n_pods } => write!(f, "{n_pods} pods are being terminated"),
            Self::QueueShare { queue } => queue.fmt(f),
            Self::NotCompared { n_nodes } => FitReport::new(*n_nodes).fmt(f),
        }
    }
}

impl fmt::Display for QueueAtShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { queue, above: None, .. } => write!(f, "queue \"{queue}\" is at its fair share"),
            Self { queue, above: Some(below), .. } => {
                write!(f, "queue \"{queue}\", above \"{below}\", is at its fair share")
            }
        }?;
        match &self.held {
            None => Ok(()),
            Some(ShareInUse { resource, used, deserved }) if used == deserved => {
                write!(f, ": it uses {}", people::named(resource, *used))
            }
            Some(ShareInUse { resource, used, deserved }) => {
                let deserved = people::amount(resource, *deserved);
                write!(f, ": it uses {}, and deserves {deserved}", people::named(resource, *used))
            }
        }
    }
}

impl fmt::Display for StuckPod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, node, grace_period_end, has_passed } = self;
        match pod {
            Some(pod) => write!(f, "pod {pod}")?,
            None => f.write_str("a pod")?,
        }
        write!(f, " on node {node} does not finish terminating")?;
        match (grace_period_end, has_passed) {
            (None, _) => Ok(()),
            (Some(end), false) => write!(f, " (its grace period ends at {end})"),
            (Some(end), true) => write!(f, " (its grace period ended at {end})"),
        }
    }
}

// Parity: see docs/parity.md#t5.
impl fmt::Display for NoDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, noun, n_tasks, best } = self;
        match best {
            None => write!(f, "no node has the label {key}, which its PodGroup requires"),
            Some(BestDomain { name, n_there: 0, n_fitting, report }) => {
                let tasks =
                    if *n_tasks == 1 { "1 task".to_owned() } else { format!("{n_tasks} tasks") };
                write!(
                    f,
                    "no {noun} can hold {tasks}: the best has room for {n_fitting} ({name}); there {report}"
                )
            }
            Some(BestDomain { name, n_there, n_fitting, report }) => {
                let are = if *n_there == 1 { "is" } else { "are" };
                write!(
                    f,
                    "{noun} {name}, where {n_there} of its tasks {are}, cannot hold {n_tasks} more: it has room \
                     for {n_fitting}; there {report}"
                )
            }
        }
    }
}

impl fmt::Display for NotEnoughGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { composite, n_fitting, min, domain } = self;
        let into = into_one(domain.as_deref());
        write!(
            f,
            "{n_fitting} of the {min} required groups of CompositePodGroup {composite} fit{into}"
        )
    }
}

/// Where pods have to fit together, for the end of a sentence; empty if that is anywhere.
fn into_one(domain: Option<&str>) -> String {
    domain.map(|noun| format!(" into one {noun}")).unwrap_or_default()
}

fn never_fits(f: &mut fmt::Formatter<'_>, min: u32, because: &NeverFits) -> fmt::Result {
    f.write_str("never fits: ")?;
    match because {
        NeverFits::Capability { queue, excess } => {
            let (requested, limit) = in_words(min, excess);
            write!(f, "{requested}, and queue \"{queue}\" is limited to {limit}")
        }
        NeverFits::Total(Excess { resource, limit, .. }) if **resource == *PODS => {
            write!(f, "{min} pods are required, and all nodes together take {limit} pods")
        }
        NeverFits::Total(excess) => {
            let (requested, limit) = in_words(min, excess);
            write!(f, "{requested}, and the whole cluster has {limit}")
        }
        NeverFits::UnknownResource(resource) if min == 1 => {
            write!(f, "the pod requests {resource}, which no node has")
        }
        NeverFits::UnknownResource(resource) => {
            write!(f, "the {min} required pods request {resource}, which no node has")
        }
        NeverFits::Nodes { now, .. } if min == 1 => {
            write!(f, "no node that the pod may use is large enough; now {now}")
        }
        NeverFits::Nodes { n_fitting: 0, now, .. } => write!(
            f,
            "none of the {min} required pods fits, even if the cluster were empty; now {now}"
        ),
        NeverFits::Nodes { n_fitting, domain, now } => {
            let into = into_one(domain.as_deref());
            write!(
                f,
                "at most {n_fitting} of the {min} required pods fit{into}, even if the cluster were empty; \
                 now {now}"
            )
        }
    }
}

/// What the required pods request, and the limit that it exceeds.
fn in_words(min: u32, Excess { resource, requested, limit }: &Excess) -> (String, String) {
    let pods = match min {
        1 => "the pod requests".to_owned(),
        n => format!("the {n} required pods request"),
    };
    let [requested, limit] = people::compared(resource, [*requested, *limit]);
    (format!("{pods} {}", people::with_name(resource, &requested)), limit)
}

impl fmt::Display for OverCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, resource, limit, in_use, needed, is_min_resources } = self;
        let [limit, needed] = people::compared(resource, [*limit, *needed]);
        let limit = people::with_name(resource, &limit);
        let in_use = in_words_of(resource, *in_use);
        let its = if *is_min_resources { " (its minResources)" } else { "" };
        write!(
            f,
            "queue \"{queue}\" is limited to {limit}, {in_use}, and this job needs {needed}{its}"
        )
    }
}

// Parity: see docs/parity.md#p15.
impl fmt::Display for ProtectedGang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gang, max_loss, resource, freed, usable } = self;
        let [freed, usable] = people::compared(resource, [*freed, *usable]);
        let freed = people::with_name(resource, &freed);
        let gang = match gang {
            JobInQueue { job, is_named: true, .. } => format!("gang {job}"),
            JobInQueue { queue, .. } => format!("a gang of queue \"{queue}\""),
        };
        write!(
            f,
            "; {gang} is protected by gang.maxLoss ({max_loss}): evicting it frees {freed}, and this \
             queue can use only {usable}"
        )
    }
}

impl fmt::Display for OwnPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { n_pods, nodes, n_more, n_leaving, end } = self;
        let nodes = some_of(nodes, nodes.len() + n_more);
        match n_pods {
            1 => write!(f, "1 pod has a place on {nodes}")?,
            _ => write!(f, "{n_pods} pods have places on {nodes}")?,
        }
        match n_leaving {
            0 => return f.write_str(", and wait for resources to be released"),
            1 => f.write_str("; waits for 1 pod that is being terminated")?,
            n_leaving => write!(f, "; waits for {n_leaving} pods that are being terminated")?,
        }
        end.map_or(Ok(()), |end| write!(f, ", until {end} at the latest"))
    }
}

/// Another job, where it is clear of which queue it is or that does not matter.
fn of_same_queue(job: &JobInQueue) -> String {
    if job.is_named { format!("job {}", job.job) } else { job.to_string() }
}

// Parity: see docs/parity.md#a12.
impl fmt::Display for OwnReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { since, nodes, n_more } = self;
        let others = if *n_more == 0 { String::new() } else { format!(" and {n_more} more") };
        let is_one = nodes.len() + n_more == 1;
        let (noun, are) = if is_one { ("node", "is") } else { ("nodes", "are") };
        write!(
            f,
            "; it has waited since {since}, and {noun} {}{others} {are} reserved for it",
            nodes.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::{Cause, Inadmissible};

    #[test]
    fn reports_read_as_kubernetes_writes_them() {
        let mut report = FitReport::new(12);
        report.add(NodeReason::Insufficient("cpu".into()), 7);
        report.add(NodeReason::Taint, 2);
        report.add(NodeReason::Insufficient("memory".into()), 2);
        report.add(NodeReason::Insufficient("cpu".into()), 3);
        assert_eq!(
            report.to_string(),
            "0/12 nodes are available: 10 Insufficient cpu, 2 Insufficient memory, \
             2 node(s) had untolerated taint(s)."
        );
        let message = "persistentvolumeclaim \"c\" not found".into();
        let missing = Inadmissible { cause: Cause::Volumes, message };
        assert_eq!(FitReport::new(0).to_string(), "no nodes available to schedule pods");
        assert_eq!(
            FitReport::everywhere(2, missing).to_string(),
            "0/2 nodes are available: persistentvolumeclaim \"c\" not found."
        );
    }
}
