//! Pods: what a task is.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    ControllerRef,
    class::PodTemplate,
    device::claim::ClaimEntry,
    fact::Fact,
    gang_annotations::GangAnnotations,
    group_refs::{GroupRef, GroupRefs},
    metadata::MetadataPrefixes,
    pod_hints::PodHints,
    run_time::RunTime,
    size::Bounds,
};
use crate::{
    group_version::{Join, ServedApis},
    intern::{InternTable, Interned},
    name::{JobKey, Name, Names, ObjectKey},
    selector::Labels,
    status::TaskStatus,
};

/// The field manager of everything that the scheduler writes.
pub const FIELD_MANAGER: &str = "kube-batch";

/// The fields of a pod that the scheduler uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFacts {
    /// The pod's uid.
    pub uid: Name,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Creation time.
    pub created: Timestamp,
    /// `spec.schedulerName`.
    pub scheduler: Name,
    /// The PodGroups that it names, at most one in each field. It belongs to the first whose API is served.
    #[serde(default, rename = "group", skip_serializing_if = "GroupRefs::is_empty")]
    pub groups: GroupRefs,
    /// Its annotations that count if it is in no PodGroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Arc<GangAnnotations>>,
    /// What in it tells why a gang lacks pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<Arc<PodHints>>,
    /// Its role in its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Name>,
    /// The controlling owner.
    pub controller: Option<ControllerRef>,
    /// `spec.priority`, 0 if absent.
    // Parity: differs, see docs/parity.md#r6.
    pub priority: i32,
    /// `spec.priorityClassName`.
    pub priority_class: Option<Name>,
    /// Whether `spec.preemptionPolicy` is `Never`.
    pub never_preempts: bool,
    /// Whether the pod has scheduling gates.
    pub gated: bool,
    /// The status of the pod according to the API server.
    pub status: TaskStatus,
    /// Whether it ended only after its deletion was accepted, and its controller does not count it: it counts for
    /// nothing.
    // Parity: see docs/parity.md#s3.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended_in_deletion: bool,
    /// When it started, if it runs: `status.startTime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When its grace period ends, if it is being terminated: `metadata.deletionTimestamp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminates_at: Option<Timestamp>,
    /// When it was bound, while it does not run: the time of its condition PodScheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_at: Option<Timestamp>,
    /// `spec.nodeName`.
    pub node: Option<Name>,
    /// Whether its creator named the node, and no kubelet has admitted it yet: it was not bound, and does not run.
    // Parity: see docs/parity.md#d7.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_admitted: bool,
    /// The queue from which kube-batch bound it, as it was when the pod was first seen on its node: see
    /// [`TaskFacts::keep_binding`].
    // Parity: see docs/parity.md#d6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_queue: Option<Name>,
    /// The minimum of its job when kube-batch bound it: see [`TaskFacts::keep_binding`].
    // Parity: see docs/parity.md#g1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_minimum: Option<u32>,
    /// Until when it may not be reclaimed, as kube-batch wrote it when it bound the pod: see
    /// [`TaskFacts::keep_binding`]. Of a pod without a node it is what a user has written, and means nothing.
    // Parity: see docs/parity.md#a12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected_until: Option<Timestamp>,
    /// How many pods of its index of a Job have failed before: the annotation
    /// `batch.kubernetes.io/job-index-failure-count`.
    // Parity: see docs/parity.md#p16.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub index_failures: u32,
    /// How long it runs at most, as it says: see [`crate::facts::run_time`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_time: Option<RunTime>,
    /// `status.nominatedNodeName`, if this scheduler wrote it.
    pub nominated_node: Option<Name>,
    /// Whether another component wrote `status.nominatedNodeName`.
    // Parity: see docs/parity.md#p1-nominations.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nominated_by_other: bool,
    /// The PodScheduled condition, if it is False: reason and message.
    pub unscheduled: Option<(Name, Name)>,
    /// Its claims for devices.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub device_claims: Box<[ClaimEntry]>,
    /// The claim from which it gets extended resources: `status.extendedResourceClaimStatus.resourceClaimName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_claim: Option<Name>,
    /// Labels. Not serialized: a dump writes them once for all pods that share them.
    #[serde(skip)]
    pub labels: Interned<Labels>,
    /// What placement rules can see of the pod. Not serialized, as the labels.
    #[serde(skip)]
    pub template: Interned<PodTemplate>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Fact for TaskFacts {
    // Of a pod that is above them, `read::pod` keeps less.
    const BOUNDS: Bounds = Bounds::USERS;

    fn decides_like(&self, other: &Self) -> bool {
        let Self { nominated_node, nominated_by_other, unscheduled, .. } = self;
        let other = Self {
            nominated_node: nominated_node.clone(),
            nominated_by_other: *nominated_by_other,
            unscheduled: unscheduled.clone(),
            ..other.clone()
        };
        *self == other
    }

    fn concerns_only_its_job(&self) -> bool {
        self.node.is_none() && self.status == TaskStatus::Pending
    }

    /// Devices may be reserved for a pod that waits.
    fn leaves_something(&self, next: Option<&Self>) -> bool {
        let has_claims = !self.device_claims.is_empty() || self.extended_claim.is_some();
        let is_gone = next.is_none_or(|next| next.uid != self.uid);
        !self.concerns_only_its_job() || (has_claims && is_gone)
    }

    fn keep(&mut self, earlier: &Self) {
        self.keep_binding(earlier);
    }
}

impl TaskFacts {
    /// The claims for devices that it names, in its order; a claim that two entries name comes twice.
    pub fn claim_keys(&self) -> impl Iterator<Item = ObjectKey> {
        let names = self.device_claims.iter().filter_map(ClaimEntry::claim);
        names.map(|name| ObjectKey::new(self.key.namespace.clone(), name.clone()))
    }

    /// Keeps what the binding wrote, as an earlier version of the pod has it, if that had a node: a user may change the
    /// annotations of a pod that is bound, but not the queue that it counts for, nor its protection.
    pub fn keep_binding(&mut self, earlier: &Self) {
        if earlier.uid == self.uid && earlier.node.is_some() {
            self.bound_queue.clone_from(&earlier.bound_queue);
            self.bound_minimum = earlier.bound_minimum;
            self.protected_until = earlier.protected_until;
        }
    }

    /// The PodGroup that it belongs to, given which APIs are served.
    pub fn group(&self, served: ServedApis) -> Option<(Join, ObjectKey)> {
        let GroupRef { join, name, .. } = self.groups.first(served)?;
        Some((*join, ObjectKey { namespace: self.key.namespace.clone(), name: name.clone() }))
    }

    /// The job that the pod belongs to, if it is scheduled by this scheduler.
    pub fn job_key(&self, served: ServedApis) -> JobKey {
        if let Some((join, group)) = self.group(served) {
            return JobKey::Group(join, group);
        }
        let namespace = self.key.namespace.clone();
        match &self.controller {
            Some(controller) => JobKey::Shadow {
                owner: ObjectKey { namespace, name: controller.name.clone() },
                uid: controller.uid.clone(),
            },
            None => JobKey::Pod { pod: self.key.clone(), uid: self.uid.clone() },
        }
    }
}

/// Gives equal names, labels and templates one allocation each, and knows which labels and
/// annotations are kept.
#[derive(Debug, Default)]
pub struct Interner {
    names: Names,
    labels: InternTable<Labels>,
    templates: InternTable<PodTemplate>,
    prefixes: MetadataPrefixes,
}

impl Interner {
    /// An interner that keeps these labels and annotations.
    pub fn new(prefixes: MetadataPrefixes) -> Self {
        Self { prefixes, ..Self::default() }
    }

    /// The labels and annotations that are kept.
    pub const fn prefixes(&self) -> &MetadataPrefixes {
        &self.prefixes
    }

    /// Replaces a name by the one that this interner shares.
    pub fn share(&mut self, name: &mut Name) {
        *name = self.names.intern(name);
    }

    /// A name as this interner shares it.
    pub fn name(&mut self, text: &str) -> Name {
        self.names.intern(text)
    }

    /// Labels that were just read, as this interner shares them.
    pub fn new_labels(&mut self, labels: Labels) -> Interned<Labels> {
        self.labels.intern(labels)
    }

    /// A template that was just read, as this interner shares it.
    pub fn new_template(&mut self, template: PodTemplate) -> Interned<PodTemplate> {
        self.templates.intern(template)
    }

    /// Labels as this interner shares them.
    pub fn labels(&mut self, labels: Arc<Labels>) -> Interned<Labels> {
        self.labels.intern_shared(labels)
    }

    /// A template as this interner shares it.
    pub fn template(&mut self, template: Arc<PodTemplate>) -> Interned<PodTemplate> {
        self.templates.intern_shared(template)
    }

    /// Frees names, labels and templates that no pod has any more.
    pub fn sweep(&mut self) {
        self.names.sweep();
        self.labels.sweep();
        self.templates.sweep();
    }

    /// Frees a part of the names, labels and templates that no pod has any more, another one with each call.
    pub fn sweep_some(&mut self) {
        self.names.sweep_some();
        self.labels.sweep_some();
        self.templates.sweep_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_pod_has_are_freed() {
        let mut interner = Interner::default();
        let kept = interner.names.intern("kept");
        for n in 0..100 {
            interner.names.intern(&format!("gone-{n}"));
        }
        interner.sweep();
        assert!(interner.names.len() == 1 && interner.names.intern("kept") == kept);
    }
}
