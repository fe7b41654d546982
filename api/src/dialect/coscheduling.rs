//! PodGroups of the coscheduling plugin of scheduler-plugins, `scheduling.x-k8s.io/v1alpha1`.
//!
//! Their status has no conditions. Why a gang waits is reported in the conditions of its pods and in events.
//! The phases are those that the controller of scheduler-plugins sets; do not run it beside this scheduler.
//!
//! Source: `pkg/controllers/podgroup_controller.go` of scheduler-plugins.
// Parity: see docs/parity.md#k3.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    object::RawObject,
    spec::{Dialect, DialectSpec, Patch, no_queues, without},
    status::{Transition, write_counts},
};
use crate::{
    api_version::ApiVersion,
    crd::PodGroupStatus,
    facts::{
        FactError,
        group::{GroupFacts, min_member},
        metadata::MetadataPrefixes,
        queue::QueueFacts,
    },
    job_report::{JobReport, Phase},
    naming::{Class, Naming, QUEUE_IN_METADATA},
};

pub(super) const SPEC: DialectSpec = DialectSpec {
    groups: "podgroups.scheduling.x-k8s.io",
    queues: None,
    naming: Naming { queue: QUEUE_IN_METADATA, class: Class::Unchecked },
    patch: Patch::Status,
    dialect: &Coscheduling,
};

/// The fields of a PodGroup that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupSpec {
    min_member: i32,
    min_resources: Option<BTreeMap<String, Quantity>>,
}

/// The status, without the fields that this scheduler does not write.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    running: i32,
    succeeded: i32,
    failed: i32,
}

struct Coscheduling;

impl Dialect for Coscheduling {
    fn read_group(
        &self,
        object: &RawObject,
        prefixes: &MetadataPrefixes,
    ) -> Result<GroupFacts, FactError> {
        let spec: GroupSpec = object.spec("PodGroup")?;
        let status: Status = object.status("PodGroup")?;
        let mut facts = GroupFacts::new(
            (ApiVersion::Coscheduling, SPEC.naming),
            (&object.metadata, &object.spec),
            prefixes,
        )?;
        facts.min_member = min_member(&facts.key, spec.min_member)?;
        facts.set_min_resources(spec.min_resources.as_ref())?;
        facts.status = PodGroupStatus {
            phase: status.phase,
            running: status.running,
            succeeded: status.succeeded,
            failed: status.failed,
            ..PodGroupStatus::default()
        };
        Ok(facts)
    }

    fn read_queue(&self, object: &RawObject) -> Result<QueueFacts, FactError> {
        Err(no_queues(object))
    }

    fn next_status(
        &self,
        stored: &PodGroupStatus,
        report: &JobReport,
        _: Transition<'_>,
    ) -> PodGroupStatus {
        let mut next = stored.clone();
        write_counts(&mut next, report);
        next.ready = 0;
        next.phase = phase(report).to_owned();
        next
    }

    fn status_value(&self, status: &PodGroupStatus) -> Value {
        without(json!(status), &["ready", "conditions"])
    }

    fn has_conditions(&self) -> bool {
        false
    }

    fn reports(&self, status: &PodGroupStatus, _: &str, _: &str) -> bool {
        // The status has no field for the message.
        matches!(&*status.phase, "Pending" | "PreScheduling" | "Scheduling")
    }
}

/// The phase as the controller of scheduler-plugins derives it.
fn phase(report: &JobReport) -> &'static str {
    let JobReport { running, succeeded, failed, min_available, n_tasks, ready, .. } = *report;
    let min = min_available.max(1);
    if n_tasks < min {
        "Pending"
    } else if succeeded >= min && report.phase == Phase::Completed {
        "Finished"
    } else if failed > 0 && failed + running + succeeded >= min {
        "Failed"
    } else if running + succeeded >= min {
        "Running"
    } else if ready >= min {
        "Scheduled"
    } else {
        "Scheduling"
    }
}
