//! The checker of decisions finds nothing wrong with those of a cycle, and every kind of wrong decision.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_batch_api::{crd::PodGroupSpec, dialect::RawObject, kind::ApplyObject as _};
use kube_batch_framework::{arguments::ArgumentValue, candidates::Search};
use kube_batch_model::{
    decision::{Decision, DeviceChoice, EvictReason, EvictionCause, JobInQueue, PodRef},
    facts::device::claim::DeviceResult,
    group_version::GroupVersion,
    name::{JobKey, Name, ObjectKey},
};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, world::World};
use kube_batch_tests::{
    checker::problems,
    random_cluster::RandomCluster,
    seeds::{is_often, seeds},
    shapes::{
        Shape,
        kinds::{KINDS, Kind},
        shape,
    },
};
use kube_batch_yaml::{Limits, parse};

/// A shape and the decisions of its first cycle.
struct Decided {
    shape: Shape,
    decisions: Vec<Decision>,
}

impl Decided {
    fn new(name: &str) -> Self {
        let shape = shape(name).expect("the shape exists");
        let decisions = shape.first_cycle().decisions;
        assert!(!decisions.is_empty(), "{name} decides nothing");
        let decided = Self { shape, decisions };
        assert_eq!(decided.problems(), [""; 0], "{name}");
        decided
    }

    fn problems(&self) -> Vec<String> {
        problems(&self.shape.store, &self.shape.conf, &self.decisions)
    }

    #[track_caller]
    fn expect(&self, problem: &str) {
        let found = self.problems();
        assert!(found.iter().any(|found| found.contains(problem)), "no {problem:?}: {found:#?}");
    }

    fn change(mut self, mut change: impl FnMut(&mut Decision)) -> Self {
        self.decisions.iter_mut().for_each(&mut change);
        self
    }

    fn without_first(mut self, is_kind: impl Fn(&Decision) -> bool) -> Self {
        let first = self.decisions.iter().position(is_kind).expect("there is one of the kind");
        self.decisions.remove(first);
        self
    }

    /// The eviction of a pod, for the job of the shape that waits.
    fn eviction(&self, name: &str) -> Decision {
        let key = ObjectKey::new("bench", name);
        let facts = self.shape.store.pods.get(&key).expect("the pod exists");
        Decision::Evict {
            pod: PodRef { uid: facts.uid.clone(), key },
            node: facts.node.clone().expect("it is on a node"),
            cause: EvictionCause::Preempt(JobInQueue {
                job: JobKey::annotated(ObjectKey::new("bench", "job-00000")),
                queue: "queue-0".into(),
                is_named: true,
            }),
        }
    }

    fn set_argument(&mut self, key: &str, value: &ArgumentValue) {
        for plugin in self.shape.conf.tiers.iter_mut().flatten() {
            let spec = plugin.spec.arguments.iter().find(|spec| spec.key == key);
            if let Some(spec) = spec {
                plugin.arguments.set(spec, value.clone());
            }
        }
    }
}

fn is_bind(decision: &Decision) -> bool {
    matches!(decision, Decision::Bind { .. })
}

fn is_evict(decision: &Decision) -> bool {
    matches!(decision, Decision::Evict { .. })
}

/// A change of the node of bindings: `to` gets the position of the pod in its gang.
fn bind_to(to: impl Fn(usize) -> Option<&'static str>) -> impl FnMut(&mut Decision) {
    move |decision| {
        if let Decision::Bind { pod, node, .. } = decision {
            let (_, position) = pod.key.name.rsplit_once('-').expect("names end in a position");
            if let Some(to) = to(position.parse().expect("a number")) {
                *node = Name::from(to);
            }
        }
    }
}

#[test]
fn the_decisions_of_every_kind_of_shape_are_right() {
    for Kind { name, numbers, .. } in KINDS {
        let sizes = ["", "-60", "-60-20", "-60-200-20"][numbers.split('-').count()];
        let shape = shape(&format!("{name}{sizes}")).expect("the shape exists");
        let decisions = shape.first_cycle().decisions;
        assert_eq!(problems(&shape.store, &shape.conf, &decisions), [""; 0], "{name}{sizes}");
    }
}

#[test]
fn the_decisions_in_random_clusters_are_right() {
    let seeds = seeds(1_000);
    let (mut n_decisions, mut n_of_composites, mut n_devices) = (0, 0, 0);
    for seed in seeds.iter().copied() {
        let case = case(&RandomCluster::new(seed).case());
        let world = world_of(&case);
        let (cluster, search) = (world.snapshot().cluster, Search::Index);
        let cycle = case.conf.run_cycle(cluster, Timestamp::MAX, search, &mut |_| {});
        let found = problems(&world.store, &case.conf, &cycle.decisions);
        assert_eq!(found, [""; 0], "seed {seed}");
        n_decisions += cycle.decisions.len();
        let given = cycle.decisions.iter().map(|decision| match decision {
            Decision::Bind { devices, .. } => devices.len(),
            _ => 0,
        });
        n_devices += given.sum::<usize>();
        let is_of_composite = |decision: &&Decision| {
            let pod = world.store.pods.get(&decision.pod().key);
            let key = pod.map(|facts| facts.job_key(world.store.served()));
            let Some(JobKey::Group(join, key)) = key else { return false };
            world.store.group(join, &key).is_some_and(|group| group.parent.is_some())
        };
        n_of_composites += cycle.decisions.iter().filter(is_of_composite).count();
    }
    assert!(n_decisions > seeds.len(), "only {n_decisions} decisions");
    assert!(is_often(n_devices, &seeds, 20), "only {n_devices} claims are allocated");
    assert!(is_often(n_of_composites, &seeds, 20), "only {n_of_composites} of composite PodGroups");
}

#[test]
fn decisions_about_what_does_not_exist_are_found() {
    let fill = || Decided::new("FILL-10-100-10");
    let other_uid = |decision: &mut Decision| {
        if let Decision::Bind { pod, .. } = decision {
            pod.uid = "other".into();
        }
    };
    fill().change(other_uid).expect("pod bench/job-00000-00000 (uid other) does not exist");
    fill().change(bind_to(|_| Some("gone"))).expect("is bound to gone, which does not exist");
    let mut twice = fill();
    twice.decisions.push(twice.decisions[0].clone());
    twice.expect("has two decisions");
}

#[test]
fn decisions_about_pods_in_another_state_are_found() {
    let mut preempt = Decided::new("PREEMPT-10-10");
    let running = ObjectKey::new("bench", "run-00000-00000");
    let uid = Name::from("uid-run-00000-00000");
    let pod = PodRef { uid, key: running };
    preempt.decisions = vec![Decision::Bind {
        minimum: 1,
        protected_until: None,
        queue: "q".into(),
        pod,
        node: "node-00001".into(),
        claims: Vec::new(),
        devices: Vec::new(),
    }];
    preempt.expect("pod bench/run-00000-00000 is bound, but is Running");
    let mut preempt = Decided::new("PREEMPT-10-10");
    let mut eviction = preempt.eviction("run-00000-00000");
    if let Decision::Evict { node, .. } = &mut eviction {
        *node = "node-00009".into();
    }
    preempt.decisions = vec![eviction];
    preempt.expect("is evicted from node-00009, but is on");
}

#[test]
fn too_many_bindings_to_a_node_are_found() {
    let fill = Decided::new("FILL-10-100-10");
    fill.change(bind_to(|_| Some("node-00003")))
        .expect("node node-00003 is over-committed by bindings: 100000 cpu of 32000");
    let steady = Decided::new("STEADY-10");
    steady
        .change(bind_to(|position| (position < 17).then_some("node-00003")))
        .expect("node node-00003 is over-committed by bindings");
}

#[test]
fn bindings_to_what_evicted_pods_still_hold_are_found() {
    let bind = |decision: &mut Decision| {
        if let Decision::Nominate { pod, node, .. } = decision {
            let (pod, node) = (pod.clone(), node.clone());
            *decision = Decision::Bind {
                minimum: 1,
                protected_until: None,
                queue: "q".into(),
                pod,
                node,
                claims: Vec::new(),
                devices: Vec::new(),
            };
        }
    };
    Decided::new("PREEMPT-10-10").change(bind).expect("is over-committed by bindings: 42000 cpu");
}

#[test]
fn bindings_to_nodes_with_taints_are_found() {
    Decided::new("FILLTAINT-100-100-10")
        .change(bind_to(|position| (position == 0).then_some("node-00000")))
        .expect("is bound to node-00000, which has the taint dedicated=gpu");
}

#[test]
fn gangs_that_start_in_part_are_found() {
    Decided::new("FILL-10-100-10")
        .without_first(is_bind)
        .expect("job bench/job-00000 starts with 9 pods, and its minimum is 10");
}

#[test]
fn too_few_victims_are_found() {
    for name in ["PREEMPT-10-10", "RECLAIM-10-1", "KAIRECLAIM-10"] {
        Decided::new(name).without_first(is_evict).expect("is over-committed by nominations");
    }
}

#[test]
fn victims_that_could_stay_are_found() {
    let mut preempt = Decided::new("PREEMPT-10-10");
    let victims: Vec<String> =
        preempt.decisions.iter().map(|decision| decision.pod().key.name.to_string()).collect();
    let names = (0..100).map(|k| format!("run-00000-{k:05}"));
    let spared = names.into_iter().find(|name| !victims.contains(name)).expect("one is spared");
    preempt.decisions.push(preempt.eviction(&spared));
    preempt.expect(" could stay: no nominated pod needs it");
}

#[test]
fn gangs_that_could_stay_are_found() {
    let mut preempt = Decided::new("GANGPREEMPT-40");
    let is_spared = |job: &str| {
        let of_job = |decision: &Decision| decision.pod().key.name.starts_with(job);
        !preempt.decisions.iter().any(of_job)
    };
    let spared = (0..9).map(|n| format!("run-{n:05}")).find(|job| is_spared(job));
    let spared = spared.expect("one is spared");
    let pods = preempt.shape.store.pods.values();
    let names: Vec<String> = pods
        .map(|facts| facts.key.name.to_string())
        .filter(|name| name.starts_with(&spared))
        .collect();
    let evictions: Vec<Decision> = names.iter().map(|name| preempt.eviction(name)).collect();
    preempt.decisions.extend(evictions);
    preempt.expect(&format!("evicted gang of bench/{spared}"));
}

#[test]
fn broken_gangs_are_found() {
    Decided::new("GANGPREEMPT-40").without_first(is_evict).expect("is left with 1 pods");
    let mut forbidden = Decided::new("GANGPREEMPT-40");
    forbidden.set_argument("gang.evictWholeGangs", &ArgumentValue::Bool(false));
    forbidden.expect("is left with 0 pods, and its minimum is");
}

#[test]
fn victims_of_the_same_priority_are_found() {
    let mut preempt = Decided::new("PREEMPT-10-10");
    let victim = preempt.decisions.iter().find(|decision| is_evict(decision)).expect("a victim");
    let job = victim.pod().key.name[..9].to_owned();
    let spec = PodGroupSpec {
        min_member: 1,
        queue: "queue-0".to_owned(),
        priority_class_name: "high".to_owned(),
    };
    let meta =
        ObjectMeta { name: Some(job), namespace: Some("bench".to_owned()), ..Default::default() };
    let store = &mut preempt.shape.store;
    store
        .apply_group(GroupVersion::V1Alpha1, &RawObject::new(&meta, &spec))
        .expect("the group is valid");
    preempt.expect("its priority is 1000, and that of bench/job-00000 1000");
}

#[test]
fn victims_of_the_wrong_queue_are_found() {
    let with_reason = |reason: EvictReason| {
        move |decision: &mut Decision| {
            if let Decision::Evict { cause, .. } = decision {
                *cause = EvictionCause::new(reason, cause.job().clone());
            }
        }
    };
    Decided::new("PREEMPT-10-10")
        .change(with_reason(EvictReason::Reclaim))
        .expect("job bench/job-00000 is of its own queue");
    Decided::new("RECLAIM-10-1")
        .change(with_reason(EvictReason::Preempt))
        .expect("is of another queue");
}

#[test]
fn victims_that_help_no_job_are_found() {
    let mut preempt = Decided::new("PREEMPT-10-10");
    preempt.decisions.retain(is_evict);
    preempt.expect("no pod of job bench/job-00000 gets a place");
}

#[test]
fn budgets_that_need_not_be_exceeded_are_found() {
    let mut preempt = Decided::new("BUDGETPREEMPT-25-20");
    // The last four pods of the first job share a node with pods of the second, which has no budget.
    preempt.decisions = (89..100).map(|k| preempt.eviction(&format!("run-00000-{k:05}"))).collect();
    preempt.expect(
        "budget bench/run-00000 allows 10 evictions, not 11; pod bench/run-00001-00000 could leave",
    );
}

#[test]
fn budgets_are_exceeded_only_if_they_may_be() {
    // Of 800 running pods, 400 have no budget and 40 may leave.
    let mut preempt = Decided::new("BUDGETPREEMPT-25-500");
    preempt.set_argument("pdb.mode", &ArgumentValue::Text("require".to_owned()));
    preempt.expect("allows 10 evictions, not ");
}

#[test]
fn broken_rules_about_other_pods_are_found() {
    Decided::new("AFF-HOST-100")
        .change(bind_to(|position| (position == 7).then_some("node-00000")))
        .expect("kubernetes.io/hostname node-00000 has pods like");
    Decided::new("AFF-ZONE-99")
        .change(bind_to(|position| (position == 7).then_some("node-00001")))
        .expect("topology.kubernetes.io/zone zone-1 has a pod like");
    Decided::new("SPREAD-99")
        .change(bind_to(|position| (position < 40).then_some("node-00000")))
        .expect("are in the emptiest, and the skew is 5");
}

#[test]
fn the_skew_is_exact() {
    let moved_from_zone_1 = |n: usize| {
        let mut spread = Decided::new("SPREAD-99");
        let nodes = spread.decisions.iter_mut().filter_map(|decision| match decision {
            Decision::Bind { node, .. } => Some(node),
            Decision::Evict { .. }
            | Decision::Nominate { .. }
            | Decision::Withdraw { .. }
            | Decision::Deallocate { .. } => None,
        });
        let number = |node: &Name| node[5..].parse::<usize>().expect("names end in a number");
        let in_zone_1 = nodes.filter(|node| number(node) % 3 == 1);
        in_zone_1.take(n).for_each(|node| *node = Name::from("node-00000"));
        spread
    };
    // Each zone has 66 pods.
    assert_eq!(moved_from_zone_1(2).problems(), [""; 0]);
    moved_from_zone_1(3).expect("zone-0 has 69 pods like");
}

/// The world of manifests, one a line.
fn world(objects: &[&str]) -> (World, Case) {
    let objects: String = objects.iter().map(|object| format!("- {object}\n")).collect();
    let text = format!(
        "name: small\nconfig: {{actions: 'allocate, preempt', tiers: [{{plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}]}}]}}\nobjects:\n{objects}steps:\n- cycles: 1\n"
    );
    let case = case(&text);
    (world_of(&case), case)
}

fn case(text: &str) -> Case {
    let document = parse(text, &Limits::default()).expect("the text is YAML");
    Case::read(&document, &Registry::builtin()).expect("the text is a case")
}

fn world_of(case: &Case) -> World {
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for object in &case.objects {
        world.apply(object.value.clone()).expect("objects are valid");
    }
    world
}

const QUEUE: &str = "{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}";

fn pod(world: &World, name: &str) -> PodRef {
    let key = ObjectKey::new("ns", name);
    let facts = world.store.pods.get(&key).expect("the pod exists");
    PodRef { uid: facts.uid.clone(), key }
}

#[test]
fn bindings_to_nodes_that_take_no_pods_are_found() {
    let allocatable = "allocatable: {cpu: '4', memory: 8Gi, pods: '110'}";
    let pending = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns}, spec: {schedulerName: kube-batch, tolerations: [{key: gpu, operator: Exists}], containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}";
    for (spec, conditions, problem) in [
        ("unschedulable: true", "", Some("is bound to n, which is cordoned")),
        ("", "{type: Ready, status: 'False'}", Some("is bound to n, which is not ready")),
        (
            "taints: [{key: disk, effect: NoSchedule}]",
            "",
            Some("is bound to n, which has the taint disk="),
        ),
        ("taints: [{key: gpu, effect: NoSchedule}]", "", None),
        ("taints: [{key: disk, effect: PreferNoSchedule}]", "", None),
    ] {
        let node = format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n}}, spec: {{{spec}}}, status: {{{allocatable}, conditions: [{conditions}]}}}}"
        );
        let (world, case) = world(&[QUEUE, &node, pending]);
        let bind = Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue: "q".into(),
            pod: pod(&world, "p"),
            node: "n".into(),
            claims: Vec::new(),
            devices: Vec::new(),
        };
        let found = problems(&world.store, &case.conf, &[bind]).join(", ");
        let is_found = problem.map_or(found.is_empty(), |problem| found.contains(problem));
        assert!(is_found, "{spec}{conditions}: {found:?}");
    }
}

#[test]
fn inside_a_job_only_a_higher_priority_preempts() {
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: '1', memory: 8Gi, pods: '110'}}}";
    let group = "{apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: g, namespace: ns}, spec: {minMember: 1}}";
    let spec =
        "schedulerName: kube-batch, containers: [{name: c, resources: {requests: {cpu: '1'}}}]";
    let metadata = "namespace: ns, annotations: {scheduling.k8s.io/group-name: g}";
    let running = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: runs, {metadata}}}, spec: {{{spec}, priority: 5, nodeName: n}}, status: {{phase: Running}}}}"
    );
    for (priority, is_permitted) in [(5, false), (6, true)] {
        let waiting = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: waits, {metadata}}}, spec: {{{spec}, priority: {priority}}}}}"
        );
        let (world, case) = world(&[QUEUE, node, group, &running, &waiting]);
        let evict = Decision::Evict {
            pod: pod(&world, "runs"),
            node: "n".into(),
            cause: EvictionCause::Preempt(JobInQueue {
                job: JobKey::annotated(ObjectKey::new("ns", "g")),
                queue: "default".into(),
                is_named: true,
            }),
        };
        let nominate =
            Decision::Nominate { pod: pod(&world, "waits"), node: "n".into(), devices: [].into() };
        let found = problems(&world.store, &case.conf, &[evict, nominate]);
        assert_eq!(found.is_empty(), is_permitted, "{priority}: {found:?}");
    }
}

#[test]
fn bindings_to_nodes_without_the_label_of_an_affinity_are_found() {
    let status = "status: {allocatable: {cpu: '4', memory: 8Gi, pods: '110'}}";
    let node = |name: &str, labels: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{{labels}}}}}, {status}}}"
        )
    };
    let pending = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: ns, labels: {a: b}}, spec: {schedulerName: kube-batch, affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {a: b}}}]}}, containers: [{name: c, resources: {requests: {cpu: '1'}}}]}}";
    let (world, case) = world(&[QUEUE, &node("with", "zone: z"), &node("without", ""), pending]);
    for (node, problem) in [("with", None), ("without", Some("is bound to a node without zone"))] {
        let bind = Decision::Bind {
            minimum: 1,
            protected_until: None,
            queue: "q".into(),
            pod: pod(&world, "p"),
            node: node.into(),
            claims: Vec::new(),
            devices: Vec::new(),
        };
        let found = problems(&world.store, &case.conf, &[bind]).join(", ");
        assert!(problem.map_or(found.is_empty(), |problem| found.contains(problem)), "{found:?}");
    }
}

/// A change of what bindings give claims, by the position of the pod in its gang.
fn devices(change: impl Fn(usize, &mut Vec<DeviceChoice>)) -> impl FnMut(&mut Decision) {
    move |decision| {
        if let Decision::Bind { pod, devices, .. } = decision {
            let (_, position) = pod.key.name.rsplit_once('-').expect("names end in a position");
            change(position.parse().expect("a number"), devices);
        }
    }
}

fn results(devices: &mut [DeviceChoice]) -> &mut Vec<DeviceResult> {
    &mut devices[0].allocation.as_mut().expect("it is allocated").results
}

#[test]
fn devices_that_are_wrong_are_found() {
    let fill = || Decided::new("DRA-MATCH-10-16-4");
    let first = |n: usize| n == 0;
    let taken = devices(|n, devices| {
        if first(n) {
            devices.clear();
        }
    });
    fill().change(taken).expect("is not allocated");
    let too_few = devices(|n, devices| {
        if first(n) {
            results(devices).pop();
        }
    });
    fill().change(too_few).expect("has more or fewer devices than it requests");
    let unknown = devices(|n, devices| {
        if first(n) {
            results(devices)[0].id.device = "gpu-99".into();
        }
    });
    fill().change(unknown).expect("has a device that the node does not have");
    let same_for_all = devices(|_, devices| {
        for (n, result) in results(devices).iter_mut().enumerate() {
            result.id.pool = "node-00000".into();
            result.id.device = format!("gpu-{n}").as_str().into();
        }
    });
    fill().change(same_for_all).expect("is that of claim");
    fill().change(bind_to(|_| Some("node-00009"))).expect("has devices of another node");
    let mut preempt = Decided::new("DRA-PREEMPT-128");
    let running = preempt.shape.store.resource_claims.values();
    let key = running.filter(|claim| claim.allocation.is_some()).map(|claim| claim.key.clone());
    let key = key.collect::<Vec<_>>().pop().expect("an allocated claim");
    let claim = &preempt.shape.store.resource_claims.get(&key).expect("it exists");
    let allocation = claim.allocation.clone();
    let pod = preempt.shape.store.pods.values().find(|pod| pod.node.is_none()).expect("one waits");
    preempt.decisions = vec![Decision::Bind {
        minimum: 1,
        protected_until: None,
        queue: "q".into(),
        pod: PodRef { uid: pod.uid.clone(), key: pod.key.clone() },
        node: "node-00000".into(),
        claims: Vec::new(),
        devices: vec![DeviceChoice { claim: key, allocation, new: None, group: None }],
    }];
    preempt.expect("is allocated, and is allocated again");
}

/// A pod of two CPUs leaves that a budget protects, and beside it runs another one. Returns what is wrong.
fn problems_of_a_victim_with_budget(mode: &str, disrupted: &str, cpus_of_other: u32) -> String {
    let spec = |cpus: u32, more: &str| {
        format!(
            "{{schedulerName: kube-batch, containers: [{{name: c, resources: {{requests: {{cpu: '{cpus}'}}}}}}], {more}}}"
        )
    };
    let running = |name: &str, cpus| {
        let spec = spec(cpus, "nodeName: n, priority: 1");
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ns, labels: {{app: {name}}}}}, spec: {spec}, status: {{phase: Running}}}}"
        )
    };
    let waits = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: waits, namespace: ns}}, spec: {}}}",
        spec(2, "priority: 9")
    );
    let budget = format!(
        "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: b, namespace: ns}}, spec: {{selector: {{matchLabels: {{app: protected}}}}}}, status: {{disruptionsAllowed: 0, disruptedPods: {{{disrupted}}}, currentHealthy: 1, desiredHealthy: 1, expectedPods: 1}}}}"
    );
    let cpus = 2 + cpus_of_other;
    let node = format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: n}}, status: {{allocatable: {{cpu: '{cpus}', memory: 8Gi, pods: '110'}}}}}}"
    );
    let objects =
        [QUEUE, &node, &budget, &running("protected", 2), &running("other", cpus_of_other), &waits];
    let objects: String = objects.iter().map(|object| format!("- {object}\n")).collect();
    let plugins = format!(
        "{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: pdb, arguments: {{pdb.mode: {mode}}}}}"
    );
    let case = case(&format!(
        "name: budgets\nconfig: {{actions: 'allocate, preempt', tiers: [{{plugins: [{plugins}]}}]}}\nobjects:\n{objects}steps:\n- cycles: 1\n"
    ));
    let world = world_of(&case);
    let waits = pod(&world, "waits");
    let evict = Decision::Evict {
        pod: pod(&world, "protected"),
        node: "n".into(),
        cause: EvictionCause::Preempt(JobInQueue {
            job: JobKey::Pod { pod: waits.key.clone(), uid: waits.uid.clone() },
            queue: "default".into(),
            is_named: true,
        }),
    };
    let nominate = Decision::Nominate { pod: waits, node: "n".into(), devices: [].into() };
    problems(&world.store, &case.conf, &[evict, nominate]).join(", ")
}

#[test]
fn pods_that_a_budget_has_counted_already_are_not_counted_again() {
    let problem = "budget ns/b allows 0 evictions, not 1";
    assert!(problems_of_a_victim_with_budget("require", "", 1).contains(problem));
    let disrupted = "protected: '2025-01-01T00:00:00Z'";
    assert_eq!(problems_of_a_victim_with_budget("require", disrupted, 1), "");
}

#[test]
fn a_budget_is_exceeded_only_if_no_other_pod_is_large_enough() {
    assert_eq!(problems_of_a_victim_with_budget("prefer", "", 1), "");
    assert!(problems_of_a_victim_with_budget("prefer", "", 2).contains("pod ns/other could leave"));
}
