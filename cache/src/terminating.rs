//! For how long pods have been terminating beyond their grace period.
//!
//! The time counts from when this scheduler saw the pod terminate: its clock need not agree with that of the API
//! server, and after a change of leader the time starts again.
// Parity: new, see docs/parity.md#p13.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube_batch_model::{
    cluster::{Cluster, Terminating},
    column::{Dim, NodeIdx},
    name::Name,
    status::TaskStatus,
};
use serde::{Deserialize, Serialize};

/// The terminating pods of the snapshots so far, by uid, and when the grace period of each ends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TerminatingPods(BTreeMap<Name, Duration>);

impl TerminatingPods {
    /// Compares a snapshot with those before it, and completes it: how long each terminating task still has, and how
    /// long it is overdue. `now` is the time since a fixed moment, and `date` what clocks show.
    pub(crate) fn observe(&mut self, cluster: &mut Cluster, now: Duration, date: Timestamp) {
        let before = std::mem::take(&mut self.0);
        cluster.terminating.clear();
        let nodes: Vec<NodeIdx> = cluster.nodes.facts.ids().collect();
        for node in nodes.into_iter().filter(|node| cluster.nodes.releasing[*node][Dim::PODS] > 0) {
            for task in cluster.nodes.tasks[node].clone() {
                if cluster.status(task) != TaskStatus::Releasing {
                    continue;
                }
                let facts = &cluster.tasks.facts[task];
                let left = facts.terminates_at.map(|end| end.duration_since(date));
                let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default();
                let ends_at = now.saturating_add(left);
                // A pod that is deleted again may end sooner, never later.
                let ends_at = before.get(&facts.uid).map_or(ends_at, |known| ends_at.min(*known));
                self.0.insert(facts.uid.clone(), ends_at);
                let (left, overdue) = (ends_at.saturating_sub(now), now.saturating_sub(ends_at));
                cluster.terminating.insert(task, Terminating { left, overdue });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        assumed::Assumed,
        snapshot::{SnapshotOptions, take_snapshot},
        store::Store,
    };

    fn cluster(deletion: &str) -> Cluster {
        let mut store = Store::default();
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "9"}}});
        store.put_node(node);
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "p", "deletionTimestamp": deletion},
            "spec": {"containers": [{"name": "c"}], "nodeName": "n"},
            "status": {"phase": "Running"},
        });
        store.put_pod(pod);
        take_snapshot(&store, &Assumed::default(), &SnapshotOptions::default()).cluster
    }

    #[test]
    fn the_time_counts_from_the_end_of_the_grace_period_or_from_when_it_was_seen() {
        let mut pods = TerminatingPods::default();
        let date: Timestamp = "2025-01-01T00:00:00Z".parse().expect("a date");
        let mut at = |seconds: u64, deletion: &str| {
            let mut cluster = cluster(deletion);
            let after = Duration::from_secs(seconds);
            pods.observe(&mut cluster, after, date.checked_add(after).expect("a date"));
            let Terminating { left, overdue } =
                cluster.terminating.values().next().copied().expect("one");
            (left.as_secs(), overdue.as_secs())
        };
        let end = "2025-01-01T00:00:30Z";
        assert_eq!(at(0, end), (30, 0));
        assert_eq!(at(20, end), (10, 0));
        assert_eq!(at(50, end), (0, 20));
        // Deleted again, by a clock that is ahead.
        assert_eq!(at(60, "2025-01-01T00:02:00Z"), (0, 30));
        let mut pods = TerminatingPods::default();
        let mut late = cluster("2024-12-01T00:00:00Z");
        pods.observe(&mut late, Duration::ZERO, date);
        let known = late.terminating.values().next().copied().expect("one");
        assert_eq!(known, Terminating { left: Duration::ZERO, overdue: Duration::ZERO });
    }
}
