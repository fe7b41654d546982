//! What queues deserve of one resource: the division of an amount among siblings, level by level.
//!
//! The children of a queue divide what it deserves in three rounds: first what is guaranteed, in proportion to the
//! guarantees; then what is deserved by number, in proportion to what that is more; then the rest, the highest priority
//! first, by weight. Each round is a weighted max-min division: a level rises from 0, and everybody gets its weight times
//! the level, up to its limit, until nothing is left or all have their limits. Units that do not divide go one each to the
//! largest remainders, ties in the order of the queues.
//!
//! Everything is exact: products of two amounts have at most 110 bits.
// Parity: see docs/parity.md#q2.

use std::{
    cmp::{Ordering, Reverse},
    collections::BTreeMap,
};

use crate::{
    column::{Column, QueueIdx},
    queue_tree::QueueTree,
};

/// What is known of a queue and one resource before the division.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// What it is to deserve before weights count; `None` if its children say so.
    pub deserved: Option<i64>,
    /// What is kept free for it; 0 if it is closed.
    pub guarantee: i64,
    /// Its hard limit.
    pub capability: Option<i64>,
    /// Its part of what is left, relative to its siblings.
    pub weight: u32,
    /// Of what is left, the higher gets all that it claims before the lower gets anything.
    pub priority: i32,
    /// What the tasks of a leaf hold, and those that wait request.
    pub request: i64,
}

/// What a queue gets of one resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// What its guarantee, and those below it, come to.
    pub guarantee: i64,
    /// What it is to deserve before weights count.
    pub entitlement: i64,
    /// What it can use, at most its capability.
    pub claim: i64,
    /// What it gets in the first round.
    pub guaranteed: i64,
    /// What it gets in the first two rounds.
    pub promised: i64,
    /// What it gets.
    pub deserved: i64,
}

/// Divides `total` of one resource among the queues of a tree. A queue that serves nothing gets nothing.
pub fn divide(
    tree: &QueueTree,
    wishes: &Column<QueueIdx, Wish>,
    total: i64,
) -> Column<QueueIdx, Part> {
    let mut parts = parts_before_division(tree, wishes);
    share_out(tree.roots(), wishes, &mut parts, total.max(0));
    for queue in tree.parents_first() {
        let deserved = parts[*queue].deserved;
        share_out(tree.children(*queue), wishes, &mut parts, deserved);
    }
    parts
}

/// What each queue asks for.
pub(crate) fn parts_before_division(
    tree: &QueueTree,
    wishes: &Column<QueueIdx, Wish>,
) -> Column<QueueIdx, Part> {
    let mut parts = Column::filled(Part::default(), wishes.len());
    for queue in tree.parents_first().iter().rev() {
        let below = tree.children(*queue).iter().fold(Part::default(), |sum, child| {
            let Part { guarantee, entitlement, claim, .. } = parts[*child];
            Part {
                guarantee: sum.guarantee.saturating_add(guarantee),
                entitlement: sum.entitlement.saturating_add(entitlement),
                claim: sum.claim.saturating_add(claim),
                ..sum
            }
        });
        let wish = &wishes[*queue];
        let wanted = if tree.is_leaf(*queue) { wish.request } else { below.claim };
        parts[*queue] = before_division(wish, below, wanted);
    }
    parts
}

/// What a queue asks for that can use `wanted`; `below` has the sums of the guarantees and entitlements of its children.
pub(crate) fn before_division(wish: &Wish, below: Part, wanted: i64) -> Part {
    let Wish { deserved, guarantee, capability, weight, .. } = *wish;
    let limit = capability.unwrap_or(i64::MAX);
    let guarantee = guarantee.max(below.guarantee).min(limit);
    let entitlement = deserved.map_or(below.entitlement, |own| own.max(guarantee));
    let entitlement = entitlement.max(guarantee).min(limit);
    let claim = wanted.max(guarantee).min(limit);
    let claim = if weight == 0 { claim.min(entitlement) } else { claim };
    Part { guarantee, entitlement, claim, ..Part::default() }
}

/// Divides an amount among siblings, in three rounds.
fn share_out(
    siblings: &[QueueIdx],
    wishes: &Column<QueueIdx, Wish>,
    parts: &mut Column<QueueIdx, Part>,
    mut left: i64,
) {
    if siblings.is_empty() {
        return;
    }
    let mut round = |parts: &mut Column<QueueIdx, Part>, claims: Vec<RoundClaim>| {
        for (queue, amount) in max_min(claims, left) {
            parts[queue].deserved += amount;
            left -= amount;
        }
    };
    let claims = siblings.iter().map(|queue| {
        let Part { guarantee, claim, .. } = parts[*queue];
        let priority = wishes[*queue].priority;
        RoundClaim { queue: *queue, priority, weight: guarantee, limit: claim.min(guarantee) }
    });
    round(parts, claims.collect());
    siblings.iter().for_each(|queue| parts[*queue].guaranteed = parts[*queue].deserved);
    let claims = siblings.iter().map(|queue| {
        let Part { guarantee, entitlement, claim, deserved, .. } = parts[*queue];
        let limit = claim.min(entitlement) - deserved;
        let priority = wishes[*queue].priority;
        RoundClaim { queue: *queue, priority, weight: entitlement - guarantee, limit }
    });
    round(parts, claims.collect());
    siblings.iter().for_each(|queue| parts[*queue].promised = parts[*queue].deserved);
    let mut by_priority: BTreeMap<Reverse<i32>, Vec<RoundClaim>> = BTreeMap::new();
    for queue in siblings {
        let Wish { weight, priority, .. } = wishes[*queue];
        let limit = parts[*queue].claim - parts[*queue].deserved;
        let claim = RoundClaim { queue: *queue, priority, weight: weight.into(), limit };
        by_priority.entry(Reverse(priority)).or_default().push(claim);
    }
    for claims in by_priority.into_values() {
        round(parts, claims);
    }
}

/// What one queue can get in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundClaim {
    pub(crate) queue: QueueIdx,
    /// Of the queue: units that do not divide go to the higher first.
    pub(crate) priority: i32,
    pub(crate) weight: i64,
    pub(crate) limit: i64,
}

impl RoundClaim {
    pub(crate) const fn gets_something(&self) -> bool {
        self.weight > 0 && self.limit > 0
    }

    /// The claim that reaches its limit at the lower level is less.
    pub(crate) fn by_level(&self, other: &Self) -> Ordering {
        let level = |limit: i64, weight: i64| i128::from(limit) * i128::from(weight);
        let levels = level(self.limit, other.weight).cmp(&level(other.limit, self.weight));
        levels.then(self.queue.cmp(&other.queue))
    }
}

/// The weighted max-min division of an amount, in whole units.
fn max_min(mut claims: Vec<RoundClaim>, amount: i64) -> Vec<(QueueIdx, i64)> {
    claims.retain(RoundClaim::gets_something);
    let mut left = i128::from(amount.max(0));
    let mut weights: i128 = claims.iter().map(|claim| i128::from(claim.weight)).sum();
    claims.sort_by(RoundClaim::by_level);
    let mut shares = Vec::with_capacity(claims.len());
    let mut unmet = claims.as_slice();
    while let [claim, rest @ ..] = unmet {
        let (weight, limit) = (i128::from(claim.weight), i128::from(claim.limit));
        if limit * weights > left * weight {
            break;
        }
        shares.push((claim.queue, claim.limit));
        left -= limit;
        weights -= weight;
        unmet = rest;
    }
    // None of the others gets all it can use.
    let mut rounded: Vec<(&RoundClaim, i128, i128)> = unmet
        .iter()
        .map(|claim| {
            let exact = left * i128::from(claim.weight);
            (claim, exact / weights, exact % weights)
        })
        .collect();
    let given: i128 = rounded.iter().map(|(_, amount, _)| amount).sum();
    rounded.sort_by_key(|(claim, _, rest)| (Reverse((*rest, claim.priority)), claim.queue));
    let spare = usize::try_from(left - given).unwrap_or(0).min(rounded.len());
    for (at, (claim, amount, _)) in rounded.into_iter().enumerate() {
        let amount = amount + i128::from(at < spare);
        shares.push((claim.queue, i64::try_from(amount).unwrap_or(i64::MAX)));
    }
    shares
}
