//! The controllers of the Jobs of manifests and JobSets.
//!
//! Source for restarts: `pkg/controllers/failure_policy.go` of JobSet 0.12.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::Job,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube_batch_api::{
    jobset::{JobSet, JobSetFailurePolicy},
    read,
};
use kube_batch_model::{facts::FactError, name::ObjectKey};

use super::{
    controller::{Controller, ControllerKind},
    job::JobRun,
    plan::{Numbers, number_of_pods},
    pods::Pods,
    template::Template,
};

/// Label of the pods of a JobSet: its part of the set.
pub(super) const REPLICATED_JOB: &str = "jobset.sigs.k8s.io/replicatedjob-name";

/// How far a JobSet is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobSetRun {
    n_restarts: usize,
    pub(super) has_failed: bool,
}

impl JobSetRun {
    /// One of its Jobs has failed: either all are created again, or the set has failed.
    pub(super) fn job_failed(
        &mut self,
        policy: Option<&JobSetFailurePolicy>,
        replicated_job: &str,
        reason: &str,
    ) {
        let rules = policy.iter().flat_map(|policy| &policy.rules);
        let rule = rules.clone().find(|rule| {
            let names = |names: &[String], name: &str| {
                names.is_empty() || names.iter().any(|own| own == name)
            };
            names(&rule.target_replicated_jobs, replicated_job)
                && names(&rule.on_job_failure_reasons, reason)
        });
        let most = policy.and_then(|policy| policy.max_restarts).unwrap_or(0);
        let is_left = self.n_restarts < usize::try_from(most).unwrap_or(0);
        match rule.map(|rule| &*rule.action) {
            Some("RestartJobSetAndIgnoreMaxRestarts") => {}
            Some("FailJobSet") => self.has_failed = true,
            Some(_) | None if is_left => self.n_restarts += 1,
            Some(_) | None => self.has_failed = true,
        }
    }
}

/// The Jobs of a JobSet, named `<jobset>-<replicated job>-<number>`; none when it has finished.
pub(crate) fn jobs_of(
    key: &ObjectKey,
    job_set: &JobSet,
    now: Timestamp,
) -> Vec<Result<Controller, FactError>> {
    let mut jobs = Vec::new();
    if job_set.is_finished() {
        return jobs;
    }
    for (at, replicated) in job_set.spec.replicated_jobs.iter().enumerate() {
        let field = format!("spec.replicatedJobs[{at}]");
        let replicas = replicated.replicas.unwrap_or(1);
        let replicas = match number_of_pods("JobSet", key, &format!("{field}.replicas"), replicas) {
            Ok(replicas) => replicas,
            Err(error) => {
                jobs.push(Err(error));
                continue;
            }
        };
        for number in 0..replicas {
            let name = format!("{}-{}-{number}", key.name, replicated.name);
            let template = replicated.template.clone();
            let mut spec = template.spec.unwrap_or_default();
            // As its webhook sets it.
            spec.completion_mode.get_or_insert_with(|| "Indexed".to_owned());
            spec.suspend = Some(job_set.spec.suspend == Some(true) || spec.suspend == Some(true));
            let meta = template.metadata.unwrap_or_default();
            let labels = [
                ("jobset.sigs.k8s.io/jobset-name", key.name.to_string()),
                (REPLICATED_JOB, replicated.name.clone()),
                ("jobset.sigs.k8s.io/job-index", number.to_string()),
            ];
            let of_pods = spec.template.metadata.get_or_insert_default();
            let pod_labels = of_pods.labels.get_or_insert_default();
            for (label, value) in labels {
                pod_labels.entry(label.to_owned()).or_insert(value);
            }
            let metadata = ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(key.namespace.to_string()),
                uid: Some(format!("{}/{name}", key.namespace)),
                creation_timestamp: job_set.metadata.creation_timestamp.clone(),
                owner_references: Some(vec![OwnerReference {
                    kind: "JobSet".to_owned(),
                    name: key.name.to_string(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]),
                ..meta
            };
            let job = Job { metadata, spec: Some(spec), status: None };
            let job_key = ObjectKey::new(key.namespace.clone(), name);
            jobs.push(job_controller(job_key, &job, now).map_err(|error| FactError {
                object: format!("JobSet {key}"),
                field: format!("{field}.template.{}", error.field),
                problem: error.problem,
            }));
        }
    }
    jobs
}

/// The controller of a Job.
pub(crate) fn job_controller(
    key: ObjectKey,
    job: &Job,
    now: Timestamp,
) -> Result<Controller, FactError> {
    let spec = job.spec.clone().unwrap_or_default();
    let run = JobRun::new(&key, &spec, job.status.as_ref())?;
    let pods = Pods::Job(Box::new(run), Numbers::default());
    let template = Template::new(&format!("Job {key}"), spec.template)?;
    let manifest = read::batch_job(job)?;
    let controller = Controller::new(ControllerKind::Job, key, &job.metadata, now, pods, template);
    Ok(Controller { manifest: Some(Arc::new(manifest)), ..controller })
}
