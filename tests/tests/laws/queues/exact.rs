//! What queues deserve, in exact fractions, written from the rules (Q2 of docs/parity.md) and not from the code.

use std::{
    cmp::Ordering,
    ops::{Add, Mul, Sub},
};

/// A fraction of small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frac {
    part: i128,
    whole: i128,
}

impl Frac {
    pub(super) const ZERO: Self = Self { part: 0, whole: 1 };

    pub(super) fn new(part: i128, whole: i128) -> Self {
        let (mut l, mut r) = (part.abs(), whole.abs());
        while r != 0 {
            (l, r) = (r, l % r);
        }
        let common = l.max(1) * whole.signum();
        Self { part: part / common, whole: whole / common }
    }

    pub(super) fn of(number: i64) -> Self {
        Self::new(number.into(), 1)
    }

    fn over(self, other: Self) -> Self {
        Self::new(self.part * other.whole, self.whole * other.part)
    }
}

impl Add for Frac {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::new(self.part * other.whole + other.part * self.whole, self.whole * other.whole)
    }
}

impl Sub for Frac {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::new(self.part * other.whole - other.part * self.whole, self.whole * other.whole)
    }
}

impl Mul for Frac {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self::new(self.part * other.part, self.whole * other.whole)
    }
}

impl PartialOrd for Frac {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Frac {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.part * other.whole).cmp(&(other.part * self.whole))
    }
}

/// A queue as the rules name its fields, for one resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) parent: Option<usize>,
    pub(super) deserved: Option<i64>,
    pub(super) guarantee: i64,
    pub(super) capability: Option<i64>,
    pub(super) weight: u32,
    pub(super) priority: i32,
    /// Of a leaf.
    pub(super) request: i64,
    /// Whether it requests all that there is, also if it is no leaf.
    pub(super) wants_all: bool,
}

/// What a queue asks for, and gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) guarantee: i64,
    pub(super) entitlement: i64,
    pub(super) claim: i64,
    pub(super) guaranteed: Frac,
    pub(super) promised: Frac,
    pub(super) deserved: Frac,
}

/// Divides a total among queues, each of which comes after its parent.
pub(super) fn divide(queues: &[Queue], total: i64) -> Vec<Share> {
    let children = |of: Option<usize>| -> Vec<usize> {
        (0..queues.len()).filter(|queue| queues[*queue].parent == of).collect()
    };
    let nothing = Share {
        guarantee: 0,
        entitlement: 0,
        claim: 0,
        guaranteed: Frac::ZERO,
        promised: Frac::ZERO,
        deserved: Frac::ZERO,
    };
    let mut shares = vec![nothing; queues.len()];
    for (at, queue) in queues.iter().enumerate().rev() {
        let below = children(Some(at));
        let sum = |of: &dyn Fn(&Share) -> i64| below.iter().map(|child| of(&shares[*child])).sum();
        let limit = queue.capability.unwrap_or(i64::MAX);
        let guarantee = limit.min(queue.guarantee.max(sum(&|share| share.guarantee)));
        let number = queue.deserved.unwrap_or_else(|| sum(&|share| share.entitlement));
        let entitlement = limit.min(guarantee.max(number));
        let wanted = if below.is_empty() { queue.request } else { sum(&|share| share.claim) };
        let wanted = if queue.wants_all { total } else { wanted };
        let mut claim = limit.min(wanted.max(guarantee));
        if queue.weight == 0 {
            claim = claim.min(entitlement);
        }
        shares[at] = Share { guarantee, entitlement, claim, ..nothing };
    }
    let mut all: Vec<(Option<usize>, Frac)> = vec![(None, Frac::of(total))];
    while let Some((of, amount)) = all.pop() {
        let siblings = children(of);
        rounds(queues, &mut shares, &siblings, amount);
        all.extend(siblings.into_iter().map(|queue| (Some(queue), shares[queue].deserved)));
    }
    shares
}

/// The three rounds among siblings.
fn rounds(queues: &[Queue], shares: &mut [Share], siblings: &[usize], amount: Frac) {
    let mut left = amount;
    let mut round = |shares: &mut [Share], limits: Vec<(usize, Frac, Frac)>| {
        let claims: Vec<(Frac, Frac)> =
            limits.iter().map(|(_, limit, weight)| (*limit, *weight)).collect();
        for ((queue, ..), part) in limits.iter().zip(max_min(&claims, left)) {
            shares[*queue].deserved = shares[*queue].deserved + part;
            left = left - part;
        }
    };
    let first = siblings.iter().map(|queue| {
        let Share { guarantee, claim, .. } = shares[*queue];
        (*queue, Frac::of(claim.min(guarantee)), Frac::of(guarantee))
    });
    round(shares, first.collect());
    siblings.iter().for_each(|queue| shares[*queue].guaranteed = shares[*queue].deserved);
    let second = siblings.iter().map(|queue| {
        let Share { guarantee, entitlement, claim, deserved, .. } = shares[*queue];
        let limit = Frac::of(claim.min(entitlement)) - deserved;
        (*queue, limit, Frac::of(entitlement - guarantee))
    });
    round(shares, second.collect());
    siblings.iter().for_each(|queue| shares[*queue].promised = shares[*queue].deserved);
    let mut priorities: Vec<i32> = siblings.iter().map(|queue| queues[*queue].priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    for priority in priorities.into_iter().rev() {
        let those = siblings.iter().filter(|queue| queues[**queue].priority == priority);
        let third = those.map(|queue| {
            let Share { claim, deserved, .. } = shares[*queue];
            (*queue, Frac::of(claim) - deserved, Frac::of(queues[*queue].weight.into()))
        });
        round(shares, third.collect());
    }
}

/// A level rises from 0, and each claim gets its weight times the level, up to its limit.
fn max_min(claims: &[(Frac, Frac)], amount: Frac) -> Vec<Frac> {
    let at_level = |level: Frac| -> Vec<Frac> {
        claims.iter().map(|(limit, weight)| (*weight * level).min(*limit).max(Frac::ZERO)).collect()
    };
    let sum = |parts: &[Frac]| parts.iter().fold(Frac::ZERO, |sum, part| sum + *part);
    let rises = |(limit, weight): &&(Frac, Frac)| *weight > Frac::ZERO && *limit > Frac::ZERO;
    let mut levels: Vec<Frac> =
        claims.iter().filter(rises).map(|(limit, weight)| limit.over(*weight)).collect();
    levels.sort_unstable();
    let mut below = Frac::ZERO;
    for level in levels {
        if sum(&at_level(level)) > amount {
            // Between two levels the sum is a line.
            let (from, to) = (sum(&at_level(below)), sum(&at_level(level)));
            let part = (amount - from).over(to - from);
            return at_level(below + (level - below) * part);
        }
        below = level;
    }
    at_level(below)
}
