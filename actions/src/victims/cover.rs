//! Which items to take so that their gains cover a need, at the lowest cost.

use std::cmp::Reverse;

use jiff::Timestamp;

/// How large a table may be, in cells. Above it, the items with the largest gains are taken first until the
/// rest is small enough. Guessed: some milliseconds.
const MAX_CELLS: usize = 2_000_000;

/// Something that can be taken once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// What it adds to the cover; at least 1.
    pub(super) gain: usize,
    /// How many disruption budgets it violates.
    pub(super) n_violating: usize,
    /// How many Jobs of `batch` fail by it.
    pub(super) n_failing_jobs: usize,
    /// What is lost with it.
    pub(super) amount: i64,
    /// When it started, if that counts.
    pub(super) start: Option<Timestamp>,
}

impl Item {
    fn start(&self) -> Start {
        self.start.map_or(Start::Never, Start::At)
    }
}

/// The cost of some items, compared in this order: violations, Jobs that fail, number of items, amount, and then
/// the start of the first, the later the better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    pub(super) n_violating: usize,
    pub(super) n_failing_jobs: usize,
    pub(super) n_items: usize,
    pub(super) amount: i64,
    pub(super) first_start: Reverse<Start>,
}

/// `Never` is after every time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Start {
    At(Timestamp),
    Never,
}

impl Cost {
    const NOTHING: Self = Self {
        n_violating: 0,
        n_failing_jobs: 0,
        n_items: 0,
        amount: 0,
        first_start: Reverse(Start::Never),
    };

    fn with(self, item: &Item) -> Self {
        Self {
            n_violating: self.n_violating + item.n_violating,
            n_failing_jobs: self.n_failing_jobs + item.n_failing_jobs,
            n_items: self.n_items + 1,
            amount: self.amount + item.amount,
            first_start: Reverse(self.first_start.0.min(item.start())),
        }
    }
}

/// The items with the lowest cost: what they cost, and their positions, ascending; `None` if no items
/// suffice. Of equal ones, those that come first.
///
/// `settle` says what some items cost in the end, from the sum of their gains and the sum of their costs;
/// `None` if they do not suffice. Items whose gains add up to `need` suffice, and the final cost is not less
/// for a larger sum. The result is exact unless the table would exceed [`MAX_CELLS`]; but of sets with
/// different sums and the same final cost, the start does not decide.
pub(super) fn cover(
    items: &[Item],
    need: usize,
    settle: impl Fn(usize, Cost) -> Option<Cost>,
) -> Option<(Cost, Vec<usize>)> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by_key(|at| {
        let Item { gain, n_violating, n_failing_jobs, amount, .. } = items[*at];
        (n_violating, n_failing_jobs, Reverse(gain), amount, Reverse(items[*at].start()))
    });
    let mut taken = Vec::new();
    let (mut gained, mut cost) = (0, Cost::NOTHING);
    loop {
        let left = need - gained;
        let useful = useful(items, &order, left);
        let most = useful.iter().map(|at| items[*at].gain).max().unwrap_or(0);
        if useful.len() * (left + most) <= MAX_CELLS || left == 0 {
            let settle = |sum: usize, cost: Cost| settle(gained + sum, cost);
            let (cost, exact) = exact_cover(items, &useful, left, cost, &settle)?;
            taken.extend(exact);
            taken.sort_unstable();
            return Some((cost, taken));
        }
        let next = order.remove(0);
        gained = need.min(gained + items[next].gain);
        cost = cost.with(&items[next]);
        taken.push(next);
    }
}

/// Those items that may be part of the best cover: of equal ones no more than are needed.
fn useful(items: &[Item], order: &[usize], need: usize) -> Vec<usize> {
    let mut useful = Vec::new();
    let (mut last, mut n_equal) = (None, 0);
    for at in order {
        let Item { gain, n_violating, n_failing_jobs, amount, .. } = items[*at];
        let kind = (gain, n_violating, n_failing_jobs, amount);
        n_equal = if last == Some(kind) { n_equal + 1 } else { 1 };
        last = Some(kind);
        if (n_equal - 1) * gain < need {
            useful.push(*at);
        }
    }
    useful
}

/// By dynamic programming over the sum of gains: the items are few, and their costs add up.
fn exact_cover(
    items: &[Item],
    useful: &[usize],
    need: usize,
    cost: Cost,
    settle: &impl Fn(usize, Cost) -> Option<Cost>,
) -> Option<(Cost, Vec<usize>)> {
    let most = useful.iter().map(|at| items[*at].gain).max().unwrap_or(0);
    // A best cover without any one of its items is none.
    let n_sums = need + most.max(1);
    let mut lowest: Vec<Option<Cost>> = vec![None; n_sums];
    lowest[0] = Some(cost);
    let mut is_taken = vec![false; useful.len() * n_sums];
    for (row, at) in useful.iter().enumerate() {
        let item = &items[*at];
        for sum in (item.gain..n_sums).rev() {
            let Some(before) = lowest[sum - item.gain] else { continue };
            let cost = before.with(item);
            if lowest[sum].is_none_or(|known| cost < known) {
                lowest[sum] = Some(cost);
                is_taken[row * n_sums + sum] = true;
            }
        }
    }
    let settled = (0..n_sums).filter_map(|sum| Some((settle(sum, lowest[sum]?)?, sum)));
    let (cost, mut sum) = settled.min()?;
    let mut taken = Vec::new();
    for (row, at) in useful.iter().enumerate().rev() {
        if is_taken[row * n_sums + sum] {
            taken.push(*at);
            sum -= items[*at].gain;
        }
    }
    debug_assert_eq!(sum, 0, "the items taken add up to the sum");
    Some((cost, taken))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn item(gain: usize, n_violating: usize, amount: i64, start: Option<i64>) -> Item {
        let start = start.map(|second| Timestamp::from_second(second).expect("a time"));
        Item { gain, n_violating, n_failing_jobs: 0, amount, start }
    }

    fn cost(
        items: &[Item],
        taken: &[usize],
        settle: impl Fn(usize, Cost) -> Option<Cost>,
    ) -> Option<Cost> {
        let cost = taken.iter().fold(Cost::NOTHING, |cost, at| cost.with(&items[*at]));
        settle(taken.iter().map(|at| items[*at].gain).sum(), cost)
    }

    /// The items that cover a need at the lowest cost, all of which counts.
    fn plain(items: &[Item], need: usize) -> Option<Vec<usize>> {
        cover(items, need, |sum, cost| (sum >= need).then_some(cost)).map(|(_, taken)| taken)
    }

    #[test]
    fn one_large_item_is_better_than_several_small_ones() {
        let items = [item(8, 0, 8, None), item(8, 0, 8, None), item(64, 0, 64, None)];
        assert_eq!(plain(&items, 8), Some(vec![0]));
        assert_eq!(plain(&items, 9), Some(vec![2]));
        assert_eq!(plain(&items, 80), Some(vec![0, 1, 2]));
        assert_eq!(plain(&items, 81), None);
    }

    #[test]
    fn the_youngest_of_equal_ones_is_taken() {
        let items = [item(8, 0, 8, Some(5)), item(8, 0, 8, Some(9)), item(8, 0, 8, Some(7))];
        assert_eq!(plain(&items, 8), Some(vec![1]));
        assert_eq!(plain(&items, 16), Some(vec![1, 2]));
    }

    proptest! {
        /// The gains may fall short by `spare`, each at the cost of a violation; an excess reduces the
        /// amount, down to `least`.
        #[test]
        fn the_cover_has_the_lowest_cost(
            items in prop::collection::vec(
                (1_usize..6, 0_usize..2, 0_usize..2, 1_i64..8, 0_i64..5),
                1..9,
            ),
            need in 1_usize..25,
            spare in 0_usize..4,
            most in 0_usize..4,
            least in prop_oneof![Just(0_i64), 0_i64..30],
        ) {
            let items: Vec<Item> = items
                .into_iter()
                .map(|(gain, n_violating, n_failing_jobs, amount, start)| {
                    let start = (start > 0 && least == 0).then_some(start);
                    Item { n_failing_jobs, ..item(gain, n_violating, amount, start) }
                })
                .collect();
            let settle = |sum: usize, cost: Cost| {
                let missing = need.saturating_sub(sum);
                let excess = sum.saturating_sub(need).min(most) as i64;
                let amount = (cost.amount - excess).max(if least > 0 { least } else { i64::MIN });
                let n_violating = cost.n_violating + missing;
                (missing <= spare).then_some(Cost { n_violating, amount, ..cost })
            };
            let subsets = (0_u32..1 << items.len()).map(|bits| -> Vec<usize> {
                (0..items.len()).filter(|at| bits & (1 << at) != 0).collect()
            });
            // Nothing in it is superfluous.
            let covers = subsets.filter(|taken| {
                let gain: usize = taken.iter().map(|at| items[*at].gain).sum();
                taken.iter().all(|at| gain - items[*at].gain < need)
            });
            let lowest = covers.filter_map(|taken| cost(&items, &taken, settle)).min();
            let chosen = cover(&items, need, settle);
            prop_assert_eq!(chosen.as_ref().map(|(cost, _)| *cost), lowest);
            prop_assert_eq!(chosen.and_then(|(_, taken)| cost(&items, &taken, settle)), lowest);
        }
    }
}
