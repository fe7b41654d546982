//! For how long gangs have been incomplete: some of their tasks run, and fewer than the minimum do.
//!
//! That happens when a node dies, or when the API server rejects some of the bindings of a gang. A
//! binding that was rejected counts as in flight for the decisions of a cycle, so that its place is
//! kept during its back-off, but its task does not run. So this is computed from what the API server
//! has confirmed or not yet answered.
// Parity: new, see docs/parity.md#g1.

use std::{collections::BTreeMap, time::Duration};

use kube_batch_model::{
    cluster::Cluster, column::JobIdx, gang::Sense, name::JobKey, pairs, status::TaskStatus,
};
use serde::{Deserialize, Serialize};

use crate::{
    assumed::AfterRejection,
    snapshot::{RejectedTask, Snapshot},
};

/// The incomplete jobs of the snapshots so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct IncompleteJobs(#[serde(with = "pairs")] BTreeMap<JobKey, Since>);

/// Since when a job is incomplete, without progress.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Since {
    /// The largest number of its tasks that ran or had finished.
    most: u32,
    at: Duration,
}

/// The tasks of a job whose bindings the API server rejected, and which count as being bound.
#[derive(Clone, Copy, Debug, Default)]
struct Rejected {
    waiting: u32,
    retrying: u32,
}

impl IncompleteJobs {
    /// Compares a snapshot with those before it, and completes it: for how long each job has been
    /// incomplete, and the places that rejected tasks of such a job keep. `now` is the time since a
    /// fixed moment.
    ///
    /// The time of a job starts again whenever more of its tasks run than ever since it is incomplete:
    /// it makes progress.
    pub(crate) fn observe(&mut self, snapshot: &mut Snapshot, now: Duration) {
        let rejected = rejected_by_job(snapshot);
        let before = std::mem::take(&mut self.0);
        let cluster = &mut snapshot.cluster;
        for job in cluster.jobs.key.ids() {
            let Rejected { waiting, retrying } = rejected.get(&job).copied().unwrap_or_default();
            // What is being bound again may complete it: that is known once it is answered.
            let may_be_complete = cluster.members(job, Sense::Ready).without(waiting);
            let started = may_be_complete.without(retrying);
            if started.are_enough() || !has_running(cluster, job) {
                continue;
            }
            let key = &cluster.jobs.key[job];
            let known = before.get(key).filter(|since| started.n <= since.most).copied();
            let since = known.unwrap_or(Since { most: started.n, at: now });
            self.0.insert(key.clone(), since);
            if !may_be_complete.are_enough() {
                cluster.jobs.incomplete_for[job] = Some(now.saturating_sub(since.at));
                cluster.jobs.is_torn[job] = started.min <= bound_minimum(cluster, job);
            }
        }
        keep_places(snapshot);
    }
}

fn rejected_by_job(snapshot: &Snapshot) -> BTreeMap<JobIdx, Rejected> {
    let mut by_job: BTreeMap<JobIdx, Rejected> = BTreeMap::new();
    let tasks = &snapshot.cluster.tasks;
    for RejectedTask { task, state, .. } in &snapshot.rejected {
        let is_bound_here = tasks.placement[*task].status == TaskStatus::Binding;
        if let Some(job) = tasks.job[*task].filter(|_| is_bound_here) {
            let rejected = by_job.entry(job).or_default();
            match state {
                AfterRejection::Waits => rejected.waiting += 1,
                AfterRejection::Retries => rejected.retrying += 1,
            }
        }
    }
    by_job
}

fn has_running(cluster: &Cluster, job: JobIdx) -> bool {
    let counts = &cluster.jobs.counts[job];
    counts.of(TaskStatus::Running) + counts.of(TaskStatus::Bound) > 0
}

/// How many tasks of the job started together, as its tasks on nodes say; the minimum of the job if none of them says.
fn bound_minimum(cluster: &Cluster, job: JobIdx) -> u32 {
    let tasks = cluster.jobs.tasks[job].iter();
    let on_nodes = tasks.filter(|task| cluster.status(*task).is_held());
    let known = on_nodes.filter_map(|task| cluster.tasks.facts[task].bound_minimum).max();
    known.unwrap_or(cluster.jobs.min_available[job])
}

/// Lets the tasks of incomplete jobs keep the places at which they were to be bound.
fn keep_places(Snapshot { cluster, rejected, .. }: &mut Snapshot) {
    for RejectedTask { task, kept, .. } in rejected {
        let job = cluster.tasks.job[*task];
        let is_incomplete = job.is_some_and(|job| cluster.jobs.incomplete_for[job].is_some());
        if kept.is_some() && is_incomplete {
            cluster.tasks.nominated[*task] = *kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kube_batch_model::{
        column::Ordinal as _,
        decision::{Decision, PodRef},
        group_version::GroupVersion::V1Alpha2,
        membership::BOUND_MINIMUM_ANNOTATION,
        name::ObjectKey,
    };
    use serde_json::json;

    use super::*;
    use crate::{
        assumed::Assumed,
        snapshot::{SnapshotOptions, take_snapshot},
        store::Store,
    };

    /// A gang with a minimum of three pods, the first of which runs on a node.
    struct World {
        store: Store,
        assumed: Assumed,
        incomplete: IncompleteJobs,
    }

    impl World {
        fn new() -> Self {
            let mut store = Store::default();
            let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "9"}}});
            store.put_node(node);
            let mut world =
                Self { store, assumed: Assumed::default(), incomplete: IncompleteJobs::default() };
            world.set_minimum(3);
            world.put("a", true);
            world.put("b", false);
            world.put("c", false);
            world
        }

        fn set_minimum(&mut self, minimum: i32) {
            let group = json!({
                "metadata": {"name": "g", "namespace": "ns", "uid": "g"},
                "spec": {"minMember": minimum},
            });
            self.store.put_group(V1Alpha2, group);
        }

        fn put(&mut self, name: &str, runs: bool) {
            self.put_bound(name, runs, None);
        }

        fn put_bound(&mut self, name: &str, runs: bool, minimum: Option<u32>) {
            let mut annotations = json!({"scheduling.k8s.io/group-name": "g"});
            if let Some(minimum) = minimum {
                annotations[BOUND_MINIMUM_ANNOTATION] = json!(minimum.to_string());
            }
            let pod = json!({
                "metadata": {
                    "name": name, "namespace": "ns", "uid": name, "annotations": annotations,
                },
                "spec": {
                    "schedulerName": "kube-batch", "containers": [{"name": "c"}],
                    "nodeName": runs.then_some("n"),
                },
                "status": {"phase": if runs { "Running" } else { "Pending" }},
            });
            self.store.put_pod(pod);
        }

        fn pod(name: &str) -> PodRef {
            PodRef { uid: name.into(), key: ObjectKey::new("ns", name) }
        }

        fn bind(&mut self, name: &str) {
            let decision = Decision::Bind {
                minimum: 1,
                protected_until: None,
                queue: "q".into(),
                pod: Self::pod(name),
                node: "n".into(),
                claims: Vec::new(),
                devices: Vec::new(),
            };
            self.assumed.note(&decision, Timestamp::UNIX_EPOCH);
        }

        fn reject(&mut self, name: &str) {
            let id = self.assumed.id(&name.into()).expect("a decision");
            self.assumed.reject(&name.into(), id);
        }

        fn end_back_off(&mut self, name: &str) {
            let id = self.assumed.id(&name.into()).expect("a decision");
            self.assumed.end_back_off(&name.into(), id);
        }

        fn snapshot(&mut self, seconds: u64) -> Snapshot {
            let mut snapshot =
                take_snapshot(&self.store, &self.assumed, &SnapshotOptions::default());
            self.incomplete.observe(&mut snapshot, Duration::from_secs(seconds));
            snapshot
        }

        /// Whether the gang is incomplete, and torn.
        fn state(&mut self) -> (bool, bool) {
            let jobs = self.snapshot(0).cluster.jobs;
            let first = JobIdx::new(0);
            (jobs.incomplete_for[first].is_some(), jobs.is_torn[first])
        }

        /// For how many seconds the gang has been incomplete, and the number of its places kept.
        fn at(&mut self, seconds: u64) -> (Option<u64>, usize) {
            let snapshot = self.snapshot(seconds);
            let nominated = snapshot.cluster.tasks.nominated.values();
            let incomplete_for = snapshot.cluster.jobs.incomplete_for[JobIdx::new(0)];
            (incomplete_for.map(|time| time.as_secs()), nominated.flatten().count())
        }
    }

    #[test]
    fn a_gang_is_incomplete_while_some_of_it_runs_and_its_minimum_does_not() {
        let mut world = World::new();
        assert_eq!(world.at(10), (Some(0), 0));
        assert_eq!(world.at(15), (Some(5), 0));
        world.put("b", true);
        assert_eq!(world.at(20), (Some(0), 0), "it makes progress");
        world.put("b", false);
        assert_eq!(world.at(30), (Some(10), 0), "that is no progress");
        world.put("b", true);
        assert_eq!(world.at(35), (Some(15), 0), "nor is what it had already");
        world.put("c", true);
        assert_eq!(world.at(40), (None, 0));
        world.put("c", false);
        assert_eq!(world.at(50), (Some(0), 0), "a new loss");
        world.put("a", false);
        world.put("b", false);
        assert_eq!(world.at(60), (None, 0), "nothing of it runs");
    }

    #[test]
    fn a_binding_counts_until_it_is_rejected_and_then_keeps_its_place() {
        let mut world = World::new();
        world.bind("b");
        world.bind("c");
        assert_eq!(world.at(10), (None, 0), "it may be complete soon");
        world.reject("b");
        world.reject("c");
        assert_eq!(world.at(20), (Some(0), 0), "both are in their back-off");
        world.end_back_off("b");
        assert_eq!(world.at(30), (Some(10), 1));
        world.bind("b");
        assert_eq!(world.at(31), (Some(11), 0), "the other one is still in its back-off");
        world.end_back_off("c");
        world.bind("c");
        assert_eq!(world.at(32), (None, 0), "both are tried again");
        world.reject("c");
        assert_eq!(world.at(40), (Some(20), 0), "that is no new beginning");
    }

    #[test]
    fn a_gang_is_torn_if_pods_are_lost_that_started_with_it() {
        let mut world = World::new();
        assert_eq!(world.state(), (true, true), "it is not known with what it started");
        world.put_bound("b", true, Some(1));
        assert_eq!(world.state(), (true, false), "its minimum was raised");
        world.put_bound("c", true, Some(3));
        assert_eq!(world.state(), (false, false));
        world.put("b", false);
        assert_eq!(world.state(), (true, true), "one of three is lost");
        world.set_minimum(4);
        assert_eq!(world.state(), (true, false), "it asks for more than started together");
        world.set_minimum(3);
        world.bind("b");
        assert_eq!(world.state(), (false, false), "it may be complete soon");
        world.reject("b");
        assert_eq!(world.state(), (true, true));
        world.put("c", false);
        world.put_bound("a", false, None);
        assert_eq!(world.state(), (false, false), "nothing of it runs");
    }

    #[test]
    fn a_rejected_pod_of_a_gang_that_does_not_run_keeps_no_place() {
        let mut world = World::new();
        world.put("a", false);
        world.bind("b");
        world.reject("b");
        world.end_back_off("b");
        assert_eq!(world.at(10), (None, 0));
    }
}
