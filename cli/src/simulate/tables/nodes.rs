//! Nodes: one by one if there are few, otherwise those that are alike together.

use std::collections::BTreeMap;

use kube_batch_model::resource::{CPU, MEMORY, PODS, ResourceList};
use kube_batch_sim::outcome::{NodeOutcome, Outcome};

use super::{
    amounts,
    section::{MAX_ROWS, Section, more_rows},
};
use crate::{
    table::{Align, Cell, TextTable, bar},
    terminal::{BAD, GOOD, WAITING},
};

/// More nodes than this are not listed one by one.
const MAX_NODES: usize = 8;

/// Width of a bar.
const BAR: usize = 10;

/// Pods have a column only if a node is as full of them as this.
const MANY_PODS: f64 = 0.5;

/// The nodes, or how many there are of each kind and how full they are.
pub(super) fn table(outcome: &Outcome, is_verbose: bool) -> Section {
    let resources = resources(outcome);
    if is_verbose || outcome.nodes.len() <= MAX_NODES {
        return one_by_one(outcome, &resources);
    }
    let mut kinds: Vec<(Kind<'_>, Vec<&NodeOutcome>)> = Vec::new();
    for node in &outcome.nodes {
        let kind = Kind::of(node);
        match kinds.iter_mut().find(|(own, _)| *own == kind) {
            Some((_, nodes)) => nodes.push(node),
            None => kinds.push((kind, vec![node])),
        }
    }
    let mut table = TextTable::new(columns(&resources, "NODES", &["FULL", "PARTLY", "IDLE"]));
    for (_, nodes) in kinds.iter().take(MAX_ROWS) {
        table.row(row_of_kind(nodes, &resources));
    }
    table.leave_out_equal(&["TAINTS"]);
    let note = format!("-v lists the {} nodes", outcome.nodes.len());
    (
        table,
        Some(
            more_rows(kinds.len(), "kinds of nodes")
                .map_or(note.clone(), |more| format!("{more}; {note}")),
        ),
    )
}

fn one_by_one(outcome: &Outcome, resources: &[String]) -> Section {
    let mut table = TextTable::new(columns(resources, "NODE", &[]));
    for node in &outcome.nodes {
        let mut row: Vec<Cell> =
            vec![node.node.as_str().into(), status(node), used(node.utilization)];
        let [own, all] = [&node.used, &node.allocatable].map(amounts::read);
        row.extend(resources.iter().map(|name| Cell::from(part(name, &own, &all))));
        row.push(node.taints.join(", ").into());
        table.row(row);
    }
    if outcome.nodes.iter().all(|node| node.taints.is_empty()) {
        table.leave_out_equal(&["TAINTS"]);
    }
    (table, None)
}

/// Those that have columns.
fn resources(outcome: &Outcome) -> Vec<String> {
    let others = amounts::other_resources(outcome);
    let names = [CPU, MEMORY].map(str::to_owned).into_iter().chain(others);
    let part_of_pods = |node: &NodeOutcome| {
        let [used, all] = [&node.used, &node.allocatable].map(amounts::read);
        used.get(PODS) as f64 / all.get(PODS).max(1) as f64
    };
    let has_many = outcome.nodes.iter().any(|node| part_of_pods(node) >= MANY_PODS);
    names.chain(has_many.then(|| PODS.to_owned())).collect()
}

fn columns(resources: &[String], first: &str, counts: &[&str]) -> Vec<(String, Align)> {
    let mut columns = vec![(first.to_owned(), Align::Left), ("STATUS".to_owned(), Align::Left)];
    columns.extend(counts.iter().map(|name| ((*name).to_owned(), Align::Right)));
    columns.push(("USE".to_owned(), Align::Left));
    columns.extend(resources.iter().map(|name| (name.to_uppercase(), Align::Right)));
    columns.push(("TAINTS".to_owned(), Align::Left));
    columns
}

/// What nodes have in common.
#[derive(PartialEq)]
struct Kind<'a> {
    ready: bool,
    unschedulable: bool,
    taints: &'a [String],
    allocatable: &'a BTreeMap<String, String>,
}

impl<'a> Kind<'a> {
    fn of(node: &'a NodeOutcome) -> Self {
        let NodeOutcome { ready, unschedulable, taints, allocatable, .. } = node;
        Self { ready: *ready, unschedulable: *unschedulable, taints, allocatable }
    }
}

/// The nodes of one kind together.
fn row_of_kind(nodes: &[&NodeOutcome], resources: &[String]) -> Vec<Cell> {
    let first = nodes[0];
    let name = match nodes.len() {
        1 => first.node.clone(),
        n => format!("{} and {} more", first.node, n - 1),
    };
    let count = |is: &dyn Fn(f64) -> bool| nodes.iter().filter(|node| is(node.utilization)).count();
    let (n_full, n_idle) = (count(&|part| part > 0.999), count(&|part| part <= 0.0));
    let mean = nodes.iter().map(|node| node.utilization).sum::<f64>() / nodes.len() as f64;
    let mut row: Vec<Cell> = vec![name.into(), status(first)];
    let counts = [n_full, nodes.len() - n_full - n_idle, n_idle];
    row.extend(counts.map(|n| Cell::from(n.to_string())));
    row.push(used(mean));
    let sum = |of: fn(&NodeOutcome) -> &BTreeMap<String, String>| {
        let mut sum = ResourceList::default();
        for list in nodes.iter().map(|node| amounts::read(of(node))) {
            list.iter().for_each(|(name, amount)| sum.set(name, sum.get(name) + amount));
        }
        sum
    };
    let (own, all) = (sum(|node| &node.used), sum(|node| &node.allocatable));
    row.extend(resources.iter().map(|name| Cell::from(part(name, &own, &all))));
    row.push(first.taints.join(", ").into());
    row
}

/// Used and allocatable, or nothing where there is none.
fn part(name: &str, own: &ResourceList, all: &ResourceList) -> String {
    match (own.get(name), all.get(name)) {
        (0, 0) => "-".to_owned(),
        _ => amounts::parts(name, own, all),
    }
}

/// As kubectl shows it.
fn status(node: &NodeOutcome) -> Cell {
    let ready = if node.ready { "Ready" } else { "NotReady" };
    let cordoned = if node.unschedulable { ",SchedulingDisabled" } else { "" };
    let style = match (node.ready, node.unschedulable) {
        (true, false) => GOOD,
        (true, true) => WAITING,
        (false, _) => BAD,
    };
    Cell::styled(style, format!("{ready}{cordoned}"))
}

/// How full a node is of the resource that is used most.
fn used(utilization: f64) -> Cell {
    let text = format!("{} {:>3.0}%", bar(utilization.min(1.0), BAR), utilization * 100.0);
    Cell::styled(if utilization > 1.0 { BAD } else { GOOD }, text)
}
