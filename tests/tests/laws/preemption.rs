//! Compares the victims that this scheduler selects with those that Kubernetes selects in the same
//! cases; see `plugins/tests/filters/README.md`.
//!
//! Every pod of a case is a job with one task, so the priorities of jobs are those of their pods. A pod
//! without a phase counts as running: only running pods are evicted.

use std::{fs, path::Path};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube_batch_actions::{allocate, preempt};
use kube_batch_api::{crd::QueueSpec, dialect::RawObject, kind::ApplyObject as _};
use kube_batch_cache::{
    assumed::Assumed,
    snapshot::{SnapshotOptions, take_snapshot},
    store::Store,
};
use kube_batch_framework::spec::PluginSpec;
use kube_batch_framework::{candidates::Search, report::Cycle};
use kube_batch_model::{
    cluster::Cluster,
    decision::Decision,
    group_version::GroupVersion,
    why::{Obstacle, Why},
};
use kube_batch_plugins::{
    conformance, drf, gang, nodeorder, pdb, predicates, priority, proportion,
};
use kube_batch_scheduler::conf::{Conf, PluginConf};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    nodes: Vec<Node>,
    existing_pods: Vec<Pod>,
    #[serde(default)]
    pod_disruption_budgets: Vec<PodDisruptionBudget>,
    pod: Pod,
    expect: Expect,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expect {
    message: String,
    #[serde(flatten)]
    choice: Choice,
}

/// The nominated node, empty if there is none, and its victims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Choice {
    nominated_node: String,
    /// By name.
    victims: Vec<String>,
}

fn cases() -> Vec<Case> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/tests/filters/preemption.yaml");
    let text = fs::read_to_string(path).expect("the case file can be read");
    // Without this option a label value of `y` would be a boolean.
    let options = serde_saphyr::options! { strict_booleans: true };
    let values: Vec<serde_json::Value> =
        serde_saphyr::from_str_with_options(&text, options).expect("the case file is YAML");
    let read = |value| serde_json::from_value(value).expect("the value is a case");
    values.into_iter().map(read).collect()
}

impl Case {
    fn cluster(&self) -> Cluster {
        let mut store = Store::default();
        let queue = ObjectMeta { name: Some("default".to_owned()), ..ObjectMeta::default() };
        let spec = QueueSpec { weight: 1, ..QueueSpec::default() };
        store
            .apply_queue(GroupVersion::V1Alpha2, &RawObject::new(&queue, &spec))
            .expect("the queue can be read");
        for node in &self.nodes {
            store.apply(node).expect("the node can be read");
        }
        for budget in &self.pod_disruption_budgets {
            let mut budget = budget.clone();
            set_identity(&mut budget.metadata);
            store.apply(&budget).expect("the budget can be read");
        }
        for pod in self.existing_pods.iter().map(running).chain([self.pod.clone()]) {
            store.apply::<Pod>(&with_our_scheduler(pod)).expect("the pod can be read");
        }
        take_snapshot(&store, &Assumed::default(), &SnapshotOptions::default()).cluster
    }

    /// One cycle with every plugin, in the tiers that are usual with preemption.
    fn run(&self, search: Search) -> Cycle {
        let first = [priority::SPEC, gang::SPEC, conformance::SPEC, pdb::SPEC];
        let second = [drf::SPEC, predicates::SPEC, proportion::SPEC, nodeorder::SPEC];
        let tier = |specs: &[PluginSpec]| specs.iter().copied().map(PluginConf::new).collect();
        let tiers = vec![tier(&first), tier(&second)];
        let conf = Conf { actions: vec![allocate::SPEC, preempt::SPEC], tiers };
        conf.run_cycle(self.cluster(), Timestamp::MAX, search, &mut |_| {})
    }
}

fn running(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    let status = pod.status.get_or_insert_default();
    status.phase.get_or_insert_with(|| "Running".to_owned());
    pod
}

fn with_our_scheduler(mut pod: Pod) -> Pod {
    set_identity(&mut pod.metadata);
    pod.spec.get_or_insert_default().scheduler_name = Some("kube-batch".to_owned());
    pod
}

fn set_identity(meta: &mut ObjectMeta) {
    meta.namespace = Some("default".to_owned());
    meta.uid.clone_from(&meta.name);
}

fn choice(cycle: &Cycle) -> Choice {
    let mut choice = Choice::default();
    for decision in &cycle.decisions {
        match decision {
            Decision::Bind { pod, node, .. } => panic!("{} was bound to {node}", pod.key),
            Decision::Evict { pod, .. } => choice.victims.push(pod.key.name.to_string()),
            Decision::Nominate { node, .. } => choice.nominated_node = node.to_string(),
            Decision::Withdraw { .. } | Decision::Deallocate { .. } => {}
        }
    }
    choice.victims.sort_unstable();
    choice
}

/// The part of a message of Kubernetes that explains why the pod does not fit without preemption.
/// The rest is about preemption itself.
fn filter_message(message: &str) -> &str {
    message.split_once(" preemption: ").map_or(message, |(reasons, _)| reasons)
}

/// Whether a message says that a pod can never fit, which Kubernetes does not tell apart: because the
/// whole cluster has too little of a resource that Kubernetes names, or for all of its reasons.
fn says_never(why: &str, reasons: &str) -> bool {
    let Some(why) = why.strip_prefix("never fits: ") else { return false };
    let resource = why.split_once(", and the whole cluster has ");
    let resource = resource.and_then(|(request, _)| request.rsplit(' ').next());
    why.ends_with(reasons)
        || resource.is_some_and(|resource| reasons.contains(&format!("Insufficient {resource}.")))
}

fn has_place(why: &Why) -> bool {
    matches!(why, Why::NoPlace(why) if matches!(*why.obstacle, Obstacle::Nominated(_)))
}

#[test]
fn victims_match_kubernetes() {
    let mut failures = Vec::new();
    for case in cases() {
        let wanted = &case.expect.choice;
        for search in [Search::Index, Search::Naive] {
            let cycle = case.run(search);
            let chosen = choice(&cycle);
            if chosen != *wanted {
                failures.push(format!("{} ({search:?}): {chosen:?}, not {wanted:?}", case.name));
            }
            let reasons = filter_message(&case.expect.message);
            let is_reported = cycle.jobs.iter().any(|job| {
                let Some(why) = &job.unplaced_because else { return false };
                // The message of a nominated pod names its nodes. The part about other jobs comes last.
                has_place(why)
                    || why.own_words() == reasons.trim_end_matches('.')
                    || says_never(why.words(), reasons)
            });
            if !is_reported {
                failures.push(format!(
                    "{} ({search:?}): the message {:?} is missing",
                    case.name, case.expect.message
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}
