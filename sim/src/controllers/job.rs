//! The controller of Job.

mod failures;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};
use kube_batch_cache::store::Store;
use kube_batch_model::{
    facts::{
        FactError,
        batch_job::{BatchJobFacts, BatchJobState, OnEviction},
        pod::TaskFacts,
    },
    name::{Name, ObjectKey},
    status::TaskStatus,
};

use self::failures::Failures;
pub(crate) use self::failures::JobFailure;
use super::plan::{NewPod, Numbers, OwnedPod, Plan, is_free, number_of_pods};

/// Label of the pods of an indexed Job.
const INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";

/// What a Job wants, and how far it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobRun {
    parallelism: usize,
    completions: Option<usize>,
    is_indexed: bool,
    is_suspended: bool,
    is_finished: bool,
    is_complete: bool,
    /// Why it has failed, if that was here.
    failure: Option<JobFailure>,
    deadline: Option<SignedDuration>,
    failures: Failures,
    /// Pods that have succeeded, and failed, according to the status.
    reported: (usize, usize),
    /// Pods that have succeeded, but are not in the input; known when the controller first runs.
    gone: Option<usize>,
    /// Indexes that have succeeded, as far as the status knows.
    done: BTreeSet<usize>,
    /// When it started.
    started: Option<Timestamp>,
    /// When it stops its pods, while it has some, or creates pods that wait for their turn.
    next_change: Option<Timestamp>,
    /// Number of pods created for each index.
    attempts: BTreeMap<usize, usize>,
}

impl JobRun {
    /// The Job of a manifest.
    pub(crate) fn new(
        key: &ObjectKey,
        spec: &JobSpec,
        status: Option<&JobStatus>,
    ) -> Result<Self, FactError> {
        let count = |field, value: Option<i32>| {
            value.map(|value| number_of_pods("Job", key, field, value)).transpose()
        };
        let completions = count("spec.completions", spec.completions)?;
        let is_indexed = spec.completion_mode.as_deref() == Some("Indexed");
        let status = status.cloned().unwrap_or_default();
        let counted = |n: Option<i32>| usize::try_from(n.unwrap_or(0)).unwrap_or(0);
        let has = |type_: &str| {
            let mut conditions = status.conditions.iter().flatten();
            conditions.any(|c| c.type_ == type_ && c.status == "True")
        };
        Ok(Self {
            parallelism: count("spec.parallelism", spec.parallelism)?.unwrap_or(1),
            is_indexed: is_indexed && completions.is_some(),
            is_suspended: spec.suspend == Some(true),
            is_finished: has("Complete")
                || has("Failed")
                || has("SuccessCriteriaMet")
                || has("FailureTarget"),
            deadline: spec.active_deadline_seconds.map(SignedDuration::from_secs),
            failures: Failures::new(key, spec)?,
            reported: (counted(status.succeeded), counted(status.failed)),
            done: indexes(status.completed_indexes.as_deref().unwrap_or_default(), completions),
            completions,
            ..Self::default()
        })
    }

    pub(super) fn keep_progress(&mut self, old: Self) {
        self.is_finished |= old.is_finished;
        self.failure = old.failure;
        self.failures.keep_progress(old.failures);
        self.gone = old.gone;
        self.done.extend(old.done);
        self.started = old.started;
        self.attempts = old.attempts;
    }

    /// Its JobSet has failed.
    pub(super) const fn finish(&mut self) {
        self.is_finished = true;
        self.next_change = None;
    }

    pub(super) const fn failure(&self) -> Option<JobFailure> {
        self.failure
    }

    /// What the scheduler knows of it, after what its manifest says.
    pub(super) fn facts(&self, manifest: &BatchJobFacts) -> BatchJobFacts {
        let (_, n_reported) = self.reported;
        let on_eviction = match manifest.on_eviction {
            OnEviction::Counts { left } => {
                let n_failed = self.failures.n_counted().saturating_sub(n_reported);
                let n_failed = u32::try_from(n_failed).unwrap_or(u32::MAX);
                OnEviction::Counts { left: left.saturating_sub(n_failed) }
            }
            other @ (OnEviction::Survives | OnEviction::CountsForIndex { .. }) => other,
        };
        let state = match (&manifest.state, self.failure) {
            (_, Some(failure)) => BatchJobState::Failed { reason: Name::from(failure.reason()) },
            (BatchJobState::Active { .. }, None) if self.is_complete => BatchJobState::Complete,
            (BatchJobState::Active { .. }, None) => {
                let n_failed = u32::try_from(self.failures.n_counted()).unwrap_or(u32::MAX);
                BatchJobState::Active { n_failed }
            }
            (state, None) => state.clone(),
        };
        BatchJobFacts { on_eviction, state, ..manifest.clone() }
    }

    /// When it does something without a change of its pods.
    pub(super) const fn next_change(&self) -> Option<Timestamp> {
        self.next_change
    }

    pub(super) fn plan(
        &mut self,
        numbers: &mut Numbers,
        owner: &ObjectKey,
        pods: &[OwnedPod],
        evicted: &BTreeSet<ObjectKey>,
        store: &Store,
        now: Timestamp,
    ) -> Plan {
        let with = |status| pods.iter().filter(move |pod| pod.status == status);
        let succeeded = with(TaskStatus::Succeeded).count();
        let active: Vec<&OwnedPod> = pods.iter().filter(|pod| pod.is_active()).collect();
        let (reported_succeeded, reported_failed) = self.reported;
        let gone = *self.gone.get_or_insert(reported_succeeded.saturating_sub(succeeded));
        self.failures.look(owner, pods, reported_failed, evicted, now);
        self.next_change = None;
        if self.is_finished {
            return Plan::default();
        }
        let stop = || Plan {
            delete: active.iter().map(|pod| pod.key.clone()).collect(),
            ..Plan::default()
        };
        if self.is_suspended {
            // The time of activeDeadlineSeconds starts again when it is resumed.
            self.started = None;
            self.failures.forget_pods();
            return stop();
        }
        if self.is_indexed {
            self.done.extend(with(TaskStatus::Succeeded).filter_map(|pod| pod.index));
        }
        let started = *self.started.get_or_insert(now);
        let ends = self.deadline.and_then(|deadline| started.checked_add(deadline).ok());
        let is_late =
            || ends.is_some_and(|ends| ends <= now).then_some(JobFailure::DeadlineExceeded);
        self.failure = self.failures.of_job(self.completions, self.done.len()).or_else(is_late);
        if self.failure.is_some() {
            self.is_finished = true;
            return stop();
        }
        let wanted = self.n_active(succeeded + gone);
        self.is_complete = wanted == 0 && active.is_empty() && succeeded + gone > 0;
        let n_kept = active.len() + self.failures.n_waited_for(pods);
        let n_missing = wanted.saturating_sub(n_kept);
        let (create, later) = if self.is_indexed {
            let busy = active.iter().filter_map(|pod| pod.index).collect();
            self.next_indexes(n_missing, &busy, owner, store, now)
        } else {
            match self.failures.waits_until(None, now).filter(|_| n_missing > 0) {
                Some(later) => (Vec::new(), Some(later)),
                None => (numbers.next(n_missing, owner, store), None),
            }
        };
        let ends = ends.filter(|_| !active.is_empty() || !create.is_empty());
        self.next_change = ends.into_iter().chain(later).min();
        Plan { create, ..Plan::default() }
    }

    /// Number of pods that may run at once when this number has succeeded.
    fn n_active(&self, n_succeeded: usize) -> usize {
        match self.completions {
            Some(completions) => self.parallelism.min(completions.saturating_sub(n_succeeded)),
            None => self.parallelism.saturating_sub(n_succeeded),
        }
    }

    /// The next pods of the lowest indexes that have neither succeeded or failed nor a pod, and when the first of those
    /// can be created that have to wait.
    fn next_indexes(
        &mut self,
        n_pods: usize,
        busy: &BTreeSet<usize>,
        owner: &ObjectKey,
        store: &Store,
        now: Timestamp,
    ) -> (Vec<NewPod>, Option<Timestamp>) {
        let all = 0..self.completions.unwrap_or_default();
        let is_over = |index: &usize| self.done.contains(index) || self.failures.has_failed(*index);
        let free = all.filter(|index| !is_over(index) && !busy.contains(index));
        let waits = |index: &usize| self.failures.waits_until(Some(*index), now);
        let (late, indexes): (Vec<usize>, Vec<usize>) =
            free.take(n_pods).partition(|index| waits(index).is_some());
        let later = late.iter().filter_map(waits).min();
        let new = |index| NewPod {
            name: self.name_of(index, owner, store),
            index: Some(index),
            n_failed_before: self.failures.n_counted_of(index),
        };
        (indexes.into_iter().map(new).collect(), later)
    }

    /// `job-2` for the first pod of index 2, then `job-2-1`.
    fn name_of(&mut self, index: usize, owner: &ObjectKey, store: &Store) -> Name {
        let attempts = self.attempts.entry(index).or_default();
        loop {
            let name = Name::from(match *attempts {
                0 => format!("{}-{index}", owner.name),
                n => format!("{}-{index}-{n}", owner.name),
            });
            *attempts += 1;
            if is_free(owner, &name, store) {
                return name;
            }
        }
    }
}

/// The completion index or ordinal of a pod: of its label, else the number after the name of its
/// controller.
pub(crate) fn pod_index(owner: &ObjectKey, facts: &TaskFacts) -> Option<usize> {
    let labelled = facts.labels.get(INDEX_LABEL).and_then(|text| text.parse().ok());
    let number = || {
        let rest = facts.key.name.strip_prefix(&*owner.name)?.strip_prefix('-')?;
        rest.split('-').next()?.parse().ok()
    };
    labelled.or_else(number)
}

/// The indexes of `0-2,5` that are below `completions`.
fn indexes(text: &str, completions: Option<usize>) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            all.extend(first..=last.min(completions.unwrap_or(0)));
        }
    }
    all
}
