//! A tournament tree: the best of many scores in O(1), one changed score in O(log n).

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
        let mut tree = Self { scores, winners: vec![NONE; n_leaves] };
        for inner in (1..n_leaves).rev() {
            tree.winners[inner] = tree.play(inner);
        }
        tree
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
    }
}
