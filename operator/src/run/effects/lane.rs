//! The writes of one class that wait: which is sent next, and when one that failed is tried again.
//!
//! The writes of a namespace are sent in the order in which they came. Of several namespaces, the one
//! with the fewest writes in flight is next, and one whose last write failed comes after those whose
//! did not: if many begin to fail at the same time, each costs the others little until that is known.
//!
//! A write that failed waits for its time in here and not in a worker, so it holds up no other. A
//! namespace whose writes fail one after the other, for instance because its admission webhook is dead,
//! sends one at a time until one succeeds, and all such namespaces together have a part of the workers;
//! and no namespace has all workers if there are several, so that its unanswered calls do not stop the
//! others.
//!
//! There are no calls and no clock in here: every time is an argument.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube_batch_model::name::Name;
use tokio::time::Instant;

use super::attempts::Spread;

/// After this many failures in a row the writes of a namespace are sent one at a time.
const MANY_FAILURES: u32 = 5;
/// The pause of a namespace after that many failures, doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause of a namespace: soon enough after the cause is gone, and little load before.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Identifies a write that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Its place in the order.
    number: u64,
    namespace: Name,
    /// Whether the writes of its namespace failed when it was taken.
    is_probe: bool,
}

impl Ticket {
    /// By how much the pauses of the write are shorter.
    pub(super) const fn spread(&self) -> Spread {
        Spread::of(self.number)
    }
}

/// What an attempt to send a write says about its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The API server answered, even if it rejected the write.
    Alive,
    /// There was no answer in time, or an internal error.
    Failing,
    /// Nothing was sent, the connection broke, or the API server as a whole was busy.
    None,
}

/// Writes that wait, by namespace; the empty one for objects without.
#[derive(Debug)]
pub(super) struct Lane<K> {
    /// Writes in flight at most.
    limit: usize,
    n_in_flight: usize,
    /// Those of them of namespaces whose writes failed when they were taken.
    n_probes: usize,
    n_ready: usize,
    next_number: u64,
    namespaces: BTreeMap<Name, Namespace<K>>,
    /// The namespaces that may send a write and do not fail, the next one first.
    first: BTreeSet<(Place, Name)>,
    /// Those that fail; their writes are sent in the order in which they came.
    first_probes: BTreeSet<(Place, Name)>,
    /// The namespaces whose writes wait because as many are in flight as one namespace may have.
    full: BTreeSet<Name>,
    /// Writes that are tried again later.
    later: BTreeMap<(Instant, u64), (Name, K)>,
    /// Namespaces that pause, and until when.
    pauses: BTreeSet<(Instant, Name)>,
}

#[derive(Debug)]
struct Namespace<K> {
    ready: BTreeMap<u64, K>,
    n_in_flight: usize,
    n_failures: u32,
    paused_until: Option<Instant>,
    /// Its entry in [`Lane::first`] or [`Lane::first_probes`].
    first: Option<First>,
}

/// When it is the turn of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    has_failed: bool,
    n_in_flight: usize,
    /// The number of its first write.
    number: u64,
}

/// Limits on the writes in flight of a lane, while writes of a more urgent lane wait.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    all: usize,
    /// Of single namespaces.
    each: BTreeMap<Name, usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { all: usize::MAX, each: BTreeMap::new() }
    }
}

impl Limits {
    /// Applies this limit if writes of a more urgent lane wait: to all writes if they wait for a worker,
    /// and to those of a namespace if they wait for other writes of that namespace. `of_other` are the
    /// limits of the other lane.
    pub(super) fn yield_to<K>(&mut self, other: &Lane<K>, of_other: &Self, limit: usize) {
        if other.has_ready(of_other) {
            self.all = limit;
        }
        self.each.extend(other.full.iter().map(|name| (name.clone(), limit)));
    }

    fn of(&self, namespace: &Name) -> usize {
        self.each.get(namespace).copied().unwrap_or(usize::MAX)
    }
}

/// The turn of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct First {
    place: Place,
    is_probe: bool,
}

impl<K> Default for Namespace<K> {
    fn default() -> Self {
        let ready = BTreeMap::new();
        Self { ready, n_in_flight: 0, n_failures: 0, paused_until: None, first: None }
    }
}

impl<K> Namespace<K> {
    /// Whether its writes fail one after the other.
    const fn is_failing(&self) -> bool {
        self.n_failures >= MANY_FAILURES
    }

    /// Whether its writes wait only because it has this many in flight already.
    fn is_full(&self, limit: usize) -> bool {
        !self.is_failing()
            && self.paused_until.is_none()
            && self.n_in_flight >= limit
            && !self.ready.is_empty()
    }

    /// The turn of the namespace, if it may have this many writes in flight.
    fn turn(&self, limit: usize) -> Option<First> {
        let is_probe = self.is_failing();
        let limit = if is_probe { 1 } else { limit };
        if self.paused_until.is_some() || self.n_in_flight >= limit {
            return None;
        }
        let number = *self.ready.keys().next()?;
        let (has_failed, n_in_flight) =
            if is_probe { (false, 0) } else { (self.n_failures > 0, self.n_in_flight) };
        Some(First { place: Place { has_failed, n_in_flight, number }, is_probe })
    }
}

impl<K> Lane<K> {
    /// A lane with this many writes in flight at most.
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            limit,
            n_in_flight: 0,
            n_probes: 0,
            n_ready: 0,
            next_number: 0,
            namespaces: BTreeMap::new(),
            first: BTreeSet::new(),
            first_probes: BTreeSet::new(),
            full: BTreeSet::new(),
            later: BTreeMap::new(),
            pauses: BTreeSet::new(),
        }
    }

    /// Adds a write, after all others.
    pub(super) fn push(&mut self, namespace: &Name, key: K) {
        let number = self.next_number;
        self.next_number += 1;
        self.add(number, namespace, key);
    }

    /// Takes the next write that may be sent. It is in flight until [`Self::finish`].
    pub(super) fn pop(&mut self, limits: &Limits, now: Instant) -> Option<(Ticket, K)> {
        self.advance(now);
        if self.n_in_flight >= self.limit.min(limits.all) {
            return None;
        }
        let (Place { number, .. }, name) = self.next_ready(limits).cloned()?;
        let namespace = self.namespaces.get_mut(&name).expect("a namespace with writes");
        let key = namespace.ready.remove(&number).expect("its first write");
        let is_probe = namespace.is_failing();
        namespace.n_in_flight += 1;
        self.n_in_flight += 1;
        self.n_probes += usize::from(is_probe);
        self.n_ready -= 1;
        self.refresh(&name);
        Some((Ticket { number, namespace: name, is_probe }, key))
    }

    /// The first write that may be sent if there were fewer in flight.
    fn next_ready(&self, limits: &Limits) -> Option<&(Place, Name)> {
        let may_probe = self.n_probes < (self.limit / 4).max(1);
        let probe = self.first_probes.first().filter(|_| may_probe);
        let first = self.first.iter().find(|(place, name)| place.n_in_flight < limits.of(name));
        first.into_iter().chain(probe).min_by_key(|(place, _)| place.number)
    }

    /// Records that a write was attempted.
    pub(super) fn finish(&mut self, ticket: &Ticket, sign: Sign, now: Instant) {
        let name = &ticket.namespace;
        let namespace = self.namespaces.get_mut(name).expect("the namespace of a write in flight");
        namespace.n_in_flight -= 1;
        self.n_in_flight -= 1;
        self.n_probes -= usize::from(ticket.is_probe);
        match sign {
            Sign::None => {}
            Sign::Alive => namespace.n_failures = 0,
            Sign::Failing => {
                namespace.n_failures = namespace.n_failures.saturating_add(1);
                let n_more = namespace.n_failures.saturating_sub(MANY_FAILURES);
                if namespace.is_failing() {
                    let pause = FIRST_PAUSE.saturating_mul(1 << n_more.min(10)).min(LONGEST_PAUSE);
                    namespace.paused_until = Some(now + pause);
                    self.pauses.insert((now + pause, name.clone()));
                }
            }
        }
        if sign == Sign::Alive {
            namespace.paused_until = None;
        }
        self.refresh(name);
    }

    /// Adds a write again that was taken and failed: it is sent when it is due, before those that came
    /// after it.
    pub(super) fn retry(&mut self, ticket: Ticket, key: K, due: Instant) {
        self.later.insert((due, ticket.number), (ticket.namespace, key));
    }

    /// When a write may become ready that is not now.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let later = self.later.first_key_value().map(|((due, _), _)| *due);
        let pause = self.pauses.first().map(|(until, _)| *until);
        later.into_iter().chain(pause).min()
    }

    /// Whether a write could be sent if there were fewer in flight.
    pub(super) fn has_ready(&self, limits: &Limits) -> bool {
        self.next_ready(limits).is_some()
    }

    /// The namespaces whose writes wait because as many are in flight as one namespace may have: with
    /// more than two workers it is one at most.
    pub(super) const fn full(&self) -> &BTreeSet<Name> {
        &self.full
    }

    /// Whether [`Self::pop`] would return a write.
    pub(super) fn may_pop(&self, limits: &Limits) -> bool {
        self.n_in_flight < self.limit.min(limits.all) && self.has_ready(limits)
    }

    /// Number of writes that wait, for a worker or for their time.
    pub(super) fn len(&self) -> usize {
        self.n_ready + self.later.len()
    }

    /// Number of writes that were taken and are not finished.
    pub(super) const fn n_in_flight(&self) -> usize {
        self.n_in_flight
    }

    /// Removes everything that was not taken.
    pub(super) fn clear(&mut self) {
        self.later.clear();
        self.pauses.clear();
        self.first.clear();
        self.first_probes.clear();
        self.full.clear();
        self.n_ready = 0;
        for namespace in self.namespaces.values_mut() {
            *namespace = Namespace { n_in_flight: namespace.n_in_flight, ..Namespace::default() };
        }
        self.namespaces.retain(|_, namespace| namespace.n_in_flight > 0);
    }

    fn add(&mut self, number: u64, name: &Name, key: K) {
        self.namespaces.entry(name.clone()).or_default().ready.insert(number, key);
        self.n_ready += 1;
        self.refresh(name);
    }

    /// Makes ready what is due.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, number), (name, key)) = entry.remove_entry();
            self.add(number, &name, key);
        }
        while let Some((_, name)) = self.pauses.first().filter(|(until, _)| *until <= now).cloned()
        {
            self.pauses.pop_first();
            if let Some(namespace) = self.namespaces.get_mut(&name)
                && namespace.paused_until.is_some_and(|until| until <= now)
            {
                namespace.paused_until = None;
                self.refresh(&name);
            }
        }
    }

    /// Updates whether a namespace may send its first write.
    fn refresh(&mut self, name: &Name) {
        let limit = self.limit_of_each();
        let Some(namespace) = self.namespaces.get_mut(name) else { return };
        let first = namespace.turn(limit);
        if namespace.is_full(limit) {
            self.full.insert(name.clone());
        } else {
            self.full.remove(name);
        }
        let old = std::mem::replace(&mut namespace.first, first);
        let is_idle = namespace.ready.is_empty() && namespace.n_in_flight == 0;
        let is_needless = is_idle && namespace.paused_until.is_none();
        if old != first {
            if let Some(old) = old {
                self.first_of(old.is_probe).remove(&(old.place, name.clone()));
            }
            if let Some(new) = first {
                self.first_of(new.is_probe).insert((new.place, name.clone()));
            }
        }
        if is_needless {
            self.namespaces.remove(name);
        }
    }

    const fn first_of(&mut self, are_probes: bool) -> &mut BTreeSet<(Place, Name)> {
        if are_probes { &mut self.first_probes } else { &mut self.first }
    }

    /// How many writes of one namespace are in flight at most: three quarters.
    fn limit_of_each(&self) -> usize {
        let n_for_others = if self.limit > 1 { (self.limit / 4).max(1) } else { 0 };
        self.limit - n_for_others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        lane: Lane<&'static str>,
        start: Instant,
    }

    impl World {
        fn new(limit: usize) -> Self {
            Self { lane: Lane::new(limit), start: Instant::now() }
        }

        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }

        fn push(&mut self, namespace: &str, keys: &[&'static str]) {
            keys.iter().for_each(|key| self.lane.push(&namespace.into(), key));
        }

        /// Takes everything that may be sent.
        fn pop_all(&mut self, millis: u64) -> Vec<(Ticket, &'static str)> {
            let now = self.at(millis);
            std::iter::from_fn(|| self.lane.pop(&Limits::default(), now)).collect()
        }

        fn keys(&mut self, millis: u64) -> Vec<&'static str> {
            self.pop_all(millis).into_iter().map(|(_, key)| key).collect()
        }
    }

    #[test]
    fn writes_of_a_namespace_are_sent_in_order_and_namespaces_have_turns() {
        let mut world = World::new(4);
        world.push("a", &["1", "2"]);
        world.push("b", &["3"]);
        world.push("a", &["4"]);
        assert_eq!(world.keys(0), ["1", "3", "2", "4"]);
        assert_eq!((world.lane.len(), world.lane.n_in_flight()), (0, 4));
    }

    #[test]
    fn namespaces_that_begin_to_fail_at_the_same_time_delay_others_by_few_seconds() {
        let mut world = World::new(32);
        for n in 0..50 {
            world.push(&format!("fails-{n}"), &["no answer"; 100]);
        }
        world.push("works", &["answer"; 100]);
        let mut in_flight = BTreeMap::new();
        let (mut millis, mut n_answers) = (0, 0);
        while n_answers < 100 {
            for (ticket, key) in world.pop_all(millis) {
                let duration = if key == "answer" { 10 } else { 5_000 };
                in_flight.insert((millis + duration, ticket.number), (ticket, key));
            }
            let due = world.lane.next_due().map(|due| (due - world.start).as_millis() as u64);
            let first = in_flight.keys().next().map(|(end, _)| *end);
            millis = first.into_iter().chain(due).min().expect("something happens later");
            while let Some(entry) = in_flight.first_entry().filter(|e| e.key().0 <= millis) {
                let (ticket, key) = entry.remove();
                let now = world.at(millis);
                let is_answer = key == "answer";
                let sign = if is_answer { Sign::Alive } else { Sign::Failing };
                world.lane.finish(&ticket, sign, now);
                n_answers += usize::from(is_answer);
            }
        }
        // 50 namespaces need two rounds of 32 calls to show that they do not answer.
        assert!(millis <= 11_000, "{millis} ms");
    }

    #[test]
    fn one_namespace_does_not_have_all_workers() {
        let mut world = World::new(8);
        world.push("a", &["a"; 20]);
        world.push("b", &["b"]);
        let taken = world.pop_all(0);
        assert_eq!(taken.iter().filter(|(_, key)| *key == "a").count(), 6);
        assert_eq!(taken.iter().filter(|(_, key)| *key == "b").count(), 1);
        assert!(!world.lane.has_ready(&Limits::default()));
        let now = world.at(1);
        world.lane.finish(&taken[0].0, Sign::Alive, now);
        assert_eq!(world.keys(1), ["a"]);
    }

    #[test]
    fn a_write_that_failed_waits_for_its_time_and_holds_up_no_other() {
        let mut world = World::new(3);
        world.push("a", &["1", "2"]);
        let (ticket, key) = world.pop_all(0).remove(0);
        let (now, due) = (world.at(0), world.at(100));
        world.lane.finish(&ticket, Sign::None, now);
        world.lane.retry(ticket, key, due);
        world.push("a", &["3"]);
        assert_eq!(world.lane.next_due(), Some(due));
        assert_eq!(world.lane.len(), 2);
        assert_eq!(world.keys(100), ["1"], "before what came later");
        assert_eq!(world.lane.next_due(), None);
    }

    #[test]
    fn a_namespace_that_fails_sends_one_write_at_a_time_until_one_is_answered() {
        let mut world = World::new(8);
        world.push("a", &["a"; 20]);
        for (ticket, _) in world.pop_all(0) {
            let now = world.at(0);
            world.lane.finish(&ticket, Sign::Failing, now);
        }
        assert_eq!(world.keys(0), Vec::<&str>::new());
        world.push("b", &["b"]);
        assert_eq!(world.keys(0), ["b"], "others go on");
        assert_eq!(world.lane.next_due(), Some(world.at(500)), "of the fifth failure");
        // The pause after the sixth is 1 s, then it doubles up to 5 s.
        let mut at = 1_000;
        for pause in [2_000, 4_000, 5_000, 5_000] {
            assert!(world.keys(at - 1).is_empty());
            let probe = world.pop_all(at);
            assert_eq!(probe.len(), 1);
            let now = world.at(at);
            world.lane.finish(&probe[0].0, Sign::Failing, now);
            at += pause;
        }
        let probe = world.pop_all(at);
        let now = world.at(at);
        world.lane.finish(&probe[0].0, Sign::Alive, now);
        assert_eq!(world.keys(at).len(), 6);
    }

    #[test]
    fn what_was_taken_is_still_in_flight_after_everything_else_is_removed() {
        let mut world = World::new(3);
        world.push("a", &["1", "2", "3"]);
        let taken = world.pop_all(0);
        world.lane.clear();
        assert_eq!((world.lane.len(), world.lane.n_in_flight()), (0, 2));
        for (ticket, _) in &taken {
            let now = world.at(0);
            world.lane.finish(ticket, Sign::Failing, now);
        }
        assert_eq!(world.lane.n_in_flight(), 0);
        assert!(world.lane.namespaces.is_empty());
        world.push("a", &["4"]);
        assert_eq!(world.keys(0), ["4"]);
    }

    #[test]
    fn nothing_is_kept_of_namespaces_that_are_idle() {
        let mut world = World::new(1);
        world.push("a", &["1"; 6]);
        for n in 0..6 {
            let (ticket, _) = world.pop_all(n * 10_000).remove(0);
            let now = world.at(n * 10_000);
            world.lane.finish(&ticket, Sign::Failing, now);
        }
        assert!(world.keys(90_000).is_empty());
        assert!(world.lane.namespaces.is_empty() && world.lane.pauses.is_empty());
    }

    #[test]
    fn all_namespaces_that_fail_have_a_quarter_of_the_workers() {
        let mut world = World::new(8);
        let names: Vec<String> = (0..20).map(|n| format!("fails-{n}")).collect();
        for name in &names {
            world.push(name, &["fails"; 6]);
            let now = world.at(0);
            for _ in 0..MANY_FAILURES {
                let (ticket, _) = world.lane.pop(&Limits::default(), now).expect("a write");
                assert_eq!(&*ticket.namespace, &**name);
                world.lane.finish(&ticket, Sign::Failing, now);
            }
        }
        // Their pauses are over.
        let probes = world.pop_all(1_000);
        assert_eq!(probes.len(), 2);
        assert!(!world.lane.has_ready(&Limits::default()));
        world.push("works", &["works"; 6]);
        assert_eq!(world.keys(1_000), ["works"; 6], "although they came later");
        let now = world.at(1_000);
        world.lane.finish(&probes[0].0, Sign::Failing, now);
        assert_eq!(world.keys(1_000), ["fails"], "the next one");
        world.lane.finish(&probes[1].0, Sign::Alive, now);
        let sent = world.pop_all(1_000);
        assert_eq!(sent.len(), 1, "{sent:?}");
    }
}
