//! Pods of a Job that fail or are evicted: which of them count, and how long their replacements wait.
//!
//! Source: `pkg/controller/job/job_controller.go`, `backoff_utils.go` and `indexed_job_utils.go` of Kubernetes 1.37.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::JobSpec;
use kube_batch_api::read::failure_policy::{
    DEFAULT_BACKOFF_LIMIT, End, FailureAction, FailurePolicy,
};
use kube_batch_model::{
    facts::FactError,
    name::{Name, ObjectKey},
    status::TaskStatus,
};

use super::super::plan::{OwnedPod, number_of_pods};

/// How long the replacement waits after the first failure, and at most after many.
const BACKOFF: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(10), SignedDuration::from_mins(10));

/// Why a Job has failed, as its condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobFailure {
    DeadlineExceeded,
    /// More pods failed or were evicted than the limit.
    BackoffLimitExceeded {
        n_failed: usize,
        limit: usize,
    },
    PodFailurePolicy,
    MaxFailedIndexesExceeded,
    FailedIndexes,
}

impl JobFailure {
    /// The reason of the condition.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::BackoffLimitExceeded { .. } => "BackoffLimitExceeded",
            Self::PodFailurePolicy => "PodFailurePolicy",
            Self::MaxFailedIndexesExceeded => "MaxFailedIndexesExceeded",
            Self::FailedIndexes => "FailedIndexes",
        }
    }

    /// What happened, for people.
    pub(crate) fn message(self) -> String {
        match self {
            Self::DeadlineExceeded => "it ran longer than spec.activeDeadlineSeconds".to_owned(),
            Self::BackoffLimitExceeded { n_failed, limit } => format!(
                "{n_failed} of its pods failed or were evicted, and spec.backoffLimit is {limit}"
            ),
            Self::PodFailurePolicy => "a rule of spec.podFailurePolicy matched".to_owned(),
            Self::MaxFailedIndexesExceeded => {
                "more indexes failed than spec.maxFailedIndexes".to_owned()
            }
            Self::FailedIndexes => "some of its indexes failed".to_owned(),
        }
    }
}

/// Failures without a success after them.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    n: u32,
    last: Option<Timestamp>,
}

impl Streak {
    fn add(&mut self, now: Timestamp) {
        *self = Self { n: self.n.saturating_add(1), last: Some(now) };
    }

    /// Until when replacements wait.
    fn until(self) -> Option<Timestamp> {
        let doubled = 1_i32.checked_shl(self.n.checked_sub(1)?).filter(|factor| *factor > 0);
        let backoff = doubled.map_or(BACKOFF.1, |factor| (BACKOFF.0 * factor).min(BACKOFF.1));
        self.last?.checked_add(backoff).ok()
    }
}

/// Failures of the pods of one index.
#[derive(Clone, Copy, Debug, Default)]
struct OfIndex {
    /// All, also those that a rule ignores.
    all: Streak,
    n_counted: usize,
    has_failed: bool,
}

/// Limits of indexes, if each counts its own failures.
#[derive(Clone, Copy, Debug)]
struct PerIndex {
    limit: usize,
    max_failed: Option<usize>,
}

/// What fails, and what follows from it.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    limit: usize,
    per_index: Option<PerIndex>,
    policy: FailurePolicy,
    /// Whether a pod is replaced, and counts as failed, only when it has ended, not while it is terminating.
    waits_for_end: bool,
    /// Pods that have not ended, as far as they are known, with their indexes.
    known: Option<BTreeMap<Name, Option<usize>>>,
    n_counted: usize,
    streak: Streak,
    of_index: BTreeMap<usize, OfIndex>,
    fails_job: bool,
}

impl Failures {
    pub(super) fn new(key: &ObjectKey, spec: &JobSpec) -> Result<Self, FactError> {
        let count = |field, value: Option<i32>| {
            value.map(|value| number_of_pods("Job", key, field, value)).transpose()
        };
        let most = |field, value: Option<i32>| match value {
            // No limit, as API servers write it.
            Some(i32::MAX) => Ok(Some(usize::MAX)),
            _ => count(field, value),
        };
        let of_index = most("spec.backoffLimitPerIndex", spec.backoff_limit_per_index)?;
        let default = if of_index.is_some() { i32::MAX } else { DEFAULT_BACKOFF_LIMIT };
        let limit = most("spec.backoffLimit", spec.backoff_limit.or(Some(default)))?;
        let max_failed = count("spec.maxFailedIndexes", spec.max_failed_indexes)?;
        let only_failed = spec.pod_replacement_policy.as_deref() == Some("Failed");
        Ok(Self {
            limit: limit.unwrap_or_default(),
            per_index: of_index.map(|limit| PerIndex { limit, max_failed }),
            policy: FailurePolicy::new(spec.pod_failure_policy.as_ref()),
            waits_for_end: only_failed || spec.pod_failure_policy.is_some(),
            ..Self::default()
        })
    }

    pub(super) fn keep_progress(&mut self, old: Self) {
        let Self { known, n_counted, streak, of_index, fails_job, .. } = old;
        *self = Self { known, n_counted, streak, of_index, fails_job, ..self.clone() };
    }

    /// Number of pods that have failed, as far as they count.
    pub(super) const fn n_counted(&self) -> usize {
        self.n_counted
    }

    /// Number of pods of an index that have failed, as far as they count, if indexes count their own.
    pub(super) fn n_counted_of(&self, index: usize) -> usize {
        self.of_index.get(&index).map_or(0, |own| own.n_counted)
    }

    /// Number of pods that are terminating, and replaced only when they have ended.
    pub(super) fn n_waited_for(&self, pods: &[OwnedPod]) -> usize {
        let is_terminating =
            |pod: &&OwnedPod| matches!(pod.status, TaskStatus::Releasing | TaskStatus::Stuck);
        if self.waits_for_end { pods.iter().filter(is_terminating).count() } else { 0 }
    }

    /// Looks at what became of the pods. `reported` have failed before, according to the status of the Job; `evicted`
    /// are those to which the scheduler gave the condition `DisruptionTarget`.
    pub(super) fn look(
        &mut self,
        owner: &ObjectKey,
        pods: &[OwnedPod],
        reported: usize,
        evicted: &BTreeSet<ObjectKey>,
        now: Timestamp,
    ) {
        let active = pods.iter().filter(|pod| pod.is_active());
        let active: BTreeMap<Name, Option<usize>> =
            active.map(|pod| (pod.key.name.clone(), pod.index)).collect();
        let Some(known) = self.known.take() else {
            let n_failed = pods.iter().filter(|pod| pod.status == TaskStatus::Failed).count();
            self.n_counted = n_failed.max(reported);
            self.known = Some(active);
            return;
        };
        let mut rest = active.clone();
        let (mut n_succeeded, mut failed) = (0, Vec::new());
        for (name, index) in known.into_iter().filter(|(name, _)| !active.contains_key(name)) {
            let now_is = pods.iter().find(|pod| pod.key.name == name).map(|pod| pod.status);
            match now_is {
                Some(TaskStatus::Succeeded) => n_succeeded += 1,
                Some(TaskStatus::Releasing | TaskStatus::Stuck) if self.waits_for_end => {
                    rest.insert(name, index);
                }
                _ => failed.push((name, index)),
            }
        }
        if n_succeeded > 0 {
            // Failures of the same second are not after it.
            self.streak = Streak::default();
        }
        for (name, index) in failed {
            let key = ObjectKey { namespace: owner.namespace.clone(), name };
            let end = if evicted.contains(&key) { End::Evicted } else { End::Failed };
            self.count(index, end, now, n_succeeded > 0);
        }
        self.known = Some(rest);
    }

    fn count(&mut self, index: Option<usize>, end: End, now: Timestamp, has_succeeded: bool) {
        let action = self.policy.action(end);
        let counts = action != FailureAction::Ignore;
        self.fails_job |= action == FailureAction::FailJob;
        self.n_counted += usize::from(counts);
        if !has_succeeded {
            self.streak.add(now);
        }
        if let Some((per_index, index)) = self.per_index.zip(index) {
            let own = self.of_index.entry(index).or_default();
            own.all.add(now);
            own.n_counted += usize::from(counts);
            own.has_failed |= action == FailureAction::FailIndex || own.n_counted > per_index.limit;
        }
    }

    /// The pods that are stopped by the Job itself count for nothing.
    pub(super) fn forget_pods(&mut self) {
        self.known = Some(BTreeMap::new());
    }

    /// Whether an index has failed for good.
    pub(super) fn has_failed(&self, index: usize) -> bool {
        self.of_index.get(&index).is_some_and(|own| own.has_failed)
    }

    /// Why the Job fails, with this number of completions and of indexes that have succeeded.
    pub(super) fn of_job(&self, completions: Option<usize>, n_done: usize) -> Option<JobFailure> {
        if self.fails_job {
            return Some(JobFailure::PodFailurePolicy);
        }
        if self.n_counted > self.limit {
            let (n_failed, limit) = (self.n_counted, self.limit);
            return Some(JobFailure::BackoffLimitExceeded { n_failed, limit });
        }
        let n_failed = self.of_index.values().filter(|own| own.has_failed).count();
        let most = self.per_index?.max_failed;
        if most.is_some_and(|most| n_failed > most) {
            return Some(JobFailure::MaxFailedIndexesExceeded);
        }
        let is_over = n_failed > 0 && completions.is_some_and(|all| n_failed + n_done >= all);
        is_over.then_some(JobFailure::FailedIndexes)
    }

    /// Until when no pod of this index is created, or of none.
    pub(super) fn waits_until(&self, index: Option<usize>, now: Timestamp) -> Option<Timestamp> {
        let until = match (self.per_index, index) {
            (Some(_), Some(index)) => self.of_index.get(&index)?.all.until(),
            (Some(_), None) => None,
            (None, _) => self.streak.until(),
        };
        until.filter(|until| *until > now)
    }
}
