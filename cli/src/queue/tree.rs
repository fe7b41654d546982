//! The tree of queues, with what each holds of what it deserves.

use kube_batch_model::{column::QueueIdx, name::Name, people};

use super::view::{QueueView, QueueViews};
use crate::{
    table::{Align, Cell, TextTable, bar},
    terminal::{BAD, FAINT, GOOD, WAITING},
};

/// Width of a bar.
const BAR: usize = 20;

/// How many resources have a column unless they are named.
const N_SHOWN: usize = 2;

/// The tree. Without the `width` of a terminal there are no bars. `chosen` are the resources to show; without any, those
/// that people divide most carefully.
pub(crate) fn table(queues: &QueueViews, chosen: &[Name], width: Option<usize>) -> TextTable {
    let shown = if chosen.is_empty() { most_scarce(queues) } else { chosen.to_vec() };
    let of_resources =
        shown.iter().map(|name| (format!("{} held/deserved", heading(name)), Align::Left));
    let has_priorities = queues.all.values().any(|queue| queue.facts.priority != 0);
    let mut columns = vec![("QUEUE".to_owned(), Align::Left), ("STATE".to_owned(), Align::Left)];
    columns.extend(has_priorities.then(|| ("PRIORITY".to_owned(), Align::Right)));
    columns.push(("WEIGHT".to_owned(), Align::Right));
    columns.push(("JOBS".to_owned(), Align::Right));
    columns.extend(of_resources);
    columns.push(("WAITS FOR".to_owned(), Align::Left));
    let mut table = TextTable::new(columns);
    let rows = Rows { queues, shown: &shown, has_priorities, has_bars: width.is_some() };
    if queues.tree.roots().len() > 1 {
        table.row(rows.all());
    }
    let indent = usize::from(queues.tree.roots().len() > 1);
    for (queue, depth) in queues.in_order() {
        table.row(rows.of(queue, depth + indent));
    }
    table
}

/// Of devices the first by name, because they are what teams share, and CPU; without devices, CPU and memory.
fn most_scarce(queues: &QueueViews) -> Vec<Name> {
    let all = queues.resources();
    let (mut devices, others): (Vec<Name>, Vec<Name>) =
        all.into_iter().partition(|name| name.contains('/'));
    devices.truncate(N_SHOWN - 1);
    let n_others = N_SHOWN - devices.len();
    others.into_iter().take(n_others).chain(devices).collect()
}

/// The name of a resource as a heading.
pub(crate) fn heading(resource: &str) -> String {
    match people::short_name(resource) {
        name if name.contains('/') => name.to_owned(),
        name => name.to_uppercase(),
    }
}

struct Rows<'a> {
    queues: &'a QueueViews,
    shown: &'a [Name],
    has_priorities: bool,
    has_bars: bool,
}

impl Rows<'_> {
    /// The queues at the top together.
    fn all(&self) -> Vec<Cell> {
        let queues = self.queues;
        let counts = [
            queues.sum(|queue| queue.status.running.into()),
            queues.sum(|queue| queue.status.pending.into()),
        ];
        let mut row = vec!["all".into(), "".into()];
        row.extend(self.has_priorities.then(|| "".into()));
        row.extend(["".into(), jobs(counts).into()]);
        row.extend(self.shown.iter().map(|name| {
            let held = queues.sum(|queue| queue.held.get(name));
            self.held_of(name, held, queues.sum(|queue| queue.deserved.get(name)))
        }));
        row.push(self.waits(|name| queues.sum(|queue| queue.waiting(name))).into());
        row
    }

    fn of(&self, row: QueueIdx, depth: usize) -> Vec<Cell> {
        let queue = &self.queues.all[row];
        let name = format!("{}{}", self.branch(row, depth), queue.name());
        if self.queues.tree.not_served(row).is_some() {
            return vec![name.into(), Cell::styled(BAD, lost(queue))];
        }
        let mut cells = vec![name.into(), state(queue)];
        cells.extend(self.has_priorities.then(|| queue.facts.priority.to_string().into()));
        cells.push(queue.facts.weight.to_string().into());
        let counts = [queue.status.running, queue.status.pending].map(i64::from);
        cells.push(jobs(counts).into());
        cells.extend(self.shown.iter().map(|name| {
            match (queue.has_shares(), queue.held.get(name)) {
                (true, held) => self.held_of(name, held, queue.deserved.get(name)),
                (false, 0) => "".into(),
                (false, held) => format!("{}/-", people::amount(name, held)).into(),
            }
        }));
        cells.push(self.waits(|name| queue.waiting(name)).into());
        cells
    }

    /// The lines that lead to a queue.
    fn branch(&self, queue: QueueIdx, depth: usize) -> String {
        if depth == 0 || self.queues.tree.not_served(queue).is_some() {
            return String::new();
        }
        let tree = &self.queues.tree;
        let is_last = |queue: QueueIdx| {
            let siblings = tree.parent(queue).map_or(tree.roots(), |parent| tree.children(parent));
            siblings.last() == Some(&queue)
        };
        let path: Vec<QueueIdx> = tree.path(queue).take(depth).collect();
        let mut branch = String::new();
        for above in path.iter().skip(1).rev() {
            branch.push_str(if is_last(*above) { "   " } else { "│  " });
        }
        branch.push_str(if is_last(queue) { "└─ " } else { "├─ " });
        branch
    }

    fn held_of(&self, resource: &str, held: i64, deserved: i64) -> Cell {
        if held == 0 && deserved == 0 {
            return "".into();
        }
        let numbers = people::part(resource, held, deserved);
        if !self.has_bars {
            return numbers.into();
        }
        let part = if deserved > 0 { held as f64 / deserved as f64 } else { f64::INFINITY };
        let style = if held > deserved { WAITING } else { GOOD };
        Cell::styled(style, format!("{} {numbers:>9}", bar(part, BAR)))
    }

    /// What pods wait for, of the resources that have a column.
    fn waits(&self, of: impl Fn(&str) -> i64) -> String {
        let waits = |name: &Name| {
            let amount = of(name);
            (amount > 0).then(|| people::named(name, amount))
        };
        self.shown.iter().filter_map(waits).collect::<Vec<_>>().join(", ")
    }
}

fn jobs([running, pending]: [i64; 2]) -> String {
    if pending == 0 { running.to_string() } else { format!("{running} +{pending}") }
}

/// Why a queue starts no jobs because of the queues above it.
pub(crate) fn lost(queue: &QueueView) -> String {
    let why = queue.active().map_or("", |condition| &*condition.message);
    match (why, queue.status.pending) {
        ("", _) => "serves nothing".to_owned(),
        (why, 0) => why.to_owned(),
        (why, 1) => format!("{why}: 1 job waits"),
        (why, n) => format!("{why}: {n} jobs wait"),
    }
}

fn state(queue: &QueueView) -> Cell {
    let style = match &*queue.status.state {
        "Open" => GOOD,
        "Closing" => WAITING,
        _ => FAINT,
    };
    Cell::styled(style, &*queue.status.state)
}
