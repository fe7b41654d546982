//! Kubernetes' filters and scores, as executed cases; see `filters/README.md`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use crate::world::{World, node, waiting};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube_batch_framework::{
    candidates::Search,
    plugin::{Capacity, Dependency, Extremes, IgnoredResources, NodeQuery, Plugin, Scale},
    policy::{ConfiguredPlugin, ExtensionPoints, Policy},
    session::Session,
    session_cache::SessionCache,
};
use kube_batch_model::{
    cluster::Cluster,
    column::{ClassIdx, Dim, NodeIdx},
    facts::class::PodTemplate,
    name::Name,
    node_set::NodeSet,
    quantity::Quantity,
    reason::{FitReport, Unfit},
    resource::{PODS, Unit},
    selector::node_affinity::NodeAffinity,
};
use kube_batch_plugins::{
    nodeorder::{NodeOrder, arguments::NodeOrderArguments},
    predicates::{Predicates, arguments::PredicatesArguments},
};
use serde::Deserialize;

/// Case files that are run elsewhere, and where.
const RUN_ELSEWHERE: &[(&str, &str)] =
    &[("preemption", "tests/tests/laws/preemption.rs, since it needs the action preempt")];

/// Cases that are not run: file, names, and why.
const LEFT_OUT: &[(&str, &[&str], &str)] = &[
    (
        "nodeunschedulable-nodename",
        &["nodename-no-match"],
        "a pod that names its node is bound and not asked about",
    ),
    ("nodevolumelimits-filter", &["limit-volume-attachment"], "VolumeAttachments are not watched"),
    (
        "nodevolumelimits-filter",
        &["driver-missing-gate-off"],
        "the gate VolumeLimitScaling is on since Kubernetes 1.37",
    ),
    (
        "volumebinding-filter",
        &["storage-capacity", "storage-capacity-max-volume-size"],
        "CSIStorageCapacity is not watched",
    ),
    (
        "podtopologyspread-filter",
        &["list-defaulting-filter"],
        "Services are not watched, so there are no default constraints",
    ),
    (
        "podtopologyspread-score",
        &["system-defaults", "system-defaults-missing-zone"],
        "Services are not watched, so there are no default constraints",
    ),
    (
        "interpodaffinity-score",
        &["hard-weight-0", "hard-weight-vs-preferred", "ignore-existing-preferred"],
        "the worth of required terms is not configurable",
    ),
    (
        "totals",
        &["total-spread-by-service"],
        "Services are not watched, so there are no default constraints",
    ),
];

/// Cases in which another filter gives the reason on every node: file, name, reason, and why.
const OTHER_REASON: &[(&str, &str, &str, &str)] = &[
    (
        "volumebinding-filter",
        "bound-pv-missing",
        "prefilter: persistentvolume \"pv1\" not found",
        "the PreFilter of VolumeZone looks up the volume",
    ),
    (
        "volumezone-filter",
        "zone-unbound-immediate",
        "prefilter: pod has unbound immediate PersistentVolumeClaims",
        "VolumeBinding runs first",
    ),
    (
        "volumezone-filter",
        "zone-class-missing",
        "prefilter: pod has unbound immediate PersistentVolumeClaims",
        "VolumeBinding runs first",
    ),
    (
        "interpodaffinity-filter",
        "anti-invalid-selector",
        "prefilter: parsing pod default/p: spec.affinity.podAntiAffinity.\
         requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchExpressions[0].\
         values[0]: \"{{.bad-value.}}\" is not a label value",
        "Kubernetes names neither the pod nor the whole path",
    ),
];

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    args: Args,
    pod: Pod,
    expect: Expect,
}

/// The arguments of Kubernetes' plugin that the plugins here take too.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Args {
    scoring_strategy: ScoringStrategy,
    /// Of the balance score.
    resources: Vec<ResourceWeight>,
    added_affinity: NodeAffinity,
    ignored_resources: Vec<Name>,
    ignored_resource_groups: Vec<Name>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ScoringStrategy {
    resources: Vec<ResourceWeight>,
}

#[derive(Debug, Deserialize)]
struct ResourceWeight {
    name: String,
    weight: i64,
}

impl Args {
    fn predicates(&self) -> PredicatesArguments {
        PredicatesArguments {
            added_affinity: self.added_affinity.required(),
            ignored_resources: IgnoredResources {
                names: self.ignored_resources.clone(),
                groups: self.ignored_resource_groups.clone(),
            },
            ..PredicatesArguments::default()
        }
    }

    /// The weights with the resources of these arguments.
    fn with_weights(&self, weights: &NodeOrderArguments) -> NodeOrderArguments {
        let resources = |listed: &[ResourceWeight]| {
            let weights = listed.iter().map(|r| (Name::from(r.name.as_str()), r.weight));
            let default = || NodeOrderArguments::default().leastrequested_resources;
            if listed.is_empty() { default() } else { weights.collect() }
        };
        NodeOrderArguments {
            leastrequested_resources: resources(&self.scoring_strategy.resources),
            mostrequested_resources: resources(&self.scoring_strategy.resources),
            balancedresource_resources: resources(&self.resources),
            added_affinity: self.added_affinity.preferred(),
            ..weights.clone()
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Expect {
    fits: BTreeMap<String, bool>,
    reason: BTreeMap<String, String>,
    #[serde(rename = "preemptionMayHelp")]
    _preemption_may_help: BTreeMap<String, bool>,
    message: Option<String>,
    scores: BTreeMap<String, i64>,
    scored_nodes: Vec<String>,
    skipped: bool,
    requests: Option<BTreeMap<String, String>>,
    scoring_requests: Option<ScoringRequests>,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoringRequests {
    cpu_milli: i64,
    memory_bytes: i64,
}

/// The differences between what a case expects and what the plugins answer.
type Differences = Vec<String>;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/filters")
}

fn cases(file: &str) -> Vec<(Case, World)> {
    let path = directory().join(file).with_extension("yaml");
    let text = fs::read_to_string(&path).expect("the case file can be read");
    // Otherwise a label value of `y` would be a boolean.
    let options = serde_saphyr::options! { strict_booleans: true };
    let values: Vec<serde_json::Value> =
        serde_saphyr::from_str_with_options(&text, options).expect("it is YAML");
    let read = |value: serde_json::Value| {
        let case: Case = serde_json::from_value(value.clone()).expect("it is a case");
        let world: World = serde_json::from_value(value).expect("its manifests can be read");
        (case, if file == "volumerestrictions-filter" { world.with_volumes() } else { world })
    };
    values.into_iter().map(read).collect()
}

/// Runs every case of a file. A case that is left out must differ: otherwise it can be run.
fn run(file: &str, check: impl Fn(&str, &Case, &World) -> Differences) {
    let mut failures = Vec::new();
    for (case, world) in &cases(file) {
        let mut lists = LEFT_OUT.iter().filter(|(of, ..)| *of == file);
        let is_left_out = lists.any(|(_, names, _)| names.contains(&case.name.as_str()));
        let differences = check(file, case, world);
        if is_left_out && differences.is_empty() {
            failures.push(format!("{file}/{}: is left out, but passes", case.name));
        }
        for difference in differences.iter().filter(|_| !is_left_out) {
            failures.push(format!("{file}/{}: {difference}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}

/// The pod of a case, and the plugin `predicates` with a session open for it.
struct Opened {
    cluster: Cluster,
    class: ClassIdx,
    plugin: Predicates,
}

impl Opened {
    /// `None` if the pod does not wait for a node.
    fn new(case: &Case, world: &World) -> Option<Self> {
        let cluster = world.snapshot(std::slice::from_ref(&case.pod));
        let class = waiting(&cluster)?;
        let mut plugin = Predicates::new(case.args.predicates());
        plugin.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        Some(Self { cluster, class, plugin })
    }

    /// Nodes about which [`Plugin::retain_eligible`] differs from its definition.
    fn eligible_differs(&self) -> impl Iterator<Item = NodeIdx> {
        let nodes = &self.cluster.nodes.facts;
        let mut eligible = NodeSet::all(nodes.len());
        self.plugin.retain_eligible(&self.cluster, self.class, &mut eligible);
        nodes.ids().filter(move |node| {
            eligible.contains(*node) != self.refusals(*node, &[Dependency::Class]).is_empty()
        })
    }

    /// Why the filters with these dependencies refuse a node: of several reasons, those that
    /// Kubernetes would report.
    fn refusals(&self, node: NodeIdx, only: &[Dependency]) -> Vec<Unfit> {
        let Self { cluster, class, plugin } = self;
        let dependencies = plugin.dependencies(cluster, *class);
        let only = only.iter().copied().filter(|dependency| dependencies.has(*dependency));
        let refusals = only.filter_map(|s| {
            plugin.predicate(cluster, NodeQuery::new(*class, node, s, Capacity::Idle)).err()
        });
        let mut refusals: Vec<Unfit> = refusals.collect();
        refusals.sort_unstable();
        let first = refusals.first().copied();
        refusals.retain(|refusal| first.is_some_and(|first| refusal.is_reported_with(first)));
        refusals
    }
}

/// Compares the reasons of the filters with these dependencies: a case is about one filter only, and
/// filters with other dependencies may refuse its pod too.
fn filters(dependencies: &[Dependency]) -> impl Fn(&str, &Case, &World) -> Differences {
    move |file, case, world| {
        let Some(opened) = Opened::new(case, world) else {
            return vec!["does not wait for a node".to_owned()];
        };
        let cluster = &opened.cluster;
        let n_nodes = cluster.nodes.facts.len();
        let mut others = OTHER_REASON.iter();
        let other = others.find(|(of, name, ..)| *of == file && *name == case.name);
        let other = other.map(|(_, _, reason, _)| *reason);
        let everywhere = opened.plugin.class_admitted(cluster, opened.class).err();
        let mut report = match &everywhere {
            Some(reason) => FitReport::everywhere(n_nodes, reason.clone()),
            None => FitReport::new(n_nodes),
        };
        let mut differences: Vec<String> = opened
            .eligible_differs()
            .map(|node| format!("the set of eligible nodes is wrong about {node:?}"))
            .collect();
        for (name, fits) in &case.expect.fits {
            let reason = match &everywhere {
                Some(reason) => Some(format!("prefilter: {}", reason.message)),
                None => {
                    let refusals = opened.refusals(node(cluster, name), dependencies);
                    let reasons = refusals.into_iter().map(|unfit| {
                        let reason = cluster.named_reason(opened.class, unfit);
                        let text = reason.to_string();
                        report.add(reason, 1);
                        text
                    });
                    Some(reasons.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
                }
            };
            let own = case.expect.reason.get(name).map(String::as_str).filter(|_| !fits);
            let expected = other.or(own);
            if reason.as_deref() != expected {
                differences.push(format!("node {name}: expected {expected:?}, got {reason:?}"));
            }
        }
        if let Some(message) = case.expect.message.as_ref().filter(|_| other.is_none())
            && report.to_string() != *message
        {
            differences.push(format!("expected the message {message:?}, got \"{report}\""));
        }
        differences
    }
}

fn resources(_: &str, case: &Case, world: &World) -> Differences {
    let mut cluster = world.snapshot(std::slice::from_ref(&case.pod));
    let predicates = Predicates::new(case.args.predicates());
    cluster.leave_out(|resource| predicates.settings().ignored_resources.has(resource));
    let class = waiting(&cluster).expect("the pod waits");
    let text = |dim: Dim| {
        let unfit = if dim == Dim::PODS { Unfit::TooManyPods } else { Unfit::Insufficient(dim) };
        cluster.named_reason(class, unfit).to_string()
    };
    let mut differences = Vec::new();
    for (name, fits) in &case.expect.fits {
        let row = node(&cluster, name);
        let request = &cluster.classes.request[class];
        let lacking = cluster.nodes.lacking(row, request).map(text);
        let unknown = request.unknown().iter().map(|name| format!("Insufficient {name}"));
        let mut reasons: Vec<String> = lacking.chain(unknown).collect();
        reasons.sort_unstable();
        let expected = case.expect.reason.get(name).map_or("", String::as_str);
        let mut expected: Vec<&str> = expected.split(", ").filter(|r| !r.is_empty()).collect();
        expected.sort_unstable();
        if reasons != expected || *fits != reasons.is_empty() {
            differences.push(format!("node {name} should lack {expected:?}, lacks {reasons:?}"));
        }
    }
    differences
}

fn requests(_: &str, case: &Case, world: &World) -> Differences {
    let mut world = world.clone();
    world.existing_pods.push(case.pod.clone());
    let cluster = world.snapshot(&[]);
    let bound = cluster.classes.template.values().next();
    let waits = || {
        let cluster = World::default().snapshot(std::slice::from_ref(&case.pod));
        cluster.classes.template.values().next().expect("the pod is in the snapshot").clone()
    };
    compare_requests(&case.expect, &bound.cloned().unwrap_or_else(waits))
}

fn compare_requests(expect: &Expect, template: &PodTemplate) -> Differences {
    let positive = template.request.iter().filter(|(name, amount)| ***name != *PODS && *amount > 0);
    let requests: BTreeMap<&str, i64> =
        positive.map(|(name, amount)| (name.as_str(), amount)).collect();
    let wanted = expect.requests.iter().flatten().map(|(name, text)| {
        let quantity: Quantity = text.parse().expect("the expected amount can be read");
        (name.as_str(), Unit::of(name).amount(quantity))
    });
    let wanted: BTreeMap<&str, i64> = wanted.filter(|(_, amount)| *amount > 0).collect();
    let mut differences = Vec::new();
    if requests != wanted {
        differences.push(format!("should request {wanted:?}, requests {requests:?}"));
    }
    let scoring = ScoringRequests {
        cpu_milli: template.scoring.cpu_milli,
        memory_bytes: template.scoring.memory_bytes,
    };
    if let Some(wanted) = expect.scoring_requests.as_ref().filter(|wanted| **wanted != scoring) {
        differences.push(format!("scores should count {wanted:?}, count {scoring:?}"));
    }
    differences
}

/// Compares the scores of one term, alone and with weight 1.
fn scores(weights: NodeOrderArguments) -> impl Fn(&str, &Case, &World) -> Differences {
    move |_, case, world| {
        let cluster = world.snapshot(std::slice::from_ref(&case.pod));
        let class = waiting(&cluster).expect("the pod waits");
        let mut plugin = NodeOrder::new(case.args.with_weights(&weights));
        plugin.on_session_open(&cluster, &mut SessionCache::new(&cluster, jiff::Timestamp::MAX));
        let terms = plugin.score_terms(&cluster, class);
        let Some(term) = terms.first() else {
            let expected = &case.expect.scores;
            let are_equal = expected.values().min() == expected.values().max();
            return if case.expect.skipped || are_equal {
                Vec::new()
            } else {
                vec![format!("is not scored, should be {expected:?}")]
            };
        };
        let names = &case.expect.scored_nodes;
        let nodes: Vec<NodeIdx> = names.iter().map(|name| node(&cluster, name)).collect();
        let mut raw = vec![0; nodes.len()];
        if term.scale == Scale::Joint {
            plugin.scores(&cluster, class, &nodes, term.id, &mut raw);
        } else {
            // A plugin answers for many nodes at once in another way than for few.
            let many = nodes.repeat(9);
            let mut of_many = vec![0; many.len()];
            plugin.scores(&cluster, class, &many, term.id, &mut of_many);
            let score = |node: &NodeIdx| plugin.score(&cluster, class, *node, term.id);
            raw = nodes.iter().map(score).collect();
            assert_eq!(of_many, raw.repeat(9), "as one after another");
        }
        let among = Extremes::of(raw.iter().copied());
        let scaled = raw.iter().map(|raw| term.scale.apply(*raw, among));
        let scores: BTreeMap<String, i64> = names.iter().cloned().zip(scaled).collect();
        if scores == case.expect.scores {
            Vec::new()
        } else {
            vec![format!("should score {:?}, scores {scores:?}", case.expect.scores)]
        }
    }
}

/// A session with both plugins, the scores weighted as Kubernetes does by default.
fn session(cluster: Cluster) -> Session {
    let weights = NodeOrderArguments {
        nodeaffinity: 2,
        podaffinity: 2,
        tainttoleration: 3,
        podtopologyspread: 2,
        imagelocality: 1,
        ..NodeOrderArguments::default()
    };
    let plugins: [Box<dyn Plugin>; 2] = [
        Box::new(Predicates::new(PredicatesArguments::default())),
        Box::new(NodeOrder::new(weights)),
    ];
    let configured =
        plugins.map(|plugin| ConfiguredPlugin { plugin, extension_points: ExtensionPoints::ALL });
    Session::open(cluster, Timestamp::MAX, Policy::new(vec![configured.into()]), Search::default())
}

/// Compares the message for a pod that fits on no node, with all filters and resources together.
fn messages(_: &str, case: &Case, world: &World) -> Differences {
    let cluster = world.snapshot(std::slice::from_ref(&case.pod));
    let class = waiting(&cluster).expect("the pod waits");
    let nodes: Vec<NodeIdx> = case.expect.fits.keys().map(|name| node(&cluster, name)).collect();
    let mut session = session(cluster);
    let fits = nodes.iter().map(|node| session.search().fits(class, *node, Capacity::Idle));
    let fits: Vec<bool> = fits.collect();
    let mut differences = Vec::new();
    if !fits.iter().eq(case.expect.fits.values()) {
        differences.push(format!("should fit {:?}, fits {fits:?}", case.expect.fits));
    }
    let message = session.search().explain(class).to_string();
    if case.expect.message.as_ref() != Some(&message) {
        differences.push(format!("expected {:?}, got {message:?}", case.expect.message));
    }
    differences
}

/// Compares the differences between the sums of all scores: scores that are equal on all nodes are
/// left out, so the sums themselves are smaller.
fn totals(_: &str, case: &Case, world: &World) -> Differences {
    let cluster = world.snapshot(std::slice::from_ref(&case.pod));
    let class = waiting(&cluster).expect("the pod waits");
    let names = &case.expect.scored_nodes;
    let nodes: Vec<NodeIdx> = names.iter().map(|name| node(&cluster, name)).collect();
    let scores = session(cluster).scores_once_released(class, &nodes);
    let above_least = |scores: Vec<i64>| {
        let least = scores.iter().min().copied().unwrap_or(0);
        scores.into_iter().map(|score| score - least).collect::<Vec<i64>>()
    };
    let scores = above_least(scores);
    let wanted = above_least(names.iter().map(|name| case.expect.scores[name]).collect());
    if scores == wanted {
        Vec::new()
    } else {
        vec![format!("expected {wanted:?} above the least, got {scores:?}")]
    }
}

macro_rules! run {
    ($($test:ident: $file:literal, $check:expr;)*) => {
        const RUN: &[&str] = &[$($file),*];

        $(#[test]
        fn $test() {
            run($file, $check);
        })*
    };
}

run! {
    effective_requests: "effective-requests", requests;
    node_resources_fit_filter: "noderesourcesfit-filter", resources;
    node_unschedulable_filter: "nodeunschedulable-nodename", filters(&[Dependency::Class]);
    taint_toleration_filter: "tainttoleration-filter", filters(&[Dependency::Class]);
    node_affinity_filter: "nodeaffinity-filter", filters(&[Dependency::Class]);
    node_ports_filter: "nodeports-filter", filters(&[Dependency::Node]);
    volume_restrictions_filter: "volumerestrictions-filter", filters(&Dependency::ALL);
    node_volume_limits_filter: "nodevolumelimits-filter",
        filters(&[Dependency::Class, Dependency::Node]);
    volume_binding_filter: "volumebinding-filter", filters(&Dependency::ALL);
    volume_zone_filter: "volumezone-filter", filters(&[Dependency::Class]);
    pod_topology_spread_filter: "podtopologyspread-filter", filters(&[Dependency::Domain]);
    inter_pod_affinity_filter: "interpodaffinity-filter",
        filters(&[Dependency::Domain, Dependency::Cluster]);
    least_requested_score: "noderesources-leastallocated-score",
        scores(NodeOrderArguments { leastrequested: 1, ..NodeOrderArguments::no_weights() });
    most_requested_score: "noderesources-mostallocated-score",
        scores(NodeOrderArguments { mostrequested: 1, ..NodeOrderArguments::no_weights() });
    balanced_allocation_score: "noderesources-balancedallocation-score",
        scores(NodeOrderArguments { balancedresource: 1, ..NodeOrderArguments::no_weights() });
    node_affinity_score: "nodeaffinity-score",
        scores(NodeOrderArguments { nodeaffinity: 1, ..NodeOrderArguments::no_weights() });
    taint_toleration_score: "tainttoleration-score",
        scores(NodeOrderArguments { tainttoleration: 1, ..NodeOrderArguments::no_weights() });
    inter_pod_affinity_score: "interpodaffinity-score",
        scores(NodeOrderArguments { podaffinity: 1, ..NodeOrderArguments::no_weights() });
    pod_topology_spread_score: "podtopologyspread-score",
        scores(NodeOrderArguments { podtopologyspread: 1, ..NodeOrderArguments::no_weights() });
    image_locality_score: "imagelocality-score",
        scores(NodeOrderArguments { imagelocality: 1, ..NodeOrderArguments::no_weights() });
    messages_of_all_filters: "messages", messages;
    totals_of_all_scores: "totals", totals;
}

#[test]
fn every_file_is_run_or_listed() {
    let mut files: Vec<String> = fs::read_dir(directory())
        .expect("the directory can be read")
        .map(|entry| entry.expect("the entry can be read").file_name().into_string())
        .filter_map(|name| name.ok()?.strip_suffix(".yaml").map(str::to_owned))
        .collect();
    files.sort_unstable();
    let mut known: Vec<&str> =
        RUN.iter().chain(RUN_ELSEWHERE.iter().map(|(file, _)| file)).copied().collect();
    known.sort_unstable();
    assert_eq!(files, known);
}

#[test]
fn listed_cases_exist() {
    let left_out = LEFT_OUT.iter().flat_map(|(file, names, reason)| {
        assert!(!reason.is_empty());
        names.iter().map(move |name| (*file, *name))
    });
    let other_reason = OTHER_REASON.iter().map(|(file, name, ..)| (*file, *name));
    for (file, name) in left_out.chain(other_reason) {
        let exists = cases(file).iter().any(|(case, _)| case.name == name);
        assert!(exists, "{file} has no case {name}");
    }
}
