//! Clusters and sessions for tests of plugins.
//!
//! A test of a plugin needs a cluster in a certain state. [`cluster`] reads one from Kubernetes manifests, as
//! `kubectl get -o yaml` writes them, and [`session`] opens a session with some plugins, which answers what actions ask:
//! which node is best for a class of tasks, and why none is.
//!
//! # Examples
//!
//! A plugin that uses no node above a price limit:
//!
//! ```
//! use kube_batch_framework::plugin::{Dependencies, Dependency, NodeQuery, OrderScope, Plugin};
//! use kube_batch_model::{cluster::Cluster, column::ClassIdx, reason::Unfit};
//! use kube_batch_sim::testing;
//!
//! struct MaxPrice {
//!     limit: i64,
//! }
//!
//! impl Plugin for MaxPrice {
//!     fn name(&self) -> &'static str {
//!         "max-price"
//!     }
//!
//!     fn order_scope(&self) -> OrderScope {
//!         OrderScope::Own
//!     }
//!
//!     fn dependencies(&self, _: &Cluster, _: ClassIdx) -> Dependencies {
//!         Dependencies::only(Dependency::Class)
//!     }
//!
//!     fn predicate(&self, cluster: &Cluster, query: NodeQuery) -> Result<(), Unfit> {
//!         let price = cluster.nodes.facts[query.node].labels.get("example.com/price");
//!         let is_too_high = |price: i64| price > self.limit;
//!         if price.and_then(|price| price.parse().ok()).is_some_and(is_too_high) {
//!             return Err(Unfit::Other("node(s) exceeded the price limit"));
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let cluster = testing::cluster(
//!     "
//! - {apiVersion: v1, kind: Node, metadata: {name: dear, labels: {example.com/price: '7'}}, status: {allocatable: {pods: '9'}}}
//! - {apiVersion: v1, kind: Node, metadata: {name: fair, labels: {example.com/price: '4'}}, status: {allocatable: {pods: '9'}}}
//! - {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {schedulerName: kube-batch, containers: [{name: c, image: i}]}}
//! ",
//! );
//! let class = cluster.tasks.class[testing::task(&cluster, "default/p")];
//!
//! let mut session = testing::session(cluster.clone(), vec![Box::new(MaxPrice { limit: 5 })]);
//! let best = session.search().best_node(class).expect("one node is below the limit");
//! assert_eq!(best.node, testing::node(&cluster, "fair"));
//! // What the plugin declares lets searches use the index.
//! assert!(session.search().is_indexable(class));
//!
//! let mut session = testing::session(cluster, vec![Box::new(MaxPrice { limit: 1 })]);
//! let why = session.search().explain(class).to_string();
//! assert_eq!(why, "0/2 nodes are available: 2 node(s) exceeded the price limit.");
//! ```

use jiff::Timestamp;
use kube_batch_cache::{
    dump::Dump,
    durations::Durations,
    snapshot::{SnapshotOptions, take_snapshot},
};
use kube_batch_framework::{
    candidates::Search,
    plugin::Plugin,
    policy::{ConfiguredPlugin, ExtensionPoints},
    session::Session,
};
use kube_batch_manifest::{
    diagnostic::Diagnostic,
    object::Object,
    place::Place,
    reader::{Reader, Sink},
    rejection::rejections,
    render::{Paint, render},
};
use kube_batch_model::{
    cluster::Cluster,
    column::{NodeIdx, TaskIdx},
    facts::FactError,
};
use kube_batch_scheduler::{conf::policy, core::CycleInput};

use crate::world::{Environment, World};

/// What messages call the manifests.
const SOURCE: &str = "manifests";

/// The queue that there is if the manifests have none.
const DEFAULT_QUEUE: &str = "{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}";

/// The cluster of a session, read from manifests: YAML documents or JSON, as in files for `kubectl apply`.
///
/// Pods get their priority, and controllers create the pods of Jobs and ReplicaSets. If there is no Queue, there is
/// the queue `default`. All labels and annotations are kept, as if
/// [`metadata_prefixes`](kube_batch_framework::spec::PluginSpec::metadata_prefixes) of some plugin named them.
///
/// # Panics
///
/// If there is a problem with the manifests, be it a field that does not exist: with all problems, and their lines.
pub fn cluster(manifests: &str) -> Cluster {
    let world =
        World::new(Environment::default(), SnapshotOptions::default(), [""].into_iter().collect());
    let mut reading = Reading { world, problems: Vec::new() };
    let mut reader = Reader::new();
    reader.read(SOURCE, manifests.as_bytes(), &mut reading);
    if reading.world.store.queues.is_empty() {
        reader.read("default queue", DEFAULT_QUEUE.as_bytes(), &mut reading);
    }
    let ignored = reader.into_summary().ignored.into_keys().map(|type_meta| {
        format!(
            "{} ({}): the scheduler does not read this kind",
            type_meta.kind, type_meta.api_version
        )
    });
    let shown = reading.problems.iter().map(|problem| render(problem, Paint::Plain));
    let problems: Vec<String> = shown.chain(ignored).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let mut world = reading.world;
    world.begin();
    world.run_controllers();
    let options = world.options().clone();
    let CycleInput { store, assumed, now, elapsed } = world.begin_cycle();
    let mut snapshot = take_snapshot(store, assumed, &options);
    Durations::default().observe(&mut snapshot, elapsed, now);
    snapshot.cluster
}

/// Opens a session with these plugins, in one tier and at all their extension points, at the end of all time.
pub fn session(cluster: Cluster, plugins: Vec<Box<dyn Plugin>>) -> Session {
    session_at(Timestamp::MAX, cluster, plugins)
}

/// Opens a session at a time, with these plugins, in one tier and at all their extension points.
pub fn session_at(now: Timestamp, cluster: Cluster, plugins: Vec<Box<dyn Plugin>>) -> Session {
    let configured = |plugin| ConfiguredPlugin { plugin, extension_points: ExtensionPoints::ALL };
    let tier = plugins.into_iter().map(configured).collect();
    Session::open(cluster, now, policy(vec![tier]), Search::Index)
}

/// The task of a pod, by namespace and name: `default/p`.
///
/// # Panics
///
/// If there is none.
pub fn task(cluster: &Cluster, pod: &str) -> TaskIdx {
    let mut tasks = cluster.tasks.facts.iter();
    let found = tasks.find(|(_, facts)| facts.key.to_string() == pod);
    found.unwrap_or_else(|| panic!("the cluster has no pod {pod}")).0
}

/// The node of this name.
///
/// # Panics
///
/// If there is none.
pub fn node(cluster: &Cluster, name: &str) -> NodeIdx {
    let mut nodes = cluster.nodes.facts.iter();
    let found = nodes.find(|(_, facts)| *facts.name == *name);
    found.unwrap_or_else(|| panic!("the cluster has no node {name}")).0
}

/// Manifests that are read into a simulated cluster.
struct Reading {
    world: World,
    problems: Vec<Diagnostic>,
}

impl Sink for Reading {
    fn object(&mut self, object: Object, place: &Place<'_>) -> Result<(), FactError> {
        let about = format!("{} {}", object.kind(), object.key());
        for problem in rejections(&object) {
            let error = FactError::new(about.clone(), problem.path, problem.message);
            self.problems.push(place.diagnose(&error));
        }
        self.world.apply(object)
    }

    fn dump(&mut self, dump: Dump) {
        self.world.restore(dump);
    }

    fn problem(&mut self, problem: Diagnostic) {
        self.problems.push(problem);
    }
}

#[cfg(test)]
mod tests {
    use std::{cmp::Ordering, time::Duration};

    use jiff::SignedDuration;
    use kube_batch_framework::{plugin::OrderScope, session_cache::SessionCache};
    use kube_batch_model::column::JobIdx;

    use super::*;

    const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {schedulerName: \
                       kube-batch, containers: [{name: main, image: app}]}}";

    #[test]
    fn a_pod_alone_waits_in_the_default_queue() {
        let cluster = cluster(POD);
        let job = cluster.tasks.job[task(&cluster, "default/p")].expect("it is a job");
        assert!(cluster.is_schedulable(job), "{:?}", cluster.jobs.problem[job]);
    }

    #[test]
    #[should_panic(
        expected = "Pod p: spec.schedulerNam: unknown field, did you mean schedulerName"
    )]
    fn a_misspelt_field_is_a_problem() {
        cluster(&POD.replace("schedulerName", "schedulerNam"));
    }

    /// The youngest job goes first, but before it those that have waited for an hour.
    #[derive(Default)]
    struct Ageing {
        now: Timestamp,
    }

    impl Ageing {
        fn has_aged(&self, cluster: &Cluster, job: JobIdx) -> bool {
            self.now.duration_since(cluster.jobs.created[job]) >= SignedDuration::from_hours(1)
        }
    }

    impl Plugin for Ageing {
        fn name(&self) -> &'static str {
            "ageing"
        }

        fn on_session_open(&mut self, _: &Cluster, cache: &mut SessionCache<'_>) {
            self.now = cache.now();
        }

        fn next_change(&self, cluster: &Cluster) -> Option<Duration> {
            let ages =
                cluster.jobs.created.values().map(|created| {
                    (*created + SignedDuration::from_hours(1)).duration_since(self.now)
                });
            let later = ages.filter_map(|left| Duration::try_from(left).ok());
            later.filter(|left| !left.is_zero()).min()
        }

        fn order_scope(&self) -> OrderScope {
            OrderScope::Own
        }

        fn job_order(&self, cluster: &Cluster, l: JobIdx, r: JobIdx) -> Ordering {
            match (self.has_aged(cluster, l), self.has_aged(cluster, r)) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (false, false) => cluster.jobs.created[r].cmp(&cluster.jobs.created[l]),
            }
        }
    }

    #[test]
    fn a_plugin_knows_the_time_of_the_cycle() {
        let group = |name: &str, created: &str| {
            format!(
                "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: {name}, \
                 creationTimestamp: '{created}'}}, spec: {{minMember: 1}}}}\n\
                 - {{apiVersion: v1, kind: Pod, metadata: {{name: {name}, annotations: \
                 {{scheduling.k8s.io/group-name: {name}}}}}, spec: {{schedulerName: kube-batch, \
                 containers: [{{name: c, image: i}}]}}}}\n"
            )
        };
        let manifests =
            [group("young", "2025-01-01T10:30:00Z"), group("old", "2025-01-01T10:00:00Z")].concat();
        let cluster = cluster(&manifests);
        let jobs: Vec<JobIdx> = cluster.jobs.key.ids().collect();
        let [old, young] = jobs[..] else { panic!("two jobs, in order of creation: {jobs:?}") };
        for (now, expected) in [
            ("2025-01-01T10:59:59Z", Ordering::Greater),
            ("2025-01-01T11:00:00Z", Ordering::Less),
            ("2025-01-01T11:30:00Z", Ordering::Less),
        ] {
            let at = now.parse().expect("a time");
            let session = session_at(at, cluster.clone(), vec![Box::new(Ageing::default())]);
            assert_eq!(session.plugins().job_order(old, young), expected, "{now}");
        }
    }
}
