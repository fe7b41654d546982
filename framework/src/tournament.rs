//! A tournament tree: the best of many scores in O(1), one changed score in O(log n).

use std::{cmp::Reverse, collections::BinaryHeap};

/// No contestant.
const NONE: u32 = u32::MAX;

/// The largest of `n` optional scores; of equal ones, the one with the lowest position.
#[derive(Clone, Debug)]
pub(crate) struct Tournament {
    /// `i64::MIN` for a position that takes no part.
    scores: Vec<i64>,
    /// Winner of each inner match, as a position; `winners[1]` is the final.
    winners: Vec<u32>,
}

impl Tournament {
    /// A tournament among positions `0..scores.len()`; `None` takes no part.
    pub(crate) fn new(scores: impl ExactSizeIterator<Item = Option<i64>>) -> Self {
        let scores: Vec<i64> = scores.map(encode).collect();
        let n_leaves = scores.len().next_power_of_two();
        let mut winners = vec![NONE; n_leaves];
        // Level by level, the lowest first: who is left, with its score. Playing match by match takes several times as long.
        let mut left: Vec<(i64, u32)> = scores.iter().copied().zip(0..).collect();
        let mut first = n_leaves / 2;
        while first >= 1 {
            let n_matches = left.len().div_ceil(2);
            for at in 0..n_matches {
                let (one, other) = (left[2 * at], left.get(2 * at + 1));
                left[at] = other.copied().filter(|other| other.0 > one.0).unwrap_or(one);
                winners[first + at] = left[at].1;
            }
            left.truncate(n_matches);
            first /= 2;
        }
        Self { scores, winners }
    }

    /// Changes one score.
    pub(crate) fn set(&mut self, position: usize, score: Option<i64>) {
        self.scores[position] = encode(score);
        let mut inner = (position + self.winners.len()) / 2;
        while inner >= 1 {
            let winner = self.play(inner);
            self.winners[inner] = winner;
            inner /= 2;
        }
    }

    /// The winner and its score.
    pub(crate) fn best(&self) -> Option<(usize, i64)> {
        let winner = match self.scores.len() {
            0 => return None,
            1 => 0,
            _ => self.winners[1] as usize,
        };
        let score = *self.scores.get(winner)?;
        (score != i64::MIN).then_some((winner, score))
    }

    /// The winner among the positions that are wanted, and its score. Asks about no position that is worse.
    pub(crate) fn best_where(
        &self,
        mut is_wanted: impl FnMut(usize) -> bool,
    ) -> Option<(usize, i64)> {
        // Parts of the tree that have no position in common, each with its winner.
        let mut parts = BinaryHeap::new();
        parts.push(self.part(1));
        while let Some((score, Reverse(winner), top)) = parts.pop() {
            if score == i64::MIN {
                return None;
            }
            if is_wanted(winner as usize) {
                return Some((winner as usize, score));
            }
            // What is left of the part: what the winner met on its way to the top.
            let mut slot = winner as usize + self.winners.len();
            while slot > top {
                parts.push(self.part(slot ^ 1));
                slot /= 2;
            }
        }
        None
    }

    /// The part of the tree below a slot: the score of its winner, the winner, and the slot.
    fn part(&self, slot: usize) -> (i64, Reverse<u32>, usize) {
        let winner = self.contestant(slot);
        let score = self.scores.get(winner as usize).copied().unwrap_or(i64::MIN);
        (score, Reverse(winner), slot)
    }

    fn play(&self, inner: usize) -> u32 {
        let (left, right) = (self.contestant(2 * inner), self.contestant(2 * inner + 1));
        let score = |position: u32| self.scores.get(position as usize).copied().unwrap_or(i64::MIN);
        if score(right) > score(left) { right } else { left }
    }

    fn contestant(&self, slot: usize) -> u32 {
        match slot.checked_sub(self.winners.len()) {
            Some(leaf) if leaf < self.scores.len() => leaf as u32,
            Some(_) => NONE,
            None => self.winners[slot],
        }
    }
}

fn encode(score: Option<i64>) -> i64 {
    score.map_or(i64::MIN, |score| score.max(i64::MIN + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn best_is_the_largest_and_of_equals_the_first(
            first in prop::collection::vec(prop::option::of(-3_i64..4), 0..40),
            changes in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(-3_i64..4)), 0..40),
        ) {
            let mut scores = first;
            let mut tree = Tournament::new(scores.clone().into_iter());
            for (index, score) in changes {
                if !scores.is_empty() {
                    let position = index.index(scores.len());
                    scores[position] = score;
                    tree.set(position, score);
                }
                let expected = scores
                    .iter()
                    .enumerate()
                    .filter_map(|(at, score)| Some((at, (*score)?)))
                    .rev()
                    .max_by_key(|(_, score)| *score);
                prop_assert_eq!(tree.best(), expected);
            }
        }

        #[test]
        fn the_best_of_those_wanted_is_found_without_asking_about_worse(
            scores in prop::collection::vec(prop::option::of(-3_i64..4), 0..40),
            wanted in prop::collection::vec(any::<bool>(), 40),
        ) {
            let tree = Tournament::new(scores.clone().into_iter());
            let taking_part = scores.iter().enumerate().filter_map(|(at, own)| Some((at, (*own)?)));
            let mut in_order: Vec<(usize, i64)> = taking_part.collect();
            in_order.sort_by_key(|(at, score)| (Reverse(*score), *at));
            let mut asked = Vec::new();
            let best = tree.best_where(|at| {
                asked.push(at);
                wanted[at]
            });
            let expected = in_order.iter().position(|(at, _)| wanted[*at]);
            prop_assert_eq!(best, expected.map(|place| in_order[place]));
            let n_asked = expected.map_or(in_order.len(), |place| place + 1);
            let to_ask: Vec<usize> = in_order[..n_asked].iter().map(|(at, _)| *at).collect();
            prop_assert_eq!(asked, to_ask);
        }
    }
}
