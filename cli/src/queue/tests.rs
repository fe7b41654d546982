//! The queues of a university, as every command shows them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Found, describe, list, tree};
use crate::live::Lists;

const NOW: &str = "2026-03-01T00:00:00Z";

fn queue(name: &str, spec: Value, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-29T00:00:00Z"},
        "spec": spec,
        "status": status,
    })
}

fn active() -> Value {
    let condition = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": "2026-01-29T00:00:00Z"});
    json!([condition("Active")])
}

/// A faculty of two departments, another faculty that is closed, and one whose parent does not exist.
fn university() -> Found {
    let gpu = "nvidia.com/gpu";
    let science = queue(
        "science",
        json!({"weight": 2, "capability": {gpu: "48"}, "minRuntime": "10m"}),
        json!({
            "state": "Open", "children": 2, "running": 12, "pending": 5, "share": "0.92",
            "allocated": {"cpu": "88", gpu: "29"}, "requested": {"cpu": "128", gpu: "44"},
            "deserved": {"cpu": "96", gpu: "32"}, "guaranteed": {gpu: "2"},
            "fairShare": {"cpu": "96", gpu: "32"}, "use": "cpu 88/96, nvidia.com/gpu 29/32",
            "conditions": active(),
        }),
    );
    let physics = queue(
        "physics",
        json!({
            "weight": 1, "parent": "science", "guarantee": {gpu: "2"}, "order": "StrictFifo",
            "namespaceSelector": {"matchLabels": {"team": "physics"}},
        }),
        json!({
            "state": "Open", "running": 4, "pending": 3, "share": "1.25",
            "allocated": {"cpu": "40", gpu: "10"}, "requested": {"cpu": "64", gpu: "16"},
            "deserved": {"cpu": "32", gpu: "12"}, "guaranteed": {gpu: "2"},
            "fairShare": {"cpu": "32", gpu: "12"}, "use": "cpu 40/32, nvidia.com/gpu 10/12",
            "conditions": active(),
        }),
    );
    let biology = queue(
        "biology",
        json!({"weight": 2, "parent": "science"}),
        json!({
            "state": "Open", "running": 8, "pending": 2, "share": "0.95",
            "allocated": {"cpu": "48", gpu: "19"}, "requested": {"cpu": "80", gpu: "28"},
            "deserved": {"cpu": "64", gpu: "20"}, "fairShare": {"cpu": "64", gpu: "20"},
            "use": "cpu 48/64, nvidia.com/gpu 19/20", "conditions": active(),
        }),
    );
    let arts = queue(
        "arts",
        json!({"weight": 1, "state": "Closed"}),
        json!({
            "state": "Closing", "running": 1, "pending": 1, "share": "1.00",
            "allocated": {"cpu": "4"}, "requested": {"cpu": "4"}, "deserved": {"cpu": "4"},
            "use": "cpu 4/4",
            "conditions": [{"type": "Active", "status": "False", "reason": "Closed", "message": "closed"}],
        }),
    );
    let lost = queue(
        "lost",
        json!({"weight": 1, "parent": "emea"}),
        json!({
            "state": "Open", "pending": 2,
            "conditions": [{
                "type": "Active", "status": "False", "reason": "ParentNotFound",
                "message": "parent \"emea\" does not exist",
            }],
        }),
    );
    let page = json!({"items": [science, physics, biology, arts, lost]}).to_string();
    let lists = vec![("queues.scheduling.sigs.dev".to_owned(), page)];
    Found::new(&Lists { lists, problems: Vec::new() }).expect("the lists are JSON")
}

fn shown(print: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> Vec<String> {
    let mut out = Vec::new();
    print(&mut out).expect("memory takes everything");
    let text = anstream::adapter::strip_bytes(&out).into_vec();
    String::from_utf8(text).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn the_tree_has_a_line_for_each_queue() {
    let queues = university().queues();
    let table = |width| shown(|out| tree::table(&queues, &[], width).print(out, width));
    assert_eq!(
        table(None),
        [
            "QUEUE          STATE    WEIGHT   JOBS  CPU held/deserved  GPU held/deserved  WAITS FOR",
            "all                             13 +6  92/100             29/32              40 cpu, 15 GPUs",
            "├─ arts        Closing       1   1 +1  4/4",
            "└─ science     Open          2  12 +5  88/96              29/32              40 cpu, 15 GPUs",
            "   ├─ biology  Open          2   8 +2  48/64              19/20              32 cpu, 9 GPUs",
            "   └─ physics  Open          1   4 +3  40/32              10/12              24 cpu, 6 GPUs",
            "lost           parent \"emea\" does not exist: 2 jobs wait",
        ]
    );
    let with_bars = table(Some(200));
    assert!(with_bars[4].contains("███████████████░░░░░     48/64"), "{with_bars:#?}");
    assert!(with_bars[5].contains("███████████████████▶     40/32"), "{with_bars:#?}");
}

#[test]
fn the_list_has_what_is_on_loan() {
    let queues = university().queues();
    let lines = shown(|out| list::print(out, &queues, None));
    assert_eq!(
        lines[0],
        "QUEUE    PARENT   STATE    PRIORITY  WEIGHT  SHARE  RUNNING  WAITING  HELD / DESERVED                  ON LOAN  GUARANTEED"
    );
    let physics = lines.iter().find(|line| line.starts_with("physics")).expect("physics");
    assert_eq!(
        *physics,
        "physics  science  Open     0         1       1.25   4        3        cpu 40/32, nvidia.com/gpu 10/12  cpu 8    nvidia.com/gpu 2"
    );
    let lost = lines.last().expect("lost");
    assert!(lost.starts_with("lost     emea !   -        0         1       -  "), "{lost}");
}

#[test]
fn a_queue_is_described_with_the_rounds_of_the_division() {
    let queues = university().queues();
    let now: Timestamp = NOW.parse().expect("a time");
    let lines = |name: &str| {
        let row = queues.row(name).expect("the queue");
        shown(|out| describe::print(out, &queues, row, now))
    };
    assert_eq!(
        lines("physics"),
        [
            "Queue physics, in science",
            "  state         Open, for 31d",
            "  jobs          4 running, 3 waiting",
            "  weight        1",
            "  order         StrictFifo",
            "  namespaces    team=physics",
            "  pods run      at least 10m before others may have them evicted (from science)",
            "",
            "                  held  waiting  deserved  guaranteed  limit         if all want all",
            "  cpu             40    24       32        -           -             32",
            "  nvidia.com/gpu  10    6        12        2           48 (science)  12",
            "",
            "  cpu: science deserves 96. Nothing of it is guaranteed or promised by number. By weight, 1 to 2, physics gets",
            "  32 and biology 64; both ask for more. physics holds 8 on loan, which biology may take back.",
            "",
            "  nvidia.com/gpu: science deserves 32. Guaranteed: 2 to physics. By weight, 1 to 2, physics gets 10 and biology",
            "  20; both ask for more.",
            "",
            "  Active since 31d ago. Not oversubscribed.",
        ]
    );
    let lost = lines("lost");
    assert_eq!(lost[1], "  state         parent \"emea\" does not exist: 2 jobs wait");
    assert_eq!(
        lost.last().expect("lines"),
        "  Not active: parent \"emea\" does not exist. Not oversubscribed."
    );
}

#[test]
fn of_several_queues_with_one_name_the_last_api_counts() {
    let item =
        |weight: i32| json!({"metadata": {"name": "q", "uid": "q"}, "spec": {"weight": weight}});
    let page = |weight| json!({"items": [item(weight)]}).to_string();
    let lists = [
        ("queues.scheduling.sigs.dev", 1),
        ("queues.scheduling.volcano.sh", 2),
        ("queues.scheduling.incubator.k8s.io", 3),
    ];
    let lists = lists.map(|(name, weight)| (name.to_owned(), page(weight))).to_vec();
    let found = Found::new(&Lists { lists, problems: Vec::new() }).expect("the lists are JSON");
    let queues = found.queues();
    let weights: Vec<u32> = queues.all.values().map(|queue| queue.facts.weight).collect();
    assert_eq!(weights, [1]);
}
