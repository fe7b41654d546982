//! What a scheduler remembers from one cycle to the next: it changes no decision and no report, and turns
//! in vain take a bounded part of a cycle.

pub(crate) mod changes;
mod claims;
mod fields;
mod history;
mod plugins;
mod turns;
mod unfit;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube_batch_api::kind::ApplyObject as _;
use kube_batch_cache::store::Store;
use kube_batch_framework::{candidates::Search, memory::Memory, report::Cycle};
use kube_batch_model::{
    decision::Decision,
    facts::{
        device::claim::{ClaimEntry, ClaimSource},
        group::GroupFacts,
        pod::TaskFacts,
    },
    job_report::JobReport,
    name::ObjectKey,
    reason::Reason,
};
use kube_batch_scheduler::registry::Registry;
use kube_batch_sim::{case::Case, simulation::Simulation, world::World};
use kube_batch_tests::{
    random_cluster::{RandomCluster, Rng},
    seeds::seeds,
};
use kube_batch_yaml::{Limits, parse};

use self::changes::Change;

/// Seeds of clusters that showed a defect. 1592: a pod that waits came to have a rule about those of a gang in vain.
/// 11039: a job found no place beside a nominated pod, which was then deleted.
const FOUND: [u64; 2] = [1592, 11039];

pub(crate) fn read(text: &str) -> Case {
    let document = parse(text, &Limits::default()).expect("YAML");
    Case::read(&document, &Registry::builtin()).expect("a case")
}

/// A simulation of a case with those of its objects for which `include` says so.
pub(crate) fn simulation(
    case: &Case,
    memory: Memory,
    include: impl Fn(usize) -> bool,
) -> Simulation {
    let mut world =
        World::new(case.environment, case.options.clone(), case.conf.metadata_prefixes());
    for (at, object) in case.objects.iter().enumerate() {
        if include(at) {
            world.apply(object.value.clone()).expect("objects are valid");
        }
    }
    Simulation::new(world, case.conf.clone(), Search::Index).with_memory(memory)
}

/// Runs a cycle. What may differ between simulations is left out: the work, what earlier cycles have written, and of
/// which jobs nothing has changed.
fn cycle(simulation: &mut Simulation) -> (Cycle, u64) {
    let cycle = &simulation.cycle(&mut |_| {}).cycle;
    let without_status = |job: &Arc<JobReport>| {
        let spec_only = |group: &Arc<GroupFacts>| {
            Arc::new(GroupFacts { status: Default::default(), ..GroupFacts::clone(group) })
        };
        Arc::new(JobReport { group: job.group.as_ref().map(spec_only), ..JobReport::clone(job) })
    };
    let jobs = Arc::new(cycle.jobs.iter().map(without_status).collect());
    (Cycle { work: 0, jobs, unsettled: None, ..cycle.clone() }, cycle.work)
}

/// The cycle without the reasons why jobs wait. A job whose try is remembered is reported as it was found before the
/// decisions of the cycle, so after a decision only these may differ.
fn without_reasons(cycle: &Cycle) -> Cycle {
    let without_reason = |job: &Arc<JobReport>| {
        Arc::new(JobReport {
            n_fitting: 0,
            n_remaining: 0,
            unschedulable: None,
            unplaced_because: None,
            ..JobReport::clone(job)
        })
    };
    Cycle { jobs: Arc::new(cycle.jobs.iter().map(without_reason).collect()), ..cycle.clone() }
}

/// Checks that a cycle with a memory decides and reports the same as one without. `history` says which one it is.
fn assert_same(with: &Cycle, without: &Cycle, history: impl Fn() -> String) {
    let message = || format!("{}{with:#?}\n{without:#?}", history());
    assert!(with.decisions == without.decisions, "{}", message());
    let is_same = match with.decisions.is_empty() {
        true => with == without,
        false => without_reasons(with) == without_reasons(without),
    };
    assert!(is_same, "{}", message());
}

/// What changes between two cycles, if anything does. The numbers are the objects of the case that are still to come.
type NextChange = fn(&Simulation, &mut Rng, &mut Vec<usize>) -> Option<Change>;

/// Plays a history with a memory and without, and checks that every cycle decides and reports the same. Returns the
/// evaluations of nodes that each took.
fn compare(seed: u64, case: &Case, rng: &mut Rng, next_change: NextChange) -> (u64, u64) {
    // Some objects come later.
    let late: Vec<bool> = case.objects.iter().map(|_| rng.percent(30)).collect();
    let memories = [Memory::with_budget(u64::MAX), Memory::none()];
    let [mut with, mut without] = memories.map(|memory| simulation(case, memory, |at| !late[at]));
    let mut late: Vec<usize> = (0..late.len()).filter(|at| late[*at]).collect();
    let mut work = (0, 0);
    for step in 0..25 {
        if let Some(change) = next_change(&with, rng, &mut late) {
            change.make(case, &mut with);
            change.make(case, &mut without);
        }
        let ((of_with, work_with), (of_without, work_without)) =
            (cycle(&mut with), cycle(&mut without));
        assert_same(&of_with, &of_without, || format!("seed {seed}, step {step}: "));
        work = (work.0 + work_with, work.1 + work_without);
    }
    work
}

#[test]
fn what_is_remembered_changes_no_decision_and_no_report() {
    // Evaluations with a memory and without, in clusters without devices and with some.
    let mut work = [(0, 0); 2];
    for seed in seeds(300).into_iter().chain(FOUND) {
        let mut rng = Rng::new(seed);
        let random =
            if rng.percent(50) { RandomCluster::new(seed) } else { RandomCluster::contended(seed) };
        let case = read(&random.case());
        let (with, without) = compare(seed, &case, &mut rng, Change::of_any_object);
        let sum = &mut work[usize::from(random.has_devices())];
        *sum = (sum.0 + with, sum.1 + without);
    }
    // Where pods need devices, most changes are of claims that have some, and may help others.
    for ((with, without), most) in work.into_iter().zip([93, 97]) {
        let message = format!("little was remembered: {with} of {without} evaluations");
        assert!(with * 100 < without * most, "{message}");
    }
}

/// Every field that can change of a pod that waits, or of a PodGroup, has other values at some time. 1607: the
/// `minResources` of a PodGroup came to exceed the capability of its queue.
#[test]
fn a_try_is_forgotten_when_what_it_depends_on_has_changed() {
    for seed in seeds(300).into_iter().chain([1607]) {
        let mut rng = Rng::new(seed.rotate_left(32));
        let random =
            if rng.percent(50) { RandomCluster::new(seed) } else { RandomCluster::contended(seed) };
        compare(seed, &read(&random.case()), &mut rng, Change::of_any_field);
    }
}

/// A queue above its share, whose only gang runs its minimum, and a queue that waits for its share.
const PROTECTED_BY_ITS_MINIMUM: &str = "name: protected-by-its-minimum
config:
  actions: reclaim, allocate
  tiers:
  - plugins: [{name: priority}, {name: gang}]
  - plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: one}, spec: {weight: 1}}
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: two}, spec: {weight: 1}}
- {apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: '2', pods: '9'}}}
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: runs, namespace: ns}, spec: {minMember: 2, queue: one}}
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: waits, namespace: ns}, spec: {minMember: 1, queue: two}}
- apiVersion: v1
  kind: Pod
  count: 2
  metadata: {name: runs-0, namespace: ns, annotations: {scheduling.k8s.io/group-name: runs}}
  spec:
    schedulerName: kube-batch
    nodeName: n
    containers: [{name: c, resources: {requests: {cpu: '1'}}}]
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {name: waits, namespace: ns, annotations: {scheduling.k8s.io/group-name: waits}}
  spec:
    schedulerName: kube-batch
    containers: [{name: c, resources: {requests: {cpu: '1'}}}]
steps:
- cycles: 1
";

#[test]
fn a_job_is_tried_again_when_another_is_protected_no_longer() {
    evicts_after(PROTECTED_BY_ITS_MINIMUM, |store| {
        let (key, facts) = store.groups.iter().next().expect("the gang that runs");
        let (key, facts) = (key.clone(), GroupFacts { min_member: 3, ..GroupFacts::clone(facts) });
        store.groups.apply(key, facts);
    });
    evicts_after(PROTECTED_BY_A_POD, |store| {
        store.pods.delete(&ObjectKey::new("ns", "high"));
    });
}

/// A job without a PodGroup that is protected by the priority of its pod that fits nowhere, and one that waits for
/// its node in a queue below its share.
const PROTECTED_BY_A_POD: &str = "name: protected-by-a-pod
config:
  actions: allocate, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang}]
  - plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: mid}, value: 100}
- {apiVersion: v1, kind: Node, metadata: {name: n, labels: {disk: ssd}}, status: {allocatable: {cpu: '2', pods: '9'}}}
- {apiVersion: v1, kind: Node, metadata: {name: idle}, status: {allocatable: {cpu: '2', pods: '9'}}}
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: waits, namespace: ns}, spec: {minMember: 1, priorityClassName: mid}}
- apiVersion: v1
  kind: Pod
  metadata: {name: low, namespace: ns, ownerReferences: [{apiVersion: v1, kind: ReplicationController, name: c, uid: c, controller: true}]}
  spec:
    schedulerName: kube-batch
    nodeName: n
    priority: 10
    containers: [{name: c, resources: {requests: {cpu: '2'}}}]
  status: {phase: Running}
- apiVersion: v1
  kind: Pod
  metadata: {name: high, namespace: ns, ownerReferences: [{apiVersion: v1, kind: ReplicationController, name: c, uid: c, controller: true}]}
  spec:
    schedulerName: kube-batch
    priority: 1000
    containers: [{name: c, resources: {requests: {cpu: '9'}}}]
- apiVersion: v1
  kind: Pod
  metadata: {name: waits, namespace: ns, annotations: {scheduling.k8s.io/group-name: waits}}
  spec:
    schedulerName: kube-batch
    nodeSelector: {disk: ssd}
    containers: [{name: c, resources: {requests: {cpu: '2'}}}]
steps:
- cycles: 1
";

/// Runs a case until jobs wait in vain, changes the cluster, and checks that the next cycle evicts a pod.
fn evicts_after(text: &str, change: impl FnOnce(&mut Store)) {
    let case = read(text);
    let mut simulation = simulation(&case, Memory::with_budget(u64::MAX), |_| true);
    for _ in 0..3 {
        assert_eq!(cycle(&mut simulation).0.decisions, []);
    }
    change(&mut simulation.world.store);
    let (cycle, _) = cycle(&mut simulation);
    assert!(matches!(cycle.decisions[..], [Decision::Evict { .. }, ..]), "{:?}", cycle.decisions);
}

/// A node with room for one more pod, but not for one of those that wait. A pod of higher priority comes
/// later, and fits. The queue deserves the whole cluster throughout.
const BEFORE_A_JOB_IN_VAIN: &str = "name: before-a-job-in-vain
config:
  actions: allocate
  tiers:
  - plugins: [{name: priority}, {name: gang}]
  - plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
- {apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 100}
- {apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: '5', pods: '2'}}}
- {apiVersion: v1, kind: Node, metadata: {name: o}, status: {allocatable: {cpu: '2', pods: '9'}}}
- apiVersion: v1
  kind: Pod
  metadata: {name: runs, namespace: ns}
  spec:
    nodeName: n
    schedulerName: kube-batch
    containers: [{name: c, resources: {requests: {cpu: '1'}}}]
  status: {phase: Running}
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: low, namespace: ns}, spec: {minMember: 1}}
- apiVersion: v1
  kind: Pod
  count: 2
  metadata: {name: low-0, namespace: ns, annotations: {scheduling.k8s.io/group-name: low}}
  spec:
    schedulerName: kube-batch
    containers: [{name: c, resources: {requests: {cpu: '5'}}}]
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: PodGroup, metadata: {name: high, namespace: ns}, spec: {minMember: 1, priorityClassName: high}}
- apiVersion: v1
  kind: Pod
  metadata: {name: high, namespace: ns, annotations: {scheduling.k8s.io/group-name: high}}
  spec:
    schedulerName: kube-batch
    priority: 100
    containers: [{name: c, resources: {requests: {cpu: '3'}}}]
steps:
- cycles: 1
";

#[test]
fn a_job_is_tried_again_after_another_has_started() {
    let case = read(BEFORE_A_JOB_IN_VAIN);
    let late = case.objects.len() - 1;
    let memories = [Memory::with_budget(u64::MAX), Memory::none()];
    let [with, without] = memories.map(|memory| {
        let mut simulation = simulation(&case, memory, |at| at != late);
        for _ in 0..3 {
            assert_eq!(cycle(&mut simulation).0.decisions, []);
        }
        simulation.world.apply(case.objects[late].value.clone()).expect("valid");
        cycle(&mut simulation).0
    });
    assert!(matches!(with.decisions[..], [Decision::Bind { .. }]), "{:?}", with.decisions);
    assert_eq!(with, without);
    let low = with.jobs.iter().find(|job| job.key.to_string() == "ns/low").expect("the job");
    let why = low.unplaced_because.as_ref().expect("its pod waits").words();
    assert!(why.contains("Too many pods"), "{why}");
}

/// A pod whose claim was made from a template, but is not named in its status yet.
const WITHOUT_ITS_CLAIM: &str = "name: without-its-claim
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
- {apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: '1', pods: '9'}}}
- {apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {selectors: []}}
- apiVersion: resource.k8s.io/v1
  kind: ResourceSlice
  metadata: {name: n}
  spec: {driver: gpu.example.com, pool: {name: n, generation: 1, resourceSliceCount: 1}, nodeName: n, devices: [{name: gpu-0}]}
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaim
  metadata: {name: p-gpu, namespace: ns, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: p, controller: true}]}
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}
- apiVersion: v1
  kind: Pod
  metadata: {name: p, namespace: ns, uid: p}
  spec:
    schedulerName: kube-batch
    resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
    containers: [{name: c, resources: {requests: {cpu: '1'}}}]
steps:
- cycles: 1
";

#[test]
fn a_job_is_tried_again_when_its_claim_for_devices_is_made() {
    let case = read(WITHOUT_ITS_CLAIM);
    let mut simulation = simulation(&case, Memory::with_budget(u64::MAX), |_| true);
    for _ in 0..3 {
        assert_eq!(cycle(&mut simulation).0.decisions, []);
    }
    let pods = &mut simulation.world.store.pods;
    let (key, facts) = pods.iter().next().expect("the pod");
    let source = ClaimSource::Generated { claim: "p-gpu".into(), template: "gpu".into() };
    let device_claims = Box::new([ClaimEntry { name: "gpu".into(), source }]);
    let (key, facts) = (key.clone(), TaskFacts { device_claims, ..TaskFacts::clone(facts) });
    pods.apply(key, facts);
    let (cycle, _) = cycle(&mut simulation);
    assert!(matches!(cycle.decisions[..], [Decision::Bind { .. }]), "{:?}", cycle.decisions);
}

/// 30 nodes that have one of three CPUs left, and two queues. Each of 40 jobs of the first queue has a
/// template of its own that needs two; the pod of the second queue fits, and so does the last job of
/// the first.
fn crowded() -> String {
    let mut text = String::from(
        "name: crowded
config:
  actions: reclaim, allocate, preempt
  tiers:
  - plugins: [{name: priority}, {name: gang}]
  - plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: many}, spec: {weight: 9}}
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: one}, spec: {weight: 1}}
",
    );
    for n in 0..30 {
        text += &format!(
            "- {{apiVersion: v1, kind: Node, metadata: {{name: n{n}}}, \
             status: {{allocatable: {{cpu: '3', pods: '9'}}}}}}
- apiVersion: v1
  kind: Pod
  metadata: {{name: runs-{n}, namespace: ns, annotations: {{scheduling.k8s.io/group-name: runs-{n}}}}}
  spec:
    schedulerName: kube-batch
    nodeName: n{n}
    containers: [{{name: c, resources: {{requests: {{cpu: '2'}}}}}}]
  status: {{phase: Running}}
- apiVersion: scheduling.sigs.dev/v1alpha2
  kind: PodGroup
  metadata: {{name: runs-{n}, namespace: ns, creationTimestamp: '2025-01-01T00:00:00Z'}}
  spec: {{minMember: 1, queue: many}}
"
        );
    }
    let jobs = (0..40).map(|n| (format!("many-{n}"), "many", 2000 + n, n));
    let fitting = [("many-last".to_owned(), "many", 100, 50), ("one".to_owned(), "one", 100, 59)];
    for (name, queue, millis, second) in jobs.chain(fitting) {
        text += &format!(
            "- apiVersion: scheduling.sigs.dev/v1alpha2
  kind: PodGroup
  metadata: {{name: {name}, namespace: ns, creationTimestamp: '2025-01-01T00:00:{second:02}Z'}}
  spec: {{minMember: 1, queue: {queue}}}
- apiVersion: v1
  kind: Pod
  metadata: {{name: {name}, namespace: ns, annotations: {{scheduling.k8s.io/group-name: {name}}}}}
  spec:
    schedulerName: kube-batch
    containers: [{{name: c, resources: {{requests: {{cpu: {millis}m}}}}}}]
"
        );
    }
    text + "steps:\n- cycles: 1\n"
}

fn bound(cycle: &Cycle) -> Vec<String> {
    let names = cycle.decisions.iter().filter_map(|decision| match decision {
        Decision::Bind { pod, .. } => Some(pod.key.name.to_string()),
        Decision::Evict { .. }
        | Decision::Nominate { .. }
        | Decision::Withdraw { .. }
        | Decision::Deallocate { .. } => None,
    });
    names.collect()
}

#[test]
fn turns_in_vain_take_a_bounded_part_of_a_cycle_and_every_job_gets_its_turn() {
    let case = read(&crowded());
    let (_, unbounded) = cycle(&mut simulation(&case, Memory::none(), |_| true));
    // A few of the 40 jobs in each cycle.
    let mut simulation = simulation(&case, Memory::with_budget(1000), |_| true);
    let mut n_cycles = 0;
    loop {
        n_cycles += 1;
        let (cycle, work) = cycle(&mut simulation);
        assert!(work < unbounded / 2, "{work} of {unbounded} evaluations");
        let bound = bound(&cycle);
        if n_cycles == 1 {
            assert_eq!(bound, ["one"], "the other queue does not wait");
            let reports = cycle.jobs.iter().filter_map(|job| job.unschedulable.as_ref());
            assert!(reports.clone().any(|why| why.reason() == Reason::NotTried));
            assert!(cycle.next_due.is_some_and(|due| due.is_zero()), "the next one continues");
        } else if bound == ["many-last"] {
            break;
        }
        assert!(n_cycles < 40, "a job gets no turn");
    }
    assert!(n_cycles > 2, "nothing was put off");
    for _ in 0..40 {
        cycle(&mut simulation);
    }
    let (last, _) = cycle(&mut simulation);
    assert_eq!(last.next_due, None, "the round ends");
    let not_tried = |job: &&std::sync::Arc<kube_batch_framework::report::JobReport>| {
        job.unschedulable.as_ref().is_some_and(|why| why.reason() == Reason::NotTried)
    };
    assert_eq!(last.jobs.iter().find(not_tried), None, "each was tried");
}

/// The operator may write the status of a PodGroup some cycles later.
#[test]
fn an_evicted_gang_is_reported_until_it_runs_again() {
    let case = read(include_str!("../../cases/preempt-gang-leaves-whole.yaml"));
    let mut simulation = simulation(&case, Memory::default(), |_| true);
    let mut reported = || {
        let (cycle, _) = cycle(&mut simulation);
        let low = cycle.jobs.iter().find(|job| job.key.to_string() == "ns/low").expect("the gang");
        low.evicted.clone()
    };
    let evicted = reported();
    assert!(evicted.is_some());
    assert_eq!((reported(), reported()), (evicted.clone(), evicted));
    // Its pods have no controller that creates them again.
    for at in 0..4 {
        let pod = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": format!("new-{at}"), "namespace": "ns", "uid": format!("new-{at}"),
                "annotations": {"scheduling.k8s.io/group-name": "low"},
            },
            "spec": {
                "schedulerName": "kube-batch", "nodeName": "elsewhere",
                "containers": [{"name": "c"}],
            },
            "status": {"phase": "Running"},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        simulation.world.store.apply(&pod).expect("facts");
    }
    let (cycle, _) = cycle(&mut simulation);
    assert!(cycle.jobs.iter().all(|job| job.evicted.is_none()));
}

/// The case in which a pod would start only to be preempted, and jobs of another queue that find no place. Each has a
/// template of its own.
fn beside_many_in_vain() -> Case {
    let case = include_str!("../../cases/preempt-nothing-starts-to-be-preempted.yaml");
    let (objects, steps) = case.split_once("steps:").expect("steps");
    let mut text = format!(
        "{objects}- {{apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {{name: many}}, \
         spec: {{weight: 1}}}}\n"
    );
    for n in 0..40 {
        text += &format!(
            "- apiVersion: scheduling.sigs.dev/v1alpha2
  kind: PodGroup
  metadata: {{name: many-{n}, namespace: ns}}
  spec: {{minMember: 1, queue: many}}
- apiVersion: v1
  kind: Pod
  metadata: {{name: many-{n}, namespace: ns, annotations: {{scheduling.k8s.io/group-name: many-{n}}}}}
  spec:
    schedulerName: kube-batch
    tolerations: [{{key: key-{n}, operator: Exists}}]
    containers: [{{name: main, image: app, resources: {{requests: {{cpu: '3'}}}}}}]
"
        );
    }
    read(&format!("{text}steps:{steps}"))
}

#[test]
fn jobs_of_another_queue_do_not_let_a_pod_start_only_to_be_evicted() {
    let case = beside_many_in_vain();
    // Their turns take far more than that.
    let memories = [Memory::none(), Memory::with_budget(20)];
    let decisions =
        memories.map(|memory| cycle(&mut simulation(&case, memory, |_| true)).0.decisions);
    assert!(matches!(decisions[0][..], [Decision::Evict { .. }, Decision::Nominate { .. }]));
    assert_eq!(decisions[0], decisions[1]);
}

/// 30 nodes, and gangs with as many templates as pods.
fn with_gangs_of_templates(gangs: &[(&str, usize, &str)]) -> Case {
    let mut text = String::from(
        "name: templates
config:
  actions: allocate
  tiers:
  - plugins: [{name: priority}, {name: gang}]
  - plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
objects:
- {apiVersion: scheduling.sigs.dev/v1alpha2, kind: Queue, metadata: {name: default}, spec: {weight: 1}}
",
    );
    for n in 0..30 {
        text += &format!(
            "- {{apiVersion: v1, kind: Node, metadata: {{name: n{n}}}, \
             status: {{allocatable: {{cpu: '4', pods: '99'}}}}}}\n"
        );
    }
    for (gang, (name, n_pods, cpu)) in gangs.iter().enumerate() {
        text += &format!(
            "- apiVersion: scheduling.sigs.dev/v1alpha2
  kind: PodGroup
  metadata: {{name: {name}, namespace: ns, creationTimestamp: '2025-01-01T00:00:{gang:02}Z'}}
  spec: {{minMember: {n_pods}}}
"
        );
        for n in 0..*n_pods {
            text += &format!(
                "- apiVersion: v1
  kind: Pod
  metadata: {{name: {name}-{n}, namespace: ns, annotations: {{scheduling.k8s.io/group-name: {name}}}}}
  spec:
    schedulerName: kube-batch
    tolerations: [{{key: key-{n}, operator: Exists}}]
    containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]
"
            );
        }
    }
    read(&(text + "steps:\n- cycles: 1\n"))
}

/// The cycle, from 1, in which the first pod of each gang is bound.
fn cycles_of(case: &Case, gangs: &[&str], budget: u64) -> Vec<Option<usize>> {
    let mut simulation = simulation(case, Memory::with_budget(budget), |_| true);
    let mut found = vec![None; gangs.len()];
    for n in 1..=60 {
        let (cycle, _) = cycle(&mut simulation);
        let bound = bound(&cycle);
        for (gang, found) in gangs.iter().zip(&mut found) {
            if bound.contains(&format!("{gang}-0")) {
                assert_eq!(*found, None);
                *found = Some(n);
            }
        }
    }
    found
}

#[test]
fn large_turns_are_put_off_until_their_queue_has_the_credit() {
    // Each of 40 templates is compared with 30 nodes, for two capacities.
    let gangs = [("large", 40, "100m"), ("small", 2, "100m")];
    let case = with_gangs_of_templates(&gangs);
    let names = ["large", "small"];
    assert_eq!(cycles_of(&case, &names, 40 * 30 * 2), [Some(1), Some(1)]);
    assert_eq!(cycles_of(&case, &names, 1_200), [Some(3), Some(1)]);
    assert_eq!(cycles_of(&case, &names, 600), [Some(5), Some(1)]);
}

#[test]
fn a_large_turn_gets_its_credit_although_others_use_the_part_of_the_queue() {
    // Each of the others takes more than a part, and is not large.
    let vain = [("vain-a", 31, "3"), ("vain-b", 31, "3"), ("vain-c", 31, "3")];
    let case = with_gangs_of_templates(&[&vain[..], &[("large", 40, "100m")]].concat());
    let found = cycles_of(&case, &["vain-a", "large"], 2_000);
    assert_eq!(found[0], None);
    assert!(found[1].is_some_and(|cycle| cycle <= 5), "{found:?}");
}

#[test]
fn large_turns_in_vain_do_not_delay_other_jobs() {
    // 40 pods of three CPUs need more nodes than there are.
    let gangs = [("vain", 40, "3"), ("fits", 40, "100m"), ("small", 2, "100m")];
    let case = with_gangs_of_templates(&gangs);
    let found = cycles_of(&case, &["vain", "fits", "small"], 600);
    assert_eq!(found[0], None);
    assert!(found[1].is_some_and(|cycle| cycle <= 10), "{found:?}");
    assert_eq!(found[2], Some(1));
}
