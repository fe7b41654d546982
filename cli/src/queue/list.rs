//! Queues as a table, one in a line.

use std::io::{self, Write};

use kube_batch_model::{column::QueueIdx, people};

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
    for (row, _) in queues.in_order() {
        let queue = &queues.all[row];
        let QueueView { facts, status, .. } = queue;
        table.row([
            queue.name().into(),
            parent(queues, row).into(),
            or_none(&status.state).into(),
            facts.priority.to_string().into(),
            facts.weight.to_string().into(),
            or_none(&status.share).into(),
            status.running.to_string().into(),
            status.pending.to_string().into(),
            or_none(&status.usage).into(),
            amounts(queues, |name| queue.on_loan(name)).into(),
            amounts(queues, |name| queue.guaranteed.get(name)).into(),
        ]);
    }
    table.print(out, width)
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// The queue above it, with a mark if that does not lead to the top.
fn parent(queues: &QueueViews, row: QueueIdx) -> String {
    let Some(parent) = &queues.all[row].facts.parent else { return "-".to_owned() };
    let mark = if queues.tree.not_served(row).is_some() { " !" } else { "" };
    format!("{parent}{mark}")
}

/// The amounts of all resources of which there is something.
fn amounts(queues: &QueueViews, of: impl Fn(&str) -> i64) -> String {
    let resources = queues.resources();
    let shown = resources.iter().filter(|name| of(name) > 0);
    let shown: Vec<String> =
        shown.map(|name| format!("{name} {}", people::amount(name, of(name)))).collect();
    if shown.is_empty() { "-".to_owned() } else { shown.join(", ") }
}
