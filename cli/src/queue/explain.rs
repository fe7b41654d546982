//! Why a queue deserves what it does of a resource, in sentences.
//!
//! They follow the three rounds in which siblings divide what their parent deserves: guarantees, amounts deserved by number,
//! and the rest by priority and weight.
// Parity: see docs/parity.md#q2.

use std::{cmp::Reverse, collections::BTreeMap};

use kube_batch_model::{
    column::{Column, QueueIdx},
    division::{Part, Wish, divide},
    people,
};

use super::view::QueueViews;

/// How many siblings are named.
const N_NAMED: usize = 3;

/// Why a queue deserves what it does of a resource; empty if it serves nothing.
pub(super) fn explain(queues: &QueueViews, row: QueueIdx, resource: &str) -> String {
    if queues.tree.not_served(row).is_some() {
        return String::new();
    }
    if !queues.all[row].has_shares() {
        return "The scheduler writes no shares into queues of Volcano.".to_owned();
    }
    let parts = parts(queues, resource);
    let division = Division { queues, resource, parts: &parts };
    let mut sentences = vec![division.whole(row)];
    sentences.extend(division.promises(row));
    sentences.push(division.rest(row));
    sentences.extend(division.loan(row));
    sentences.join(" ")
}

/// What each queue asks for and gets, by what the scheduler wrote last.
fn parts(queues: &QueueViews, resource: &str) -> Column<QueueIdx, Part> {
    let wish = |row: QueueIdx| {
        let queue = &queues.all[row];
        let facts = &queue.facts;
        let is_closed = queues.tree.path(row).any(|above| queues.all[above].facts.closed);
        Wish {
            deserved: facts.deserved.names(resource).then(|| facts.deserved.get(resource)),
            guarantee: if is_closed { 0 } else { facts.guarantee.get(resource) },
            capability: facts.capability.names(resource).then(|| facts.capability.get(resource)),
            weight: facts.weight,
            priority: facts.priority,
            request: queue.requested.get(resource),
        }
    };
    let wishes = queues.all.ids().map(wish).collect();
    divide(&queues.tree, &wishes, queues.sum(|queue| queue.deserved.get(resource)))
}

struct Division<'a> {
    queues: &'a QueueViews,
    resource: &'a str,
    parts: &'a Column<QueueIdx, Part>,
}

impl Division<'_> {
    fn name(&self, row: QueueIdx) -> &str {
        self.queues.all[row].name()
    }

    fn amount(&self, amount: i64) -> String {
        people::amount(self.resource, amount)
    }

    fn siblings(&self, row: QueueIdx) -> &[QueueIdx] {
        let tree = &self.queues.tree;
        tree.parent(row).map_or(tree.roots(), |parent| tree.children(parent))
    }

    /// What is divided.
    fn whole(&self, row: QueueIdx) -> String {
        match self.queues.tree.parent(row) {
            Some(parent) => {
                format!(
                    "{} deserves {}.",
                    self.name(parent),
                    self.amount(self.parts[parent].deserved)
                )
            }
            None => {
                let all = self.queues.sum(|queue| queue.deserved.get(self.resource));
                format!("The queues at the top deserve {} together.", self.amount(all))
            }
        }
    }

    /// The first two rounds.
    fn promises(&self, row: QueueIdx) -> Option<String> {
        let siblings = self.siblings(row);
        let of_round = |what: &str, of: &dyn Fn(&Part) -> i64| {
            let got = siblings.iter().map(|queue| (*queue, of(&self.parts[*queue])));
            let got: Vec<(QueueIdx, i64)> = got.filter(|(_, amount)| *amount > 0).collect();
            let list = self.list(row, &got, |name, amount, _| format!("{amount} to {name}"));
            (!got.is_empty()).then(|| format!("{what}: {list}."))
        };
        let rounds = [
            of_round("Guaranteed", &|part| part.guaranteed),
            of_round("Promised by number", &|part| part.promised - part.guaranteed),
        ];
        let rounds: Vec<String> = rounds.into_iter().flatten().collect();
        match (rounds.is_empty(), siblings.len()) {
            (false, _) => Some(rounds.join(" ")),
            (true, 1) => None,
            (true, _) => Some("Nothing of it is guaranteed or promised by number.".to_owned()),
        }
    }

    /// The third round.
    fn rest(&self, row: QueueIdx) -> String {
        let mut by_priority: BTreeMap<Reverse<i32>, Vec<(QueueIdx, i64)>> = BTreeMap::new();
        for queue in self.siblings(row) {
            let Part { promised, deserved, .. } = self.parts[*queue];
            let priority = self.queues.all[*queue].facts.priority;
            let own = by_priority.entry(Reverse(priority)).or_default();
            own.extend(
                (deserved > promised || *queue == row).then(|| (*queue, deserved - promised)),
            );
        }
        by_priority.retain(|_, got| !got.is_empty());
        if self.queues.all[row].facts.weight == 0 {
            return format!("{} has weight 0, and gets nothing of the rest.", self.name(row));
        }
        let wants = self.who_wants_more(row);
        if by_priority.values().flatten().all(|(_, amount)| *amount == 0) {
            return format!("Nothing is left to divide by weight{wants}.");
        }
        let has_several = by_priority.len() > 1;
        let classes = by_priority.into_iter().map(|(Reverse(priority), got)| {
            let of = if has_several { format!("at priority {priority} ") } else { String::new() };
            let mut weights = Vec::new();
            let list = self.list(row, &got, |name, amount, queue| {
                weights.extend(queue.map(|queue| self.queues.all[queue].facts.weight.to_string()));
                let verb = if weights.len() == 1 { " gets" } else { "" };
                format!("{name}{verb} {amount}")
            });
            let are_named = (2..=N_NAMED).contains(&got.len());
            let of_weights =
                if are_named { format!("{}, ", weights.join(" to ")) } else { String::new() };
            format!("{of}by weight, {of_weights}{list}")
        });
        let classes = classes.collect::<Vec<_>>().join("; then ");
        let first = classes.chars().next().map(|letter| letter.to_ascii_uppercase());
        let text: String = first.into_iter().chain(classes.chars().skip(1)).collect();
        format!("{text}{wants}.")
    }

    /// `a and b want more`, as the end of a sentence.
    fn who_wants_more(&self, row: QueueIdx) -> String {
        let siblings = self.siblings(row);
        let requested = |queue: QueueIdx| self.queues.all[queue].requested.get(self.resource);
        // A guarantee is claimed although nothing asks for it, and limits cut what is claimed.
        let asks = |queue: QueueIdx| self.parts[queue].deserved < requested(queue);
        let wants = |queue: &&QueueIdx| {
            asks(**queue) && self.parts[**queue].deserved < self.parts[**queue].claim
        };
        let wanting: Vec<QueueIdx> = siblings.iter().filter(wants).copied().collect();
        let is_own = wanting.contains(&row);
        if !is_own && asks(row) {
            return format!("; it asks for more, {}", self.why_no_more(row));
        }
        match (wanting.len(), siblings.len()) {
            (0, 1) => "; it asks for no more".to_owned(),
            (0, _) if siblings.iter().any(|queue| asks(*queue)) => {
                "; the others that ask for more may not have it".to_owned()
            }
            (0, _) => "; no queue asks for more".to_owned(),
            (1, _) => format!("; {} asks for more", self.name(wanting[0])),
            (2, 2) => "; both ask for more".to_owned(),
            (n, all) if n == all => "; all ask for more".to_owned(),
            (2, _) if is_own => {
                let other = wanting.iter().find(|queue| **queue != row).copied().unwrap_or(row);
                format!("; {} and {} ask for more", self.name(row), self.name(other))
            }
            (n, _) if is_own => format!("; {} and {} others ask for more", self.name(row), n - 1),
            (n, _) => format!("; {n} others ask for more"),
        }
    }

    /// Why a queue claims less than it asks for.
    fn why_no_more(&self, row: QueueIdx) -> String {
        let facts = &self.queues.all[row].facts;
        let claim = self.parts[row].claim;
        let limit = facts.capability.get(self.resource);
        if facts.capability.names(self.resource) && claim >= limit {
            return format!("and its limit is {}", self.amount(limit));
        }
        match self.queues.tree.children(row) {
            [] => "and may not have it".to_owned(),
            [_, ..] => "and the queues below it may not have more".to_owned(),
        }
    }

    /// What it holds beyond what it deserves, and who may take that back.
    fn loan(&self, row: QueueIdx) -> Option<String> {
        let loan = self.queues.all[row].on_loan(self.resource);
        if loan == 0 {
            return None;
        }
        let lenders: Vec<&str> = self
            .siblings(row)
            .iter()
            .filter(|queue| {
                let view = &self.queues.all[**queue];
                let held = view.held.get(self.resource);
                held < view.deserved.get(self.resource) && view.waiting(self.resource) > 0
            })
            .map(|queue| self.name(*queue))
            .collect();
        let is_fenced = self.queues.all[row].facts.not_reclaimable;
        let who = match lenders[..] {
            _ if is_fenced => ", which no other queue takes back".to_owned(),
            [] => String::new(),
            [only] => format!(", which {only} may take back"),
            [l, r] => format!(", which {l} and {r} may take back"),
            [first, ..] => {
                format!(", which {first} and {} others may take back", lenders.len() - 1)
            }
        };
        Some(format!("{} holds {} on loan{who}.", self.name(row), self.amount(loan)))
    }

    /// The first of some queues with their amounts, the own one first, then the largest; the last may stand for several.
    fn list(
        &self,
        row: QueueIdx,
        of: &[(QueueIdx, i64)],
        mut words: impl FnMut(&str, &str, Option<QueueIdx>) -> String,
    ) -> String {
        let mut of = of.to_vec();
        of.sort_by_key(|(queue, amount)| (*queue != row, Reverse(*amount), *queue));
        // A name is as short as "1 others".
        let n_named = if of.len() == N_NAMED + 1 { of.len() } else { of.len().min(N_NAMED) };
        let (named, others) = of.split_at(n_named);
        let mut parts: Vec<String> = named
            .iter()
            .map(|(queue, amount)| words(self.name(*queue), &self.amount(*amount), Some(*queue)))
            .collect();
        if !others.is_empty() {
            let rest: i64 = others.iter().map(|(_, amount)| amount).sum();
            parts.push(words(&format!("{} others", others.len()), &self.amount(rest), None));
        }
        let last = parts.pop().unwrap_or_default();
        if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) }
    }
}
