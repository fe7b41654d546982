//! Gangs whose pods require affinity to their own labels: they start exactly if one domain holds them.

use std::collections::{BTreeMap, BTreeSet};

use kube_batch_framework::candidates::Search;
use kube_batch_model::{decision::Decision, name::Name};
use kube_batch_tests::{
    random_cluster::Rng,
    seeds::{is_often, seeds},
    small_cluster::first_decisions,
};

/// A cluster with at most 4 racks, no more than are tried, and a gang of equal pods.
#[derive(Debug)]
struct Setting {
    nodes: Vec<Node>,
    cpu: u64,
    min: u64,
    n_pods: u64,
    /// The node on which a pod with the gang's label runs already, with no request.
    running_on: Option<usize>,
}

#[derive(Debug)]
struct Node {
    cpu: u64,
    /// Zone and rack; a node without them is in no domain.
    domain: Option<(u64, u64)>,
}

impl Setting {
    fn random(rng: &mut Rng) -> Self {
        let n_nodes = 1 + rng.below(8);
        let nodes: Vec<Node> = (0..n_nodes)
            .map(|_| {
                let domain = (rng.below(2), rng.below(2));
                Node { cpu: 1 + rng.below(6), domain: (rng.below(6) > 0).then_some(domain) }
            })
            .collect();
        let min = 1 + rng.below(8);
        let running_on = (rng.below(4) == 0).then(|| rng.below(n_nodes) as usize);
        Self { nodes, cpu: 1 + rng.below(2), min, n_pods: min + rng.below(3), running_on }
    }

    /// Whether some domain holds the minimum. Racks of different zones with one number share a label
    /// value, but the terms name both keys.
    fn starts(&self) -> bool {
        let mut places = BTreeMap::<(u64, u64), u64>::new();
        for node in &self.nodes {
            if let Some(domain) = node.domain {
                *places.entry(domain).or_default() += node.cpu / self.cpu;
            }
        }
        // A pod that runs outside of all domains chooses none.
        let chosen = self.running_on.and_then(|at| self.nodes[at].domain);
        let mut open = places.iter().filter(|(domain, _)| chosen.is_none_or(|one| one == **domain));
        open.any(|(_, n_places)| *n_places >= self.min)
    }

    fn yaml(&self) -> String {
        let mut text = String::from(
            "name: domains
config:
  actions: allocate, backfill
  tiers:
  - plugins: [{name: gang}, {name: predicates}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
",
        );
        for (at, node) in self.nodes.iter().enumerate() {
            let labels = node.domain.map_or_else(String::new, |(zone, rack)| {
                format!(", labels: {{zone: z{zone}, rack: r{rack}}}")
            });
            text += &format!(
                "- {{apiVersion: v1, kind: Node, metadata: {{name: n{at}{labels}}}, status: {{allocatable: {{cpu: '{}', pods: '99'}}}}}}\n",
                node.cpu
            );
        }
        if let Some(at) = self.running_on {
            text += &format!(
                "- {{apiVersion: v1, kind: Pod, metadata: {{name: first, namespace: ns, labels: {{app: a}}}}, spec: {{nodeName: n{at}, containers: [{{name: c}}]}}, status: {{phase: Running}}}}\n"
            );
        }
        text += &format!(
            "- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {{name: g, namespace: ns}}, spec: {{minMember: {}}}}}
- apiVersion: v1
  kind: Pod
  count: {}
  metadata: {{name: p0, namespace: ns, labels: {{app: a}}, annotations: {{scheduling.k8s.io/group-name: g}}}}
  spec:
    schedulerName: kube-batch
    affinity:
      podAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
        - {{labelSelector: {{matchLabels: {{app: a}}}}, topologyKey: zone}}
        - {{labelSelector: {{matchLabels: {{app: a}}}}, topologyKey: rack}}
    containers: [{{name: c, resources: {{requests: {{cpu: '{}'}}}}}}]
steps:
- cycles: 1
",
            self.min, self.n_pods, self.cpu
        );
        text
    }

    /// The nodes that the pods of the gang are bound to.
    fn bound(&self) -> Vec<Name> {
        let decisions = first_decisions(&self.yaml(), Search::Index).into_iter();
        let nodes = decisions.filter_map(|decision| match decision {
            Decision::Bind { node, .. } => Some(node),
            _ => None,
        });
        nodes.collect()
    }
}

#[test]
fn a_gang_with_affinity_to_itself_starts_exactly_if_a_domain_holds_it() {
    let seeds = seeds(1_000);
    let mut n_started = 0;
    for seed in seeds.iter().copied() {
        let setting = Setting::random(&mut Rng::new(seed));
        let bound = setting.bound();
        let has_started = bound.len() as u64 >= setting.min;
        assert!(has_started || bound.is_empty(), "seed {seed}: {bound:?} in {setting:?}");
        assert_eq!(has_started, setting.starts(), "seed {seed}: {bound:?} in {setting:?}");
        let domain_of = |name: &Name| {
            let at: usize = name[1..].parse().expect("nodes are numbered");
            setting.nodes[at].domain
        };
        let domains: BTreeSet<_> = bound.iter().map(domain_of).collect();
        assert!(domains.len() <= 1 && !domains.contains(&None), "seed {seed}: {bound:?}");
        n_started += usize::from(has_started);
    }
    let is_often = |n| is_often(n, &seeds, 10);
    assert!(is_often(n_started) && is_often(seeds.len() - n_started), "{n_started} started");
}
