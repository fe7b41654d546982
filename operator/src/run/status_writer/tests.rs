//! Which statuses are written, and when.

use std::{collections::BTreeMap, time::Duration};

use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube_batch_api::{dialect::RawObject, kind::ApplyObject as _};
use kube_batch_framework::report::{Cycle, JobReport, Phase, QueueReport};
use kube_batch_model::{
    decision::Decision,
    facts::{group::GroupFacts, queue::QueueState},
    group_version::GroupVersion,
    name::{JobKey, Name, ObjectKey},
    problem::JobProblem,
    reason::Reason,
    why::{Invalid, Why, Worded},
};
use kube_batch_scheduler::writes::status_writes;
use tokio::task::JoinSet;

use super::*;
use crate::run::{
    effects::test_effects::TestEffects,
    fake_api::{FakeApi, Fault},
    scheduler_cache::SchedulerCache,
};

const POD: &str = "/api/v1/namespaces/ns/pods/a";
const GROUP: &str = "/apis/scheduling.sigs.dev/v1alpha2/namespaces/ns/podgroups/g";
const QUEUE: &str = "/apis/scheduling.sigs.dev/v1alpha2/queues/q";

/// Why a job or its pods wait, with any words.
fn why(reason: Reason, words: &str) -> Worded<Why> {
    let problem = JobProblem::Other { reason: Name::from(reason), message: Name::from(words) };
    Worded::new(Why::Invalid(Box::new(Invalid { problem, missing: None, similar: None })))
}

/// A status writer, and a server that has a pod, a group and a queue.
struct World {
    api: FakeApi,
    cache: Arc<SchedulerCache>,
    effects: Arc<Effects>,
    writer: StatusWriter,
    start: Instant,
    workers: JoinSet<()>,
}

impl World {
    fn new() -> Self {
        let TestEffects { api, cache, effects, workers, .. } = TestEffects::start();
        let writer = StatusWriter::new(Arc::clone(&effects));
        let world = Self { api, cache, effects, writer, start: Instant::now(), workers };
        world.store_objects();
        world
    }

    fn store_objects(&self) {
        let (api, kind) = ("scheduling.sigs.dev/v1alpha2", "PodGroup");
        let meta = |name: &str| json!({"name": name, "namespace": "ns", "uid": name});
        let group = json!({"apiVersion": api, "kind": kind, "metadata": meta("g"), "spec": {}});
        let queue = json!({
            "apiVersion": api, "kind": "Queue", "metadata": {"name": "q", "uid": "q"}, "spec": {},
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": meta("a"),
            "spec": {"schedulerName": "kube-batch", "containers": [{"name": "c"}]},
        });
        for (path, object) in [(GROUP, &group), (QUEUE, &queue), (POD, &pod)] {
            self.api.put(path, object.clone());
        }
        let mut state = self.cache.lock();
        let group: kube_batch_api::crd::v1alpha2::PodGroup =
            serde_json::from_value(group).expect("a group");
        let queue: kube_batch_api::crd::v1alpha2::Queue =
            serde_json::from_value(queue).expect("a queue");
        let store = &mut state.store;
        store
            .apply_group(GroupVersion::V1Alpha2, &RawObject::new(&group.metadata, &group.spec))
            .expect("facts of a group");
        store
            .apply_queue(GroupVersion::V1Alpha2, &RawObject::new(&queue.metadata, &queue.spec))
            .expect("facts of a queue");
        store.apply::<Pod>(&serde_json::from_value(pod).expect("a pod")).expect("facts of a pod");
    }

    /// What follows from a cycle, compared with what is known now.
    fn writes(&self, cycle: &Cycle) -> Vec<StatusWrite> {
        let state = self.cache.lock();
        status_writes(cycle, &state.store, &state.assumed, "me-1", Timestamp::now())
    }

    async fn enqueue(&mut self, millis: u64, cycle: &Cycle) {
        let writes = self.writes(cycle);
        self.enqueue_writes(millis, writes).await;
    }

    async fn enqueue_writes(&mut self, millis: u64, writes: Vec<StatusWrite>) {
        self.writer.write(writes, self.start + Duration::from_millis(millis)).await;
    }

    /// Writes what follows from a cycle this many milliseconds after the start, waits until it is
    /// answered, and returns how many patches and which events were sent.
    async fn write(&mut self, millis: u64, cycle: &Cycle) -> (usize, Vec<String>) {
        let writes = self.writes(cycle);
        self.send(millis, writes).await
    }

    /// Does so with what follows from an earlier comparison.
    async fn send(&mut self, millis: u64, writes: Vec<StatusWrite>) -> (usize, Vec<String>) {
        let before = self.api.sent().len();
        self.enqueue_writes(millis, writes).await;
        assert!(self.effects.drain(Duration::from_secs(60)).await);
        let sent = self.api.sent().split_off(before);
        let n_patches = sent.iter().filter(|sent| sent.method == Method::PATCH).count();
        let reasons = sent.iter().filter_map(|sent| sent.body["reason"].as_str());
        (n_patches, reasons.map(str::to_owned).collect())
    }

    /// When the next write is due, in milliseconds after the start.
    fn due(&self) -> Option<u128> {
        self.writer.due().map(|due| due.duration_since(self.start).as_millis())
    }

    fn group(&self) -> Arc<GroupFacts> {
        let state = self.cache.lock();
        let group = state.store.groups.get(&(ObjectKey::new("ns", "g"), GroupVersion::V1Alpha2));
        Arc::clone(group.expect("the group"))
    }

    /// A report of the group as it is stored.
    fn job(&self, phase: Phase, running: u32, problem: Option<(Reason, &str)>) -> Cycle {
        let key = ObjectKey::new("ns", "g");
        let report = JobReport {
            evicted: None,
            key: JobKey::annotated(key),
            group: Some(self.group()),
            queue: None,
            phase,
            min_available: 2,
            n_tasks: 2,
            n_fitting: running,
            n_remaining: 0,
            has_started: running >= 2,
            is_admitted: true,
            ready: running,
            running,
            succeeded: 0,
            failed: 0,
            pending: 0,
            lacking: 0,
            unschedulable: problem.map(|(reason, text)| why(reason, text)),
            first_pod: None,
            warnings: Vec::new(),
            tried: true,
            unplaced: vec![],
            unplaced_because: None,
            share: None,
            waited_since: None,
        };
        Cycle { jobs: Arc::new(vec![report.into()]), ..nothing() }
    }

    /// A report that the pod waits, for this reason.
    fn waits(&self, because: &str) -> Cycle {
        let mut cycle = self.job(Phase::Pending, 0, None);
        let report = Arc::make_mut(&mut Arc::make_mut(&mut cycle.jobs)[0]);
        report.group = None;
        report.unplaced = vec![pod()];
        report.unplaced_because = Some(why(Reason::Unschedulable, because));
        cycle
    }

    /// A report that the pod of the group waits, for this reason.
    fn gang_waits(&self, because: &str) -> Cycle {
        let mut cycle = self.waits(because);
        let report = Arc::make_mut(&mut Arc::make_mut(&mut cycle.jobs)[0]);
        report.group = Some(self.group());
        report.unschedulable = Some(why(Reason::Unschedulable, because));
        cycle
    }

    /// Stores the pod with a claim from a template, which may not have been made yet.
    fn stores_pod_with_claim(&self, claim: Option<&str>) {
        let mut pod = self.api.object(POD).expect("the pod");
        pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        let status = claim.map(|claim| json!({"name": "gpu", "resourceClaimName": claim}));
        pod["status"]["resourceClaimStatuses"] = json!(Vec::from_iter(status));
        self.api.put(POD, pod);
        let pod = self.api.object(POD).expect("the pod");
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.cache.lock().store.apply(&pod).expect("facts of a pod");
    }

    /// A report of the queue as it is stored, with this many running groups.
    fn queue(&self, n_running: u32) -> Cycle {
        let state = self.cache.lock();
        let queue = state.store.queues.get(&("q".into(), GroupVersion::V1Alpha2));
        let report = QueueReport {
            state: QueueState::Open,
            n_children: 0,
            inactive: None,
            oversubscribed: None,
            without_effect: Vec::new(),
            guaranteed: BTreeMap::new(),
            fair_share: BTreeMap::new(),
            queue: Arc::clone(queue.expect("the queue")),
            opening: None,
            closing: None,
            deserved: BTreeMap::new(),
            allocated: BTreeMap::new(),
            pending: BTreeMap::new(),
            reserved: BTreeMap::new(),
            reservation: None,
            evicted: BTreeMap::new(),
            groups: BTreeMap::from([(Phase::Running, n_running)]),
        };
        Cycle { queues: vec![report], ..nothing() }
    }
}

fn nothing() -> Cycle {
    Cycle {
        decisions: vec![],
        decided_jobs: vec![],
        jobs: Arc::default(),
        unsettled: None,
        queues: vec![],
        total: BTreeMap::new(),
        work: 0,
        next_due: None,
    }
}

fn pod() -> PodRef {
    PodRef { uid: "a".into(), key: ObjectKey::new("ns", "a") }
}

const QUIET: (usize, Vec<String>) = (0, vec![]);
const ONE: (usize, Vec<String>) = (1, vec![]);

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_phase_is_written_at_once_and_a_count_after_a_second() {
    let mut world = World::new();
    assert_eq!(world.write(0, &world.job(Phase::Pending, 0, None)).await, ONE);
    assert_eq!(world.write(10, &world.job(Phase::Pending, 0, None)).await, QUIET, "as it is");
    assert_eq!(world.due(), None);
    assert_eq!(world.write(20, &world.job(Phase::Running, 1, None)).await, ONE, "a phase");
    assert_eq!(world.write(30, &world.job(Phase::Running, 2, None)).await, QUIET, "a count");
    assert_eq!(world.due(), Some(1020));
    assert_eq!(world.write(1020, &world.job(Phase::Running, 2, None)).await, ONE);
    assert_eq!(world.group().status.running, 2);
    assert_eq!(world.due(), None);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn why_a_group_waits_is_an_event_once_and_new_numbers_wait_ten_seconds() {
    let mut world = World::new();
    let problem = |text| Some((Reason::NotEnoughResources, text));
    let event = vec!["Unschedulable".to_owned()];
    let cycle = world.job(Phase::Pending, 0, problem("3 nodes are full"));
    assert_eq!(world.write(0, &cycle).await, (1, event.clone()));
    let cycle = world.job(Phase::Pending, 0, problem("3 nodes are full"));
    assert_eq!(world.write(5_000, &cycle).await, QUIET, "the same message");
    let cycle = world.job(Phase::Pending, 0, problem("4 nodes are full"));
    assert_eq!(world.write(6_000, &cycle).await, QUIET);
    assert_eq!(world.due(), Some(10_000));
    assert_eq!(world.write(10_000, &cycle).await, ONE, "new numbers are no event");
    let cycle = world.job(Phase::Pending, 0, problem("4 nodes are tainted"));
    assert_eq!(world.write(20_000, &cycle).await, (1, event), "another text is");
    let cycle = world.job(Phase::Running, 2, None);
    assert_eq!(world.write(20_001, &cycle).await, ONE, "that it runs is written at once");
    assert_eq!(world.group().status.conditions[0].status, "False");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn that_a_gang_lacks_pods_is_written_when_it_still_does_after_a_second() {
    let mut world = World::new();
    let lacks = world.job(Phase::Pending, 0, Some((Reason::NotEnoughTasks, "1 of 2")));
    assert_eq!(world.write(0, &lacks).await, QUIET);
    assert_eq!(world.due(), Some(1000));
    let complete = world.job(Phase::Running, 2, None);
    assert_eq!(world.write(400, &complete).await, ONE, "its pods have come");

    let mut world = World::new();
    let lacks = world.job(Phase::Pending, 0, Some((Reason::NotEnoughTasks, "1 of 2")));
    world.write(0, &lacks).await;
    assert_eq!(world.write(1000, &lacks).await, (1, vec!["Unschedulable".to_owned()]));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn that_a_pod_lacks_its_claim_is_written_when_it_still_does_after_a_second() {
    for (millis, claim, because) in
        [(400, Some("a-gpu"), "3 nodes are full"), (1000, None, "not created yet")]
    {
        let mut world = World::new();
        world.stores_pod_with_claim(None);
        let cycle = world.gang_waits("not created yet");
        assert_eq!(world.write(0, &cycle).await, QUIET);
        assert_eq!(world.due(), Some(1000));
        world.stores_pod_with_claim(claim);
        let cycle = world.gang_waits(because);
        let (n_patches, mut events) = world.write(millis, &cycle).await;
        events.sort();
        assert_eq!((n_patches, &*events.concat()), (2, "FailedSchedulingUnschedulable"));
        let condition = world.api.object(POD).expect("the pod")["status"]["conditions"][0].clone();
        assert_eq!(condition["message"], because);
        assert!(condition["lastTransitionTime"].is_string(), "it is new");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn why_a_pod_waits_is_written_with_its_event() {
    let mut world = World::new();
    let event = vec!["FailedScheduling".to_owned()];
    assert_eq!(world.write(0, &world.waits("3 nodes are full")).await, (1, event));
    let condition = world.api.object(POD).expect("the pod")["status"]["conditions"][0].clone();
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("False"), &json!("Unschedulable"))
    );
    assert!(condition["lastTransitionTime"].is_string(), "it is new");
    assert_eq!(world.write(10, &world.waits("3 nodes are full")).await, QUIET);
    assert_eq!(world.write(20, &world.waits("4 nodes are full")).await, QUIET);
    assert_eq!(world.due(), Some(60_000));
    assert_eq!(world.write(60_000, &world.waits("4 nodes are full")).await, ONE, "no news");
    let patch = &world.api.sent_to(&Method::PATCH, POD)[1].body;
    assert_eq!(patch["status"]["conditions"][0]["lastTransitionTime"], json!(null));
    assert_eq!(patch["metadata"]["uid"], "a");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_reason_that_changes_with_the_load_is_written_once_a_minute() {
    let mut world = World::new();
    let event = vec!["FailedScheduling".to_owned()];
    let waits = |world: &World, reason| {
        let mut cycle = world.waits("it waits");
        Arc::make_mut(&mut Arc::make_mut(&mut cycle.jobs)[0]).unplaced_because =
            Some(why(reason, "it waits"));
        cycle
    };
    let cycle = waits(&world, Reason::QueueShare);
    assert_eq!(world.write(0, &cycle).await, (1, event.clone()));
    let cycle = waits(&world, Reason::Unschedulable);
    assert_eq!(world.write(10, &cycle).await, QUIET);
    assert_eq!(world.due(), Some(60_000));
    assert_eq!(world.write(60_000, &cycle).await, ONE, "without an event");
    let reason =
        |world: &World| world.api.object(POD).expect("the pod")["status"]["conditions"][0].clone();
    assert_eq!(reason(&world)["reason"], "Unschedulable");
    let cycle = waits(&world, Reason::QueueNotFound);
    assert_eq!(world.write(60_010, &cycle).await, (1, event), "a mistake is written at once");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn that_a_gang_by_annotation_lacks_pods_is_written_when_it_still_does_after_a_second() {
    let lacks = |world: &World| {
        let mut cycle = world.waits("1 of 2");
        let report = Arc::make_mut(&mut Arc::make_mut(&mut cycle.jobs)[0]);
        report.unplaced_because = Some(why(Reason::NotEnoughTasks, "1 of 2"));
        report.unschedulable = report.unplaced_because.clone();
        cycle
    };
    let mut world = World::new();
    let cycle = lacks(&world);
    assert_eq!(world.write(0, &cycle).await, QUIET);
    assert_eq!(world.due(), Some(1000));
    assert_eq!(world.write(1000, &cycle).await, (1, vec!["FailedScheduling".to_owned()]));
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_nomination_is_never_delayed() {
    let mut world = World::new();
    world.write(0, &world.waits("3 nodes are full")).await;
    let mut cycle = world.waits("4 nodes are full");
    cycle.decisions = vec![Decision::Nominate { pod: pod(), node: "n".into(), devices: [].into() }];
    assert_eq!(world.write(10, &cycle).await, ONE);
    let patch = &world.api.sent_to(&Method::PATCH, POD)[1].body;
    assert_eq!(patch["status"], json!({"nominatedNodeName": "n"}), "the text still waits");
    assert_eq!(world.write(20, &cycle).await, QUIET, "it has this nomination");
    cycle.decisions = vec![Decision::Withdraw { pod: pod() }];
    assert_eq!(world.write(30, &cycle).await, ONE);
    let status = &world.api.object(POD).expect("the pod")["status"];
    assert_eq!(status["nominatedNodeName"], json!(null));
    assert_eq!(world.write(40, &cycle).await, QUIET);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn nothing_is_written_of_a_pod_that_is_bound() {
    let mut world = World::new();
    let bind = Decision::Bind {
        minimum: 1,
        protected_until: None,
        queue: "q".into(),
        pod: pod(),
        node: "n".into(),
        claims: vec![],
        devices: Vec::new(),
    };
    world.cache.lock().assumed.note(&bind, Timestamp::now());
    assert_eq!(world.write(0, &world.waits("3 nodes are full")).await, QUIET);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_reason_that_was_written_since_the_snapshot_is_not_written_again() {
    let mut world = World::new();
    let event = vec!["FailedScheduling".to_owned()];
    let cycle = world.waits("3 nodes are full");
    // The next cycle takes its snapshot before the answer to the write of the first one.
    let outdated = world.writes(&cycle);
    assert_eq!(world.write(0, &cycle).await, (1, event));
    assert_eq!(world.send(10, outdated).await, QUIET);
    let other = world.waits("4 nodes are full");
    assert_eq!(world.write(61_000, &other).await, ONE, "another text is no event");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_status_that_was_written_since_the_snapshot_is_not_written_again() {
    for cycle in [
        |world: &World| world.job(Phase::Pending, 0, Some((Reason::NotEnoughResources, "full"))),
        |world: &World| world.queue(1),
    ] {
        let mut world = World::new();
        // The next cycle takes its snapshot before the answer to the write of the first one.
        let first = cycle(&world);
        let outdated = world.writes(&first);
        assert_eq!(world.write(0, &first).await.0, 1);
        assert!(!world.cache.lock().wants_statuses);
        assert_eq!(world.send(2_000, outdated).await, QUIET, "it would be a conflict");
        assert!(world.cache.lock().wants_statuses, "a cycle compares again");
        assert_eq!(world.write(2_010, &cycle(&world)).await, QUIET, "it is as it should be");
    }
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn statuses_are_not_enqueued_after_the_end_of_the_term() {
    let mut world = World::new();
    let of_queue = || world.writes(&world.queue(1));
    let mut writes: Vec<StatusWrite> = (0..N_AT_ONCE).flat_map(|_| of_queue()).collect();
    writes.extend(world.writes(&world.job(Phase::Running, 2, None)));
    // Nothing is sent.
    world.workers.shutdown().await;
    let context = &world.effects.context;
    let (terms, metrics) = (context.terms.clone(), Arc::clone(&context.metrics));
    // It runs when the writer leaves the thread to others.
    tokio::task::spawn_local(async move { terms.set(None) });
    world.enqueue_writes(0, writes).await;
    assert_eq!(metrics.effects_queued.get(), 1, "the status of the queue");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_status_waits_for_the_answer_to_an_earlier_one() {
    let mut world = World::new();
    world.api.fail(Method::PATCH, GROUP, [Fault::Hang]);
    let cycle = world.job(Phase::Pending, 0, None);
    world.enqueue(0, &cycle).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let version = world.cache.lock().version;
    assert_eq!(world.write(1000, &world.job(Phase::Running, 2, None)).await, ONE, "the retry");
    assert_eq!(world.group().status.phase, "Pending");
    assert!(world.cache.lock().version > version, "a cycle is woken to write the rest");
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn the_first_status_of_a_queue_is_written_at_once_and_counts_after_a_second() {
    let mut world = World::new();
    assert_eq!(world.write(0, &world.queue(1)).await, ONE);
    assert_eq!(world.write(100, &world.queue(2)).await, QUIET);
    assert_eq!(world.due(), Some(1000));
    assert_eq!(world.write(1000, &world.queue(2)).await, ONE);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn a_new_term_starts_without_earlier_writes() {
    let mut world = World::new();
    world.write(0, &world.queue(1)).await;
    world.write(100, &world.queue(2)).await;
    world.writer.reset();
    assert_eq!(world.due(), None);
    assert_eq!(world.write(200, &world.queue(2)).await, ONE);
}

#[tokio::test(flavor = "local", start_paused = true)]
async fn counts_of_zero_are_written() {
    let mut world = World::new();
    assert_eq!(world.write(0, &world.job(Phase::Pending, 0, None)).await, ONE);
    let status = &world.api.object(GROUP).expect("the group")["status"];
    let expected =
        json!({"phase": "Pending", "ready": 0, "running": 0, "succeeded": 0, "failed": 0});
    assert_eq!(*status, expected);
}
