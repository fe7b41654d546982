//! What the cases of `filters/` do not show: conditions, capacity, dependencies, terms left out.

use crate::world::{World, node};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube_batch_framework::{
    arguments::Arguments,
    candidates::Search,
    plugin::{
        Capacity, Dependencies, Dependency, Extremes, NodeQuery, PlacementChange, Plugin, Scale,
    },
    policy::{ConfiguredPlugin, ExtensionPoints, Policy},
    session::Session,
    session_cache::SessionCache,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, TaskIdx},
    reason::Unfit,
    status::{Placement, TaskStatus},
};
use kube_batch_plugins::{
    binpack, conformance, drf, gang,
    nodeorder::{self, NodeOrder, arguments::NodeOrderArguments},
    predicates::{self, Predicates, arguments::PredicatesArguments},
    priority, proportion,
};
use serde_json::{Value, json};

fn read(world: Value) -> World {
    serde_json::from_value(world).expect("the manifests can be read")
}

fn pod(name: &str, spec: Value) -> Pod {
    let labels = json!({"app": "a"});
    let manifest = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
    serde_json::from_value(manifest).expect("the pod can be read")
}

fn task(cluster: &Cluster, name: &str) -> TaskIdx {
    let mut tasks = cluster.tasks.facts.iter();
    tasks.find(|(_, facts)| *facts.key.name == *name).expect("the pod exists").0
}

fn class(cluster: &Cluster, name: &str) -> ClassIdx {
    cluster.tasks.class[task(cluster, name)]
}

fn predicates(cluster: &Cluster, arguments: PredicatesArguments) -> Predicates {
    let mut plugin = Predicates::new(arguments);
    plugin.on_session_open(cluster, &mut SessionCache::new(cluster, jiff::Timestamp::MAX));
    plugin
}

fn nodeorder(cluster: &Cluster, arguments: NodeOrderArguments) -> NodeOrder {
    let mut plugin = NodeOrder::new(arguments);
    plugin.on_session_open(cluster, &mut SessionCache::new(cluster, jiff::Timestamp::MAX));
    plugin
}

/// Changes a placement and informs the plugin.
fn place(cluster: &mut Cluster, plugin: &mut dyn Plugin, name: &str, to: Placement) {
    let task = task(cluster, name);
    let from = cluster.set_placement(task, to);
    plugin.on_placement(cluster, &PlacementChange { task, from, to });
}

fn anti_affinity(key: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": "a"}}});
    json!({"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [term]
    }}})
}

fn on(status: TaskStatus, cluster: &Cluster, name: &str) -> Placement {
    Placement { status, node: Some(node(cluster, name)) }
}

#[test]
fn node_conditions_refuse_as_the_arguments_say() {
    let with = |name: &str, condition: &str, status: &str| {
        let conditions = json!([{"type": condition, "status": status}]);
        json!({"metadata": {"name": name}, "status": {"conditions": conditions}})
    };
    let world = read(json!({"nodes": [
        with("no-network", "NetworkUnavailable", "True"), with("disk", "DiskPressure", "True"),
        with("memory", "MemoryPressure", "True"), with("pid", "PIDPressure", "True"),
        with("not-ready", "Ready", "Unknown"), with("ready", "Ready", "True"),
        {"metadata": {"name": "no-conditions"}},
    ]}));
    let requests = json!({"requests": {"memory": "1"}});
    let cluster = world.snapshot(&[
        pod("best-effort", json!({"containers": [{"name": "c"}]})),
        pod("burstable", json!({"containers": [{"name": "c", "resources": requests}]})),
    ]);
    let off = predicates(&cluster, PredicatesArguments::default());
    let on = PredicatesArguments {
        memory_pressure: true,
        disk_pressure: true,
        pid_pressure: true,
        ..PredicatesArguments::default()
    };
    let on = predicates(&cluster, on);
    let refusal = |plugin: &Predicates, pod: &str, name: &str| {
        let (class, node) = (class(&cluster, pod), node(&cluster, name));
        plugin
            .predicate(&cluster, NodeQuery::new(class, node, Dependency::Class, Capacity::Idle))
            .err()
    };
    for plugin in [&off, &on] {
        assert_eq!(refusal(plugin, "burstable", "no-network"), Some(Unfit::NetworkUnavailable));
        assert_eq!(refusal(plugin, "burstable", "not-ready"), Some(Unfit::NotReady));
        assert_eq!(refusal(plugin, "burstable", "ready"), None);
        assert_eq!(refusal(plugin, "burstable", "no-conditions"), None);
    }
    for name in ["disk", "memory", "pid"] {
        assert_eq!(refusal(&off, "best-effort", name), None);
    }
    assert_eq!(refusal(&on, "best-effort", "memory"), Some(Unfit::MemoryPressure));
    assert_eq!(refusal(&on, "burstable", "memory"), None);
    assert_eq!(refusal(&on, "burstable", "disk"), Some(Unfit::DiskPressure));
    assert_eq!(refusal(&on, "burstable", "pid"), Some(Unfit::PidPressure));
}

#[test]
fn dependencies_are_those_of_the_filters_that_apply() {
    let class_alone = Dependencies::only(Dependency::Class);
    let of = |pods: &[Pod], name: &str| {
        let node = json!({"metadata": {"name": "n", "labels": {"zone": "z"}}});
        let cluster = read(json!({"nodes": [node]})).snapshot(pods);
        let plugin = predicates(&cluster, PredicatesArguments::default());
        plugin.dependencies(&cluster, class(&cluster, name))
    };
    let plain = pod("plain", json!({"nodeSelector": {"a": "b"}}));
    let port =
        json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}]});
    assert_eq!(of(std::slice::from_ref(&plain), "plain"), class_alone);
    assert_eq!(of(&[pod("port", port)], "port"), class_alone.with_if(Dependency::Node, true));
    let anti_affine = pod("anti-affine", anti_affinity("zone"));
    let domain = class_alone.with_if(Dependency::Domain, true);
    assert_eq!(of(&[plain.clone(), anti_affine.clone()], "anti-affine"), domain);
    assert_eq!(of(&[plain.clone(), anti_affine], "plain"), domain);
    let without_domains = pod("anti-affine", anti_affinity("a-label-that-no-node-has"));
    assert_eq!(of(&[plain, without_domains], "plain"), class_alone);
}

#[test]
fn scores_that_prefer_no_node_are_left_out() {
    let terms = |nodes: Value, pods: &[Pod], name: &str| {
        let cluster = read(json!({"nodes": nodes})).snapshot(pods);
        let every = NodeOrderArguments { imagelocality: 1, ..NodeOrderArguments::default() };
        let plugin = nodeorder(&cluster, every);
        plugin.score_terms(&cluster, class(&cluster, name)).len()
    };
    let bare = json!([{"metadata": {"name": "n"}}]);
    let idle = pod("idle", json!({}));
    assert_eq!(terms(bare.clone(), std::slice::from_ref(&idle), "idle"), 1);
    let requests = json!({"requests": {"cpu": "1"}});
    let busy = json!({"containers": [{"name": "c", "image": "i", "resources": requests}]});
    assert_eq!(terms(bare, &[pod("busy", busy.clone())], "busy"), 2);
    let taint = json!([{"key": "k", "effect": "PreferNoSchedule"}]);
    let rich = json!([
        {"metadata": {"name": "tainted"}, "spec": {"taints": taint}},
        {"metadata": {"name": "n"}, "status": {"images": [{"names": ["i"], "sizeBytes": 1}]}},
    ]);
    assert_eq!(terms(rich, &[pod("busy", busy)], "busy"), 4);
}

#[test]
fn terminating_pods_count_for_idle_but_not_for_future_idle() {
    let claim = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let mut user = anti_affinity("zone");
    user["volumes"] = claim.clone();
    user["nodeName"] = json!("n");
    let world = read(json!({
        "nodes": [{"metadata": {"name": "n", "labels": {"zone": "z"}}}],
        "existingPods": [pod("user", user)],
        "persistentVolumes": [{"metadata": {"name": "v"}}],
        "persistentVolumeClaims": [{
            "metadata": {"name": "c", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "v"},
        }],
    }));
    let mut cluster = world
        .snapshot(&[pod("same-claim", json!({"volumes": claim})), pod("anti-affine", json!({}))]);
    let mut plugin = predicates(&cluster, PredicatesArguments::default());
    let releasing = on(TaskStatus::Releasing, &cluster, "n");
    place(&mut cluster, &mut plugin, "user", releasing);
    let refusal = |name: &str, capacity: Capacity| {
        let (class, node) = (class(&cluster, name), node(&cluster, "n"));
        let rules = [Dependency::Domain, Dependency::Cluster].into_iter();
        let refusals = rules.filter_map(|rule| {
            plugin.predicate(&cluster, NodeQuery::new(class, node, rule, capacity)).err()
        });
        refusals.min()
    };
    assert_eq!(refusal("same-claim", Capacity::Idle), Some(Unfit::ClaimInUse));
    assert_eq!(refusal("same-claim", Capacity::FutureIdle), None);
    assert_eq!(refusal("anti-affine", Capacity::Idle), Some(Unfit::ExistingAntiAffinity));
    assert_eq!(refusal("anti-affine", Capacity::FutureIdle), None);
}

#[test]
fn terminating_pods_count_in_scores() {
    let requests = json!({"requests": {"cpu": "1"}});
    let containers = json!([{"name": "c", "resources": requests}]);
    let running = json!({"nodeName": "n", "containers": containers});
    let near = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 1,
        "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}},
    }]}});
    let world = read(json!({
        "nodes": [
            {"metadata": {"name": "m", "labels": {"zone": "y"}}},
            {
                "metadata": {"name": "n", "labels": {"zone": "z"}},
                "status": {"allocatable": {"cpu": "4", "memory": "4Gi"}},
            },
        ],
        "existingPods": [pod("old", running)],
    }));
    let new = json!({"affinity": near, "containers": containers});
    let mut cluster = world.snapshot(&[pod("new", new)]);
    let mut plugin = nodeorder(&cluster, NodeOrderArguments::default());
    let class = class(&cluster, "new");
    let nodes = [node(&cluster, "m"), node(&cluster, "n")];
    let scores = |plugin: &NodeOrder, cluster: &Cluster| {
        let terms = plugin.score_terms(cluster, class).into_iter();
        let all = terms.map(|term| {
            let mut scores = [0; 2];
            if term.scale == Scale::Joint {
                plugin.scores(cluster, class, &nodes, term.id, &mut scores);
            } else {
                scores = nodes.map(|node| plugin.score(cluster, class, node, term.id));
                let among = Extremes::of(scores.into_iter());
                scores = scores.map(|raw| term.scale.apply(raw, among));
            }
            scores
        });
        all.collect::<Vec<_>>()
    };
    let before = scores(&plugin, &cluster);
    assert!(before.contains(&[0, 100]));
    let releasing = on(TaskStatus::Releasing, &cluster, "n");
    place(&mut cluster, &mut plugin, "old", releasing);
    assert_eq!(scores(&plugin, &cluster), before);
}

#[test]
fn a_volume_is_chosen_once() {
    let user = |name: &str| {
        pod(name, json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}))
    };
    let claim = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"storageClassName": "wait", "accessModes": ["ReadWriteOnce"]},
        })
    };
    let world = read(json!({
        "nodes": [{"metadata": {"name": "n"}}],
        "storageClasses": [{
            "metadata": {"name": "wait"}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }],
        "persistentVolumes": [{
            "metadata": {"name": "v"},
            "spec": {"storageClassName": "wait", "accessModes": ["ReadWriteOnce"]},
        }],
        "persistentVolumeClaims": [claim("first"), claim("second")],
    }));
    let mut cluster = world.snapshot(&[user("first"), user("second")]);
    let mut plugin = predicates(&cluster, PredicatesArguments::default());
    let refusal = |plugin: &Predicates, cluster: &Cluster, name: &str| {
        let (class, node) = (class(cluster, name), node(cluster, "n"));
        plugin
            .predicate(cluster, NodeQuery::new(class, node, Dependency::Cluster, Capacity::Idle))
            .err()
    };
    assert_eq!(refusal(&plugin, &cluster, "second"), None);
    let allocated = on(TaskStatus::Allocated, &cluster, "n");
    place(&mut cluster, &mut plugin, "first", allocated);
    assert_eq!(refusal(&plugin, &cluster, "second"), Some(Unfit::NoVolume));
    place(&mut cluster, &mut plugin, "first", Placement::PENDING);
    assert_eq!(refusal(&plugin, &cluster, "second"), None);
}

#[test]
fn only_predicates_declares_dependencies() {
    let world = read(json!({"nodes": [{"metadata": {"name": "n"}}]}));
    let cluster = world.snapshot(&[pod("plain", json!({}))]);
    let class = class(&cluster, "plain");
    let others = [priority::SPEC, gang::SPEC, conformance::SPEC, drf::SPEC, proportion::SPEC];
    for spec in others.into_iter().chain([predicates::SPEC, nodeorder::SPEC, binpack::SPEC]) {
        let mut plugin = (spec.new)(&Arguments::default());
        plugin.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        let expected = match spec.name {
            "predicates" => Dependencies::only(Dependency::Class),
            _ => Dependencies::NONE,
        };
        assert_eq!(plugin.dependencies(&cluster, class), expected, "{}", spec.name);
    }
}

/// Implements no method, so that every default applies.
struct Defaults;

impl Plugin for Defaults {
    fn name(&self) -> &'static str {
        "defaults"
    }
}

#[test]
fn a_plugin_with_defaults_changes_no_decision() {
    let allocatable = |cpu: &str| json!({"allocatable": {"cpu": cpu, "pods": "9"}});
    let world = read(json!({"nodes": [
        {"metadata": {"name": "full"}, "status": allocatable("1")},
        {"metadata": {"name": "idle"}, "status": allocatable("4")},
    ]}));
    let requests = json!({"requests": {"cpu": "2"}});
    let pod = pod("p", json!({"containers": [{"name": "c", "resources": requests}]}));
    let cluster = world.snapshot(&[pod]);
    let class = class(&cluster, "p");
    let best = |with_defaults: bool| {
        let mut plugins: Vec<Box<dyn Plugin>> =
            vec![Box::new(Predicates::new(PredicatesArguments::default()))];
        if with_defaults {
            plugins.push(Box::new(Defaults));
        }
        let configured =
            |plugin| ConfiguredPlugin { plugin, extension_points: ExtensionPoints::ALL };
        let policy = Policy::new(vec![plugins.into_iter().map(configured).collect()]);
        let mut session = Session::open(cluster.clone(), Timestamp::MAX, policy, Search::Index);
        assert_eq!(session.search().is_indexable(class), !with_defaults);
        session.search().best_node(class).map(|best| best.node)
    };
    assert_eq!(best(false), Some(node(&cluster, "idle")));
    assert_eq!(best(true), best(false));
}
