//! Queues as a table, one in a line.

use std::io::{self, Write};

use kube_batch_model::{column::QueueIdx, name::Name, people};

use super::view::{QueueView, QueueViews};
use crate::table::{Align, TextTable};

/// Prints the table.
pub(crate) fn print(
    out: &mut dyn Write,
    queues: &QueueViews,
    width: Option<usize>,
) -> io::Result<()> {
    let mut table = TextTable::new([
        ("QUEUE", Align::Left),
        ("PARENT", Align::Left),
        ("STATE", Align::Left),
        ("PRIORITY", Align::Left),
        ("WEIGHT", Align::Left),
        ("SHARE", Align::Left),
        ("RUNNING", Align::Left),
        ("WAITING", Align::Left),
        ("HELD / DESERVED", Align::Left),
        ("ON LOAN", Align::Left),
        ("GUARANTEED", Align::Left),
    ]);
    let resources = queues.resources();
    for (row, _) in queues.in_order() {
        let queue = &queues.all[row];
        let QueueView { facts, status, .. } = queue;
        table.row([
            queue.name().into(),
            parent(queues, row).into(),
            state(queues, row).into(),
            facts.priority.to_string().into(),
            facts.weight.to_string().into(),
            share(queues, row).into(),
            status.running.to_string().into(),
            status.pending.to_string().into(),
            or_none(&status.usage).into(),
            amounts(&resources, |name| queue.on_loan(name)).into(),
            amounts(&resources, |name| queue.guaranteed.get(name)).into(),
        ]);
    }
    table.print(out, width)
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Its state; none if its parents keep it from serving anything.
fn state(queues: &QueueViews, row: QueueIdx) -> &str {
    let is_served = queues.tree.not_served(row).is_none();
    or_none(if is_served { &queues.all[row].status.state } else { "" })
}

fn share(queues: &QueueViews, row: QueueIdx) -> &str {
    let is_served = queues.tree.not_served(row).is_none();
    or_none(if is_served { &queues.all[row].status.share } else { "" })
}

/// The queue above it, with a mark if that does not lead to the top.
fn parent(queues: &QueueViews, row: QueueIdx) -> String {
    let Some(parent) = &queues.all[row].facts.parent else { return "-".to_owned() };
    let mark = if queues.tree.not_served(row).is_some() { " !" } else { "" };
    format!("{parent}{mark}")
}

/// The amounts of all resources of which there is something.
fn amounts(resources: &[Name], of: impl Fn(&str) -> i64) -> String {
    let shown = resources.iter().filter(|name| of(name) > 0);
    let shown: Vec<String> =
        shown.map(|name| format!("{name} {}", people::amount(name, of(name)))).collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join(", ") }
}
