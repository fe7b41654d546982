//! Pods of the bench shapes are placed with the candidate index.

use jiff::Timestamp;
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
};
use kube_batch_framework::{candidates::Search, session::Session};
use kube_batch_tests::shapes::shape;

#[test]
fn plain_pods_are_placed_with_the_index() {
    for name in ["FILL-10-40-10", "SAT-10-40-10", "PREEMPT-10-10", "FILLTAINT-100-40-10"] {
        let shape = shape(name).expect(name);
        let options = SnapshotOptions::default();
        let cluster = take_snapshot(&shape.store, &Assumed::default(), &options).cluster;
        let waiting: Vec<_> = cluster
            .tasks
            .facts
            .ids()
            .filter(|task| cluster.is_waiting(*task))
            .map(|task| cluster.tasks.class[task])
            .collect();
        let policy = shape.conf.policy();
        let mut session = Session::open(cluster, Timestamp::MAX, policy, Search::Index);
        assert!(!waiting.is_empty(), "{name}");
        for class in waiting {
            assert!(session.search().is_indexable(class), "{name}");
        }
    }
}
