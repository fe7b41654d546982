//! Jobs: those that wait, with the reasons, and the others.

use std::collections::BTreeMap;

use kube_batch_sim::outcome::{GroupOutcome, Outcome};

use super::section::{MAX_ROWS, Section, more_rows};
use crate::{
    table::{Align, Cell, TextTable, age},
    terminal::{BAD, GOOD, WAITING},
};

/// Maximum number of jobs that do not wait.
const MAX_OTHERS: usize = 20;

/// The jobs that wait or have failed, each with its reason below it, and the others.
pub(super) fn tables(outcome: &Outcome) -> (Section, Section) {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for group in &outcome.pod_groups {
        *names.entry(&group.pod_group).or_default() += 1;
    }
    // Pods without a PodGroup form a job with the name of their controller.
    let name = |group: &GroupOutcome| match names[&*group.pod_group] {
        2.. if !group.has_pod_group => format!("{} (no PodGroup)", group.pod_group),
        _ => group.pod_group.clone(),
    };
    let waits = |group: &&GroupOutcome| group.message.is_some();
    let (waiting, others): (Vec<&GroupOutcome>, Vec<&GroupOutcome>) =
        outcome.pod_groups.iter().partition(waits);
    (self::waiting(&waiting, name), self::others(&others, name))
}

fn waiting(groups: &[&GroupOutcome], name: impl Fn(&GroupOutcome) -> String) -> Section {
    let mut table = table(true);
    let shown = &groups[..groups.len().min(MAX_ROWS)];
    for (at, group) in shown.iter().enumerate() {
        let cells = row(group, name(group), true);
        // The reason of several jobs is below the last of them.
        match group.message.as_deref() {
            Some(why)
                if shown.get(at + 1).and_then(|next| next.message.as_deref()) != Some(why) =>
            {
                table.row_above(cells, why);
            }
            _ => table.row(cells),
        }
    }
    table.leave_out_equal(&["BOUND"]);
    (table, more_rows(groups.len(), "jobs that wait; -o json lists all"))
}

fn others(groups: &[&GroupOutcome], name: impl Fn(&GroupOutcome) -> String) -> Section {
    let mut table = table(false);
    let mut groups = groups.to_vec();
    groups.sort_by_key(|group| group.phase == "Completed");
    for group in groups.iter().take(MAX_OTHERS) {
        table.row(row(group, name(group), false));
    }
    if groups.len() > 1 || groups.iter().all(|group| group.bound == 0 && group.pending == 0) {
        table.leave_out_equal(&["BOUND", "PENDING"]);
    }
    let more = groups.len().checked_sub(MAX_OTHERS).filter(|more| *more > 0);
    (table, more.map(|more| format!("… and {more} more jobs; -o json lists all")))
}

fn table(waits: bool) -> TextTable {
    let columns = [
        ("JOB", Align::Left),
        ("QUEUE", Align::Left),
        ("MIN", Align::Right),
        ("RUNNING", Align::Right),
        ("BOUND", Align::Right),
        ("PENDING", Align::Right),
        ("PHASE", Align::Left),
    ];
    TextTable::new(columns.into_iter().chain(waits.then_some(("WAITS", Align::Right))))
}

fn row(group: &GroupOutcome, name: String, waits: bool) -> Vec<Cell> {
    let style = match group.phase.as_str() {
        "Running" | "Completed" => GOOD,
        "Failed" => BAD,
        _ => WAITING,
    };
    let mut row: Vec<Cell> = vec![
        name.into(),
        group.queue.as_deref().unwrap_or("-").into(),
        group.min_member.to_string().into(),
        group.running.to_string().into(),
        group.bound.to_string().into(),
        group.pending.to_string().into(),
        Cell::styled(style, group.phase.as_str()),
    ];
    row.extend(waits.then(|| Cell::from(group.waiting_seconds.map(age).unwrap_or_default())));
    row
}
