//! The names of the shapes.

/// Shapes that differ in their numbers only.
#[derive(Debug)]
pub struct Kind {
    /// The first part of the name of each.
    pub name: &'static str,
    /// The numbers in the name.
    pub numbers: &'static str,
    /// What the cluster has.
    pub about: &'static str,
}

const fn kind(name: &'static str, numbers: &'static str, about: &'static str) -> Kind {
    Kind { name, numbers, about }
}

/// All kinds.
pub const KINDS: [Kind; 31] = [
    kind("FILL", "NODES-PODS-GANG", "empty nodes, and gangs that fit"),
    kind("FILLMIX", "NODES-PODS-GANG", "as FILL, but every gang requests something else"),
    kind(
        "UNLIKE",
        "NODES-GANGS",
        "empty nodes of four sizes, and gangs of 16 pods of three sizes that fit; the small pods come first",
    ),
    kind("ALIKE", "NODES-GANGS", "as UNLIKE, but all pods request the same, and as much together"),
    kind(
        "FILLTAINT",
        "NODES-PODS-GANG",
        "as FILL; 1 % of nodes are tainted, 10 % of gangs tolerate it",
    ),
    kind(
        "FLAT",
        "NODES-PODS-QUEUES",
        "empty nodes, and single pods of seven of ten queues; all four actions",
    ),
    kind("TREE", "NODES-PODS-QUEUES", "as FLAT, but the queues form a tree of five levels"),
    kind("SAT", "NODES-PODS-GANG", "full nodes, and gangs that do not fit"),
    kind("SP-GANG", "NODES-PODS-GANG", "empty nodes, and gangs of Kubernetes' own API that fit"),
    kind("SP-TAS", "NODES-PODS-GANG", "as SP-GANG; each gang requires one rack of 50 nodes"),
    kind("KAI-GANG", "NODES", "empty nodes, and one gang of a pod a node that takes its 8 GPUs"),
    kind(
        "KAI-TOPO",
        "NODES",
        "as KAI-GANG, in zones of 8 blocks of 8 racks of 2 nodes; the gang prefers a rack",
    ),
    kind(
        "DRA",
        "NODES-PODS-GANG",
        "8 devices a node, and gangs whose pods have a claim for one each (Dynamic Resource Allocation)",
    ),
    kind(
        "DRA-MATCH",
        "NODES-PODS-GANG",
        "as DRA; a claim is for 4 devices of one NVLink domain, selected by three attributes",
    ),
    kind(
        "DRA-MIG",
        "NODES-PODS-GANG",
        "as DRA; a claim is for a whole device, a half or a quarter",
    ),
    kind("STEADY", "NODES", "half full nodes, and one gang of 100"),
    kind(
        "ARRIVE",
        "NODES-PODS-GANGS",
        "small single pods run, gangs of 8 wait for whole nodes, and before each next cycle a single pod arrives",
    ),
    kind("IDLE", "NODES", "full nodes, and no pod waits; all four actions"),
    kind("SCALE", "NODES", "10 pods on each node, and 10 000 wait in gangs of 100"),
    kind("PREEMPT", "NODES-GANG", "full nodes, and one gang of higher priority"),
    kind("BUDGETPREEMPT", "NODES-GANG", "as PREEMPT; disruption budgets protect every second job"),
    kind("GANGPREEMPT", "NODES", "nodes full of gangs, and one of 512 of higher priority"),
    kind(
        "DRA-PREEMPT",
        "NODES",
        "gangs of 64 that use the 8 devices of each of their nodes, and one of higher priority",
    ),
    kind("RECLAIM", "NODES-GANG", "nodes full of one queue, and 100 pods of another"),
    kind("KAIRECLAIM", "NODES", "8 jobs of one GPU a node, and a gang for a tenth of all nodes"),
    kind(
        "AFF-ZONE",
        "NODES",
        "a pod a node with required affinity to their zone, and as many wait",
    ),
    kind(
        "AFF-HOST",
        "NODES",
        "pods with required anti-affinity on a fifth of nodes, and twice as many wait",
    ),
    kind("SPREAD", "NODES", "a pod a node, strictly spread over zones, and as many wait"),
    kind("PREF-AFF-ZONE", "NODES", "as AFF-ZONE, but preferred"),
    kind("PREF-AFF-HOST", "NODES", "as AFF-HOST, but preferred"),
    kind("PREF-SPREAD", "NODES", "as SPREAD, but preferred"),
];

/// All kinds in words, for help texts.
pub fn description() -> String {
    let line = |kind: &Kind| format!("  {}-{}: {}\n", kind.name, kind.numbers, kind.about);
    let lines: String = KINDS.iter().map(line).collect();
    format!("Shapes:\n{lines}")
}

/// The kind of a shape, and its numbers.
pub fn parse(name: &str) -> Option<(&'static Kind, Vec<usize>)> {
    let first_number = name.find(|c: char| c.is_ascii_digit())?;
    let (name, rest) = name.split_at(first_number);
    let kind = KINDS.iter().find(|kind| name.strip_suffix('-') == Some(kind.name))?;
    let number = |part: &str| part.parse().ok().filter(|number| *number > 0);
    let numbers: Vec<usize> = rest.split('-').map(number).collect::<Option<_>>()?;
    (numbers.len() == kind.numbers.split('-').count()).then_some((kind, numbers))
}

/// The shapes that the benchmark runs if none is named.
pub const STANDARD: [&str; 38] = [
    "FILL-1000-10000-100",
    "FILL-1000-10000-1",
    "FILL-5000-50000-100",
    "FILL-10000-100000-100",
    "FILL-10000-100000-1",
    "FILLMIX-1000-10000-1",
    "FILLMIX-10000-100000-100",
    "FILLTAINT-5000-50000-100",
    "SP-GANG-5000-9000-3",
    "SP-GANG-5000-9000-4",
    "SP-GANG-5000-9000-1000",
    "SP-GANG-5000-50000-5000",
    "SP-TAS-5000-9000-4",
    "SP-TAS-5000-9000-1000",
    "KAI-GANG-512",
    "KAI-TOPO-512",
    "DRA-5000-10000-8",
    "DRA-MATCH-5000-10000-8",
    "DRA-MIG-5000-10000-8",
    "SAT-5000-10000-100",
    "SAT-5000-10000-1",
    "STEADY-5000",
    "SCALE-100000",
    "IDLE-5000",
    "PREEMPT-5000-100",
    "PREEMPT-5000-1000",
    "BUDGETPREEMPT-5000-100",
    "GANGPREEMPT-5000",
    "DRA-PREEMPT-5000",
    "RECLAIM-5000-1",
    "KAIRECLAIM-1000",
    "KAIRECLAIM-10000",
    "AFF-ZONE-5000",
    "AFF-HOST-5000",
    "SPREAD-5000",
    "PREF-AFF-ZONE-5000",
    "PREF-AFF-HOST-5000",
    "PREF-SPREAD-5000",
];

/// Shapes that show how the time of a cycle grows: by nodes, for 10 000 pods, and by pods, on 1 000 nodes.
pub const GROWING: [&str; 11] = [
    "FILL-500-10000-100",
    "FILL-2000-10000-100",
    "FILL-5000-10000-100",
    "FILL-10000-10000-100",
    "FILL-30000-10000-100",
    "FILL-100000-10000-100",
    "FILL-1000-100-100",
    "FILL-1000-300-100",
    "FILL-1000-1000-100",
    "FILL-1000-3000-100",
    "FILL-1000-30000-100",
];

/// The shapes of docs/performance.md.
pub fn documented() -> impl Iterator<Item = &'static str> {
    STANDARD.into_iter().chain(GROWING)
}
