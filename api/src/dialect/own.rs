//! The PodGroups and queues of this project, whose two API groups are field for field the same.

use std::sync::Arc;

use super::{
    object::RawObject,
    spec::{Dialect, DialectSpec, Patch},
    status::{Transition, set_condition, texts, write_counts},
};
use crate::{
    api_version::ApiVersion,
    crd::{
        GANG_EVICTED, MISCONFIGURED, PREEMPTED, PodGroupSpec, PodGroupStatus, QueueSpec,
        QueueStatus, RECLAIMED, UNSCHEDULABLE,
    },
    decision::EvictReason,
    facts::{
        FactError,
        group::{GroupFacts, min_member},
        metadata::MetadataPrefixes,
        queue::QueueFacts,
        topology::TopologyFacts,
    },
    job_report::{JobReport, Phase},
    naming::IN_SPEC,
};

/// The older API group.
pub(super) const V1ALPHA1: DialectSpec = DialectSpec {
    groups: "podgroups.scheduling.incubator.k8s.io",
    queues: Some("queues.scheduling.incubator.k8s.io"),
    naming: IN_SPEC,
    patch: Patch::Status,
    dialect: &Own(ApiVersion::V1Alpha1),
};

/// The newer API group.
pub(super) const V1ALPHA2: DialectSpec = DialectSpec {
    groups: "podgroups.scheduling.sigs.dev",
    queues: Some("queues.scheduling.sigs.dev"),
    naming: IN_SPEC,
    patch: Patch::Status,
    dialect: &Own(ApiVersion::V1Alpha2),
};

struct Own(ApiVersion);

impl Dialect for Own {
    fn read_group(
        &self,
        object: &RawObject,
        prefixes: &MetadataPrefixes,
    ) -> Result<GroupFacts, FactError> {
        let spec: PodGroupSpec = object.spec("PodGroup")?;
        let status: PodGroupStatus = object.status("PodGroup")?;
        let annotations = object.metadata.annotations.as_ref();
        let mut facts =
            GroupFacts::new((self.0, IN_SPEC), (&object.metadata, &object.spec), prefixes)?;
        facts.min_member = min_member(&facts.key, spec.min_member)?;
        facts.topology = TopologyFacts::of_annotations(annotations).map(Arc::new);
        facts.status = status;
        Ok(facts)
    }

    fn read_queue(&self, object: &RawObject) -> Result<QueueFacts, FactError> {
        let spec: QueueSpec = object.spec("Queue")?;
        let status: QueueStatus = object.status("Queue")?;
        QueueFacts::from_parts(self.0, &object.metadata, &spec, Some(&status))
    }

    /// There is at most one condition of each type. Unschedulable is True with a reason while the group
    /// cannot start, Misconfigured while there are mistakes in its objects, Preempted or Reclaimed from when
    /// the gang was evicted as a whole until it runs again. Each is False once that no longer holds. Time and
    /// transition id change only when the status of the condition does.
    // Parity: differs, see docs/parity.md#e1 and docs/parity.md#e2.
    fn next_status(
        &self,
        stored: &PodGroupStatus,
        report: &JobReport,
        at: Transition<'_>,
    ) -> PodGroupStatus {
        let mut next = stored.clone();
        next.phase = report.phase.to_string();
        write_counts(&mut next, report);
        let unschedulable = report.unschedulable.as_ref().map(texts);
        set_condition(&mut next.conditions, UNSCHEDULABLE, unschedulable, at);
        let misconfigured = report.misconfigured();
        set_condition(&mut next.conditions, MISCONFIGURED, misconfigured.as_ref().map(texts), at);
        for (type_, reason) in
            [(PREEMPTED, EvictReason::Preempt), (RECLAIMED, EvictReason::Reclaim)]
        {
            match &report.evicted {
                Some((of, why)) if *of == reason => {
                    set_condition(&mut next.conditions, type_, Some((GANG_EVICTED, why)), at);
                }
                // It runs again.
                _ if report.phase == Phase::Running => {
                    set_condition(&mut next.conditions, type_, None, at);
                }
                _ => {}
            }
        }
        next
    }
}
