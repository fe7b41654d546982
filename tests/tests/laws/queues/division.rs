//! What queues deserve of one resource, against the rules in exact fractions.

use kube_batch_model::{
    column::{Column, Ordinal, QueueIdx},
    division::{Part, Wish, divide},
    fair_share::fair_shares,
    name::Name,
    queue_tree::QueueTree,
};
use kube_batch_tests::{random_cluster::Rng, seeds::seeds};

use super::exact::{self, Frac, Queue};

/// Trees of each law.
const N_TREES: u64 = 20_000;

/// A tree of queues, each after its parent, and how much there is.
fn random(rng: &mut Rng) -> (Vec<Queue>, i64) {
    let n_queues = 1 + rng.below(12) as usize;
    let largest = [6, 40, 1_000][rng.below(3) as usize];
    let has_numbers = rng.below(4) > 0;
    let mut queues: Vec<Queue> = Vec::new();
    for at in 0..n_queues {
        let number =
            |rng: &mut Rng| (has_numbers && rng.below(3) == 0).then(|| rng.below(largest) as i64);
        let parent = (at > 0 && rng.below(3) > 0).then(|| rng.below(at as u64) as usize);
        queues.push(Queue {
            parent,
            deserved: number(rng),
            guarantee: number(rng).unwrap_or(0) / 2,
            capability: number(rng),
            weight: rng.below(5) as u32,
            priority: if has_numbers { rng.below(3) as i32 - 1 } else { 0 },
            request: rng.below(largest) as i64,
            wants_all: false,
        });
    }
    (queues, rng.below(2 * largest) as i64)
}

fn tree(queues: &[Queue]) -> QueueTree {
    let name = |at: usize| Name::from(&*format!("q{at}"));
    let parents: Column<QueueIdx, Option<Name>> =
        queues.iter().map(|queue| queue.parent.map(name)).collect();
    QueueTree::new(
        &parents,
        |wanted| (0..queues.len()).find(|at| name(*at) == *wanted).map(QueueIdx::new),
        None,
    )
}

fn wishes(queues: &[Queue]) -> Column<QueueIdx, Wish> {
    let wishes = queues.iter().map(|queue| {
        let Queue { deserved, guarantee, capability, weight, priority, request, .. } = *queue;
        Wish { deserved, guarantee, capability, weight, priority, request }
    });
    wishes.collect()
}

fn divided(queues: &[Queue], total: i64) -> Vec<Part> {
    divide(&tree(queues), &wishes(queues), total).values().copied().collect()
}

fn children(queues: &[Queue], of: Option<usize>) -> Vec<usize> {
    (0..queues.len()).filter(|queue| queues[*queue].parent == of).collect()
}

fn depth(queues: &[Queue], queue: usize) -> i64 {
    1 + queues[queue].parent.map_or(0, |parent| depth(queues, parent))
}

/// Each level rounds to whole units.
#[test]
fn queues_deserve_what_the_rules_say_within_one_unit_a_level() {
    for seed in seeds(N_TREES) {
        let (queues, total) = random(&mut Rng::new(seed));
        let parts = divided(&queues, total);
        for (at, (part, exact)) in parts.iter().zip(exact::divide(&queues, total)).enumerate() {
            let asked = (part.guarantee, part.entitlement, part.claim);
            assert_eq!(
                asked,
                (exact.guarantee, exact.entitlement, exact.claim),
                "seed {seed}, q{at}"
            );
            let most = Frac::of(depth(&queues, at));
            for (own, exact) in [
                (part.guaranteed, exact.guaranteed),
                (part.promised, exact.promised),
                (part.deserved, exact.deserved),
            ] {
                let own = Frac::of(own);
                let error = if own > exact { own - exact } else { exact - own };
                assert!(error <= most, "seed {seed}, q{at}: {part:?}, {exact:?}");
            }
        }
    }
}

/// A fair share is what the division gives if some leaves, and the queue itself, want all that there is; each level rounds
/// down.
#[test]
fn fair_shares_are_what_the_rules_say_rounded_down() {
    let mut n_idle = 0;
    for seed in seeds(N_TREES) {
        let rng = &mut Rng::new(seed);
        let (mut queues, total) = random(rng);
        let has_jobs: Vec<bool> = queues.iter().map(|_| rng.below(2) == 0).collect();
        let tree = tree(&queues);
        let shares = fair_shares(&tree, wishes(&queues), |queue| has_jobs[queue.at()], total);
        for (queue, has_jobs) in queues.iter_mut().zip(&has_jobs) {
            queue.request = if *has_jobs { total } else { 0 };
        }
        for (at, share) in shares.values().enumerate() {
            n_idle += usize::from(!has_jobs[at] && *share > 0);
            queues[at].wants_all = true;
            let exact = exact::divide(&queues, total)[at].deserved;
            queues[at].wants_all = false;
            let share = Frac::of(*share);
            let is_near = share <= exact && exact - share < Frac::of(depth(&queues, at));
            assert!(is_near, "seed {seed}, q{at}: {share:?} for {exact:?}");
        }
    }
    assert!(n_idle > 1_000 || seeds(N_TREES).len() < 1_000, "queues without jobs have none");
}

/// The axioms: bounds, nothing is left while somebody claims more, and the rounds come one after the other.
#[test]
fn nothing_is_left_while_a_queue_claims_more() {
    for seed in seeds(N_TREES) {
        let (queues, total) = random(&mut Rng::new(seed));
        let parts = divided(&queues, total);
        let levels = (0..queues.len()).map(Some).chain([None]);
        for of in levels {
            let siblings = children(&queues, of);
            let amount = of.map_or(total, |of| parts[of].deserved);
            let sum = |of: &dyn Fn(&Part) -> i64| -> i64 {
                siblings.iter().map(|queue| of(&parts[*queue])).sum()
            };
            // Of weight 0, a queue claims nothing by weight.
            let claimed = sum(&|part| part.claim);
            if !siblings.is_empty() {
                assert_eq!(sum(&|part| part.deserved), amount.min(claimed), "seed {seed}, {of:?}");
            }
            for queue in &siblings {
                let Part { guarantee, entitlement, claim, guaranteed, promised, deserved } =
                    parts[*queue];
                assert!(0 <= guaranteed && guaranteed <= promised, "seed {seed}, q{queue}");
                assert!(promised <= deserved && deserved <= claim, "seed {seed}, q{queue}");
                assert!(guaranteed <= guarantee, "seed {seed}, q{queue}");
                assert!(promised <= entitlement.max(guarantee), "seed {seed}, q{queue}");
                let kept = sum(&|part| part.guarantee.min(part.claim));
                if kept <= amount {
                    assert_eq!(guaranteed, guarantee.min(claim), "seed {seed}, q{queue}");
                }
                let owed = sum(&|part| part.entitlement.min(part.claim));
                if owed <= amount {
                    assert_eq!(promised, entitlement.min(claim), "seed {seed}, q{queue}");
                }
                for other in &siblings {
                    let is_behind = queues[*other].priority < queues[*queue].priority;
                    let gets_more = parts[*other].deserved > parts[*other].promised;
                    assert!(
                        !(is_behind && gets_more && deserved < claim && queues[*queue].weight > 0),
                        "seed {seed}: q{other} of lower priority than q{queue} gets more than it is promised"
                    );
                }
            }
        }
    }
}

/// What a queue deserves never grows with the claim of another leaf, and never falls with the total or with its own weight,
/// units aside.
#[test]
fn what_a_queue_deserves_depends_on_the_others_as_it_should() {
    for seed in seeds(N_TREES) {
        let mut rng = Rng::new(seed);
        let (queues, total) = random(&mut rng);
        let before = exact::divide(&queues, total);
        let more = exact::divide(&queues, total + 1 + rng.below(50) as i64);
        for (at, (before, more)) in before.iter().zip(&more).enumerate() {
            assert!(more.deserved >= before.deserved, "seed {seed}, q{at}: a larger total");
        }
        let chosen = rng.below(queues.len() as u64) as usize;
        let mut heavier = queues.clone();
        heavier[chosen].weight += 1 + rng.below(3) as u32;
        let after = exact::divide(&heavier, total);
        assert!(after[chosen].deserved >= before[chosen].deserved, "seed {seed}: a larger weight");
        if children(&queues, Some(chosen)).is_empty() {
            let mut hungrier = queues.clone();
            hungrier[chosen].request += 1 + rng.below(20) as i64;
            let after = exact::divide(&hungrier, total);
            for at in 0..queues.len() {
                let is_above = std::iter::successors(Some(chosen), |queue| queues[*queue].parent)
                    .any(|above| above == at);
                let is_not_more = after[at].deserved <= before[at].deserved;
                assert!(is_above || is_not_more, "seed {seed}, q{at}: q{chosen} requests more");
            }
        }
    }
}

/// In another order, queues deserve the same but for the units that do not divide.
#[test]
fn the_order_of_the_queues_decides_about_single_units_only() {
    for seed in seeds(N_TREES) {
        let mut rng = Rng::new(seed);
        let (queues, total) = random(&mut rng);
        let mut order: Vec<usize> = (0..queues.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        let place = |queue: usize| order.iter().position(|own| *own == queue);
        let shuffled: Vec<Queue> = order
            .iter()
            .map(|own| Queue {
                parent: queues[*own].parent.and_then(place),
                ..queues[*own].clone()
            })
            .collect();
        let (parts, again) = (divided(&queues, total), divided(&shuffled, total));
        for (at, part) in parts.iter().enumerate() {
            let other = &again[place(at).expect("it is in the order")];
            let differs_by = (part.deserved - other.deserved).abs();
            assert!(differs_by <= 2 * depth(&queues, at), "seed {seed}, q{at}");
        }
    }
}

/// A parent with one child changes nothing.
#[test]
fn a_queue_between_two_others_changes_nothing() {
    for seed in seeds(N_TREES) {
        let mut rng = Rng::new(seed);
        let (mut queues, total) = random(&mut rng);
        let before = divided(&queues, total);
        let chosen = rng.below(queues.len() as u64) as usize;
        let Queue { parent, weight, priority, .. } = queues[chosen];
        // It stands for its child among the siblings.
        let between = Queue { parent, weight, priority, ..Queue::default() };
        queues.push(between);
        queues[chosen].parent = Some(queues.len() - 1);
        let after = divided(&queues, total);
        for at in 0..before.len() {
            let differs_by = (before[at].deserved - after[at].deserved).abs();
            // Units go to the older queue, and the new one is the youngest.
            assert!(differs_by <= depth(&queues, at), "seed {seed}, q{at}");
        }
    }
}
