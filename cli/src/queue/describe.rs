//! All about one queue, with why it deserves what it does.

use std::io::{self, Write};

use jiff::Timestamp;
use kube_batch_model::{
    column::QueueIdx, facts::queue::QueueOrder, name::Name, people, queue_condition::OVERSUBSCRIBED,
};

use super::{
    explain::explain,
    tree::lost,
    view::{QueueView, QueueViews},
};
use crate::{
    table::{Align, TextTable, age, plural},
    terminal::{HEADING, styled},
};

/// Width of the names of the fields.
const FIELD: usize = 13;

/// Width of sentences.
const WIDTH: usize = 110;

/// Prints all about a queue.
pub(crate) fn print(
    out: &mut dyn Write,
    queues: &QueueViews,
    row: QueueIdx,
    now: Timestamp,
) -> io::Result<()> {
    let queue = &queues.all[row];
    let parent = queue.facts.parent.as_ref();
    let place = parent.map_or_else(|| "at the top".to_owned(), |parent| format!("in {parent}"));
    writeln!(out, "{}, {place}", styled(HEADING, &format!("Queue {}", queue.name())))?;
    for (field, value) in fields(queues, row, now) {
        writeln!(out, "  {field:<FIELD$} {value}")?;
    }
    let resources: Vec<Name> = queues.resources();
    let resources: Vec<&Name> = resources.iter().filter(|name| concerns(queue, name)).collect();
    if !resources.is_empty() {
        writeln!(out)?;
        amounts(queues, row, &resources).print(out, None)?;
    }
    for name in &resources {
        let sentences = explain(queues, row, name);
        if !sentences.is_empty() {
            writeln!(out)?;
            for line in wrapped(&format!("{name}: {sentences}"), WIDTH) {
                writeln!(out, "  {line}")?;
            }
        }
    }
    let ending = conditions(queue, now);
    if !ending.is_empty() {
        writeln!(out, "\n  {}", ending.join(" "))?;
    }
    Ok(())
}

/// Whether a queue has anything to do with a resource.
fn concerns(queue: &QueueView, name: &Name) -> bool {
    let lists = [
        &queue.requested,
        &queue.deserved,
        &queue.fair_share,
        &queue.facts.capability,
        &queue.facts.deserved,
        &queue.facts.guarantee,
    ];
    lists.iter().any(|list| list.get(name) != 0)
}

fn fields(queues: &QueueViews, row: QueueIdx, now: Timestamp) -> Vec<(&'static str, String)> {
    let queue = &queues.all[row];
    let facts = &queue.facts;
    let mut fields = Vec::new();
    let since = queue.active().and_then(|condition| condition.last_transition_time);
    let since = since.map(|since| format!(", for {}", age(now.duration_since(since).as_secs())));
    let state = if queues.tree.not_served(row).is_some() {
        lost(queue)
    } else {
        format!("{}{}", queue.status.state, since.unwrap_or_default())
    };
    fields.push(("state", state));
    let children = queues.tree.children(row);
    if !children.is_empty() {
        let names: Vec<&str> = children.iter().map(|child| queues.all[*child].name()).collect();
        fields.push(("children", names.join(", ")));
    }
    let (running, pending) = (queue.status.running, queue.status.pending);
    fields.push(("jobs", format!("{running} running, {pending} waiting")));
    fields.push(("weight", facts.weight.to_string()));
    if facts.priority != 0 {
        fields.push(("priority", facts.priority.to_string()));
    }
    match facts.order {
        QueueOrder::Priority => {}
        QueueOrder::Fifo => fields.push(("order", "Fifo".to_owned())),
        QueueOrder::StrictFifo => fields.push(("order", "StrictFifo".to_owned())),
    }
    let (most, of) = nearest(queues, row, |queue| queue.facts.max_running_jobs);
    if let Some(most) = most {
        fields.push(("at most", format!("{} at a time{of}", plural(u64::from(most), "job"))));
    }
    for above in queues.tree.path(row) {
        let own = &queues.all[above];
        if let Some(selector) = &own.facts.namespace_selector {
            let of = if above == row { String::new() } else { format!(" (from {})", own.name()) };
            fields.push(("namespaces", format!("{selector}{of}")));
        }
    }
    let (min_runtime, of) = nearest(queues, row, |queue| queue.facts.min_runtime);
    if let Some(time) = min_runtime.filter(|time| !time.is_zero()) {
        let time = age(i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        fields
            .push(("pods run", format!("at least {time} before others may have them evicted{of}")));
    }
    let mut path = queues.tree.path(row);
    if let Some(fence) = path.find(|above| queues.all[*above].facts.not_reclaimable) {
        fields.push((
            "reclaimable",
            format!("no: queues outside {} take nothing back", queues.all[fence].name()),
        ));
    }
    fields
}

/// What the first queue of a path says that says anything, and which that is if it is another one.
fn nearest<T>(
    queues: &QueueViews,
    row: QueueIdx,
    of: impl Fn(&QueueView) -> Option<T>,
) -> (Option<T>, String) {
    for above in queues.tree.path(row) {
        if let Some(found) = of(&queues.all[above]) {
            let name = queues.all[above].name();
            let from = if above == row { String::new() } else { format!(" (from {name})") };
            return (Some(found), from);
        }
    }
    (of(&queues.all[row]), String::new())
}

/// The table of amounts.
fn amounts(queues: &QueueViews, row: QueueIdx, resources: &[&Name]) -> TextTable {
    let queue = &queues.all[row];
    let mut table = TextTable::new([
        ("", Align::Left),
        ("held", Align::Left),
        ("waiting", Align::Left),
        ("deserved", Align::Left),
        ("guaranteed", Align::Left),
        ("limit", Align::Left),
        ("if all want all", Align::Left),
    ]);
    for name in resources {
        let amount = |amount: i64| people::amount(name, amount);
        let or_none = |own: i64| if own == 0 { "-".to_owned() } else { amount(own) };
        table.row([
            format!("  {name}").into(),
            amount(queue.held.get(name)).into(),
            amount(queue.waiting(name)).into(),
            amount(queue.deserved.get(name)).into(),
            or_none(queue.guaranteed.get(name)).into(),
            limit(queues, row, name).unwrap_or_else(|| "-".to_owned()).into(),
            amount(queue.fair_share.get(name)).into(),
        ]);
    }
    table
}

/// The lowest limit of a path, and whose it is if it is another queue's.
fn limit(queues: &QueueViews, row: QueueIdx, name: &Name) -> Option<String> {
    let limited =
        queues.tree.path(row).filter(|above| queues.all[*above].facts.capability.names(name));
    let (limit, of) =
        limited.map(|above| (queues.all[above].facts.capability.get(name), above)).min()?;
    let from = if of == row { String::new() } else { format!(" ({})", queues.all[of].name()) };
    Some(format!("{}{from}", people::amount(name, limit)))
}

/// What its conditions say, in sentences.
fn conditions(queue: &QueueView, now: Timestamp) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(active) = queue.active() {
        let since = active.last_transition_time;
        let since =
            since.map(|since| format!(" since {} ago", age(now.duration_since(since).as_secs())));
        let since = since.unwrap_or_default();
        match (&*active.status, &*active.message) {
            ("True", _) => sentences.push(format!("Active{since}.")),
            (_, why) => sentences.push(format!("Not active{since}: {why}.")),
        }
    }
    match queue.condition(OVERSUBSCRIBED).filter(|condition| condition.status == "True") {
        Some(condition) => sentences.push(format!("Oversubscribed: {}.", condition.message)),
        None if !sentences.is_empty() => sentences.push("Not oversubscribed.".to_owned()),
        None => {}
    }
    sentences
}

/// A text in lines of some width, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is always a line");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}
