//! What queues would deserve of one resource if others wanted all they can get.
//!
//! The fair share of a queue is what it would deserve if it, and every leaf that has jobs, requested all that there is. It is
//! the [division](crate::division) with other requests, rounded down, and one division serves all queues: of siblings
//! only the one that is asked about may request more than in it, so their claims are sorted once.
// Parity: see docs/parity.md#q15.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    column::{Column, QueueIdx},
    division::{Part, RoundClaim, Wish, before_division, parts_before_division},
    queue_tree::QueueTree,
};

/// The fair share of each queue of `total`. `has_jobs` says which leaves request all of it; a queue that serves nothing
/// gets nothing.
pub fn fair_shares(
    tree: &QueueTree,
    mut wishes: Column<QueueIdx, Wish>,
    has_jobs: impl Fn(QueueIdx) -> bool,
    total: i64,
) -> Column<QueueIdx, i64> {
    let total = total.max(0);
    for queue in tree.parents_first() {
        wishes[*queue].request = if has_jobs(*queue) { total } else { 0 };
    }
    let parts = parts_before_division(tree, &wishes);
    let siblings = |queues: &[QueueIdx]| Siblings::new(queues, &wishes, &parts);
    let at_top = siblings(tree.roots());
    let below: Column<QueueIdx, Siblings> =
        wishes.ids().map(|queue| siblings(tree.children(queue))).collect();
    let mut shares = Column::filled(0, wishes.len());
    for queue in tree.parents_first() {
        let mut path = asking(tree, &wishes, &parts, *queue, total);
        path.reverse();
        shares[*queue] = path.into_iter().fold(total, |left, (own, part)| {
            let siblings = tree.parent(own).map_or(&at_top, |parent| &below[parent]);
            siblings.part_of(own, &wishes[own], &part, left)
        });
    }
    shares
}

/// What the queues of the path of a queue ask for if it requests all that there is, the lowest first.
fn asking(
    tree: &QueueTree,
    wishes: &Column<QueueIdx, Wish>,
    parts: &Column<QueueIdx, Part>,
    queue: QueueIdx,
    total: i64,
) -> Vec<(QueueIdx, Part)> {
    let mut asking = Vec::new();
    // How much more than in the common division is claimed below.
    let mut more = total;
    for own in tree.path(queue) {
        let is_lowest = asking.is_empty();
        let claims = || tree.children(own).iter().map(|child| parts[*child].claim);
        let wanted = if is_lowest { total } else { claims().fold(more, i64::saturating_add) };
        let part = before_division(&wishes[own], parts[own], wanted);
        more = part.claim - parts[own].claim;
        asking.push((own, part));
    }
    asking
}

/// The claims of siblings, sorted for each round of the division.
struct Siblings {
    rounds: Vec<Round>,
}

/// One round: guarantees, deserved amounts, or the rest for one priority.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Guaranteed,
    Deserved,
    Rest(Reverse<i32>),
}

struct Round {
    kind: Kind,
    /// Those that can get something, the one that reaches its limit at the lowest level first.
    claims: Vec<RoundClaim>,
    /// The position of each.
    positions: BTreeMap<QueueIdx, usize>,
    /// The sums of the limits and weights of the first ones: of none, of one …
    limits: Vec<i128>,
    weights: Vec<i128>,
}

/// What a queue can get in the rounds in which it can get something, if all before are met in full.
fn claims_of(queue: QueueIdx, wish: &Wish, part: &Part) -> [(Kind, RoundClaim); 3] {
    let Part { guarantee, entitlement, claim, .. } = *part;
    let [guaranteed, promised] = [claim.min(guarantee), claim.min(entitlement)];
    let priority = wish.priority;
    let of = |weight, limit| RoundClaim { queue, priority, weight, limit };
    [
        (Kind::Guaranteed, of(guarantee, guaranteed)),
        (Kind::Deserved, of(entitlement - guarantee, promised - guaranteed)),
        (Kind::Rest(Reverse(priority)), of(wish.weight.into(), claim - promised)),
    ]
}

impl Siblings {
    fn new(
        queues: &[QueueIdx],
        wishes: &Column<QueueIdx, Wish>,
        parts: &Column<QueueIdx, Part>,
    ) -> Self {
        let mut rounds: BTreeMap<Kind, Vec<RoundClaim>> = BTreeMap::new();
        for queue in queues {
            for (kind, claim) in claims_of(*queue, &wishes[*queue], &parts[*queue]) {
                rounds.entry(kind).or_default().push(claim);
            }
        }
        Self { rounds: rounds.into_iter().map(|(kind, claims)| Round::new(kind, claims)).collect() }
    }

    /// What a queue gets of an amount if it asks for more than in the common division.
    fn part_of(&self, queue: QueueIdx, wish: &Wish, part: &Part, amount: i64) -> i64 {
        let mut left = i128::from(amount);
        let mut got = 0;
        let mut own = claims_of(queue, wish, part).into_iter().peekable();
        for round in &self.rounds {
            let claim = own.next_if(|(kind, _)| *kind == round.kind).map(|(_, claim)| claim);
            let Some(claim) = claim else {
                left = (left - round.all_limits()).max(0);
                continue;
            };
            let (part, rest) = round.part_of(claim, left);
            got += part;
            left = rest;
        }
        got
    }
}

impl Round {
    fn new(kind: Kind, mut claims: Vec<RoundClaim>) -> Self {
        claims.retain(RoundClaim::gets_something);
        claims.sort_by(RoundClaim::by_level);
        let sums = |of: fn(&RoundClaim) -> i64| {
            let mut sum = 0;
            let sums = claims.iter().map(|claim| {
                sum += i128::from(of(claim));
                sum
            });
            std::iter::once(0).chain(sums).collect()
        };
        let (limits, weights) = (sums(|claim| claim.limit), sums(|claim| claim.weight));
        let positions = claims.iter().enumerate().map(|(at, claim)| (claim.queue, at)).collect();
        Self { kind, claims, positions, limits, weights }
    }

    fn all_limits(&self) -> i128 {
        self.limits[self.claims.len()]
    }

    /// What one gets with this claim instead of its own, and what all leave.
    fn part_of(&self, claim: RoundClaim, left: i128) -> (i64, i128) {
        let before = self.positions.get(&claim.queue).copied();
        let [limit, weight] = [claim.limit, claim.weight].map(i128::from);
        // What those below a position have, and what those above weigh, without the one that asks.
        let met = |n: usize| {
            self.limits[n]
                - before.filter(|at| *at < n).map_or(0, |at| self.claims[at].limit.into())
        };
        let unmet = |n: usize| {
            let own = before.filter(|at| *at >= n).map_or(0, |at| self.claims[at].weight.into());
            self.weights[self.claims.len()] - self.weights[n] - own
        };
        let all = met(self.claims.len()) + limit;
        if all <= left {
            return (claim.limit, left - all);
        }
        // Whether all get less than `left` at the level at which one of the others reaches its limit.
        let is_below = |n: usize| {
            let [top, per] = [self.claims[n].limit, self.claims[n].weight].map(i128::from);
            let own = (limit * per).min(weight * top);
            met(n) * per + unmet(n) * top + own <= left * per
        };
        let n_met = partition_point(self.claims.len(), is_below);
        let (rest, others) = (left - met(n_met), unmet(n_met));
        // The level is `rest / (others + weight)`, unless the one that asks has its limit before.
        let part = if weight * rest >= limit * (others + weight) {
            limit
        } else {
            weight * rest / (others + weight)
        };
        (i64::try_from(part).unwrap_or(i64::MAX), 0)
    }
}

/// The first number for which a condition does not hold that holds for those below it.
fn partition_point(n: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}
