//! What one replica knows of the lock, and what follows from it: no calls, no clock.
//!
//! The caller reads the Lease, passes it to [`Lock::observe`], and asks [`Lock::may_take`], or, while it
//! leads, [`Lock::is_ours`]. If so, it writes [`Lock::next_record`], and passes the answer to
//! [`Lock::record_renewal`]. Every time is an argument. Those of other replicas are measured on the
//! monotonic clock; the time of day is for other readers, and for what must not last too long.
//!
//! client-go's `tools/leaderelection` does the same in `tryAcquireOrRenew`. Different here: it takes a
//! Lease that was deleted or emptied at once, believes every record with its own identity, and compares records,
//! not versions: to it a Lease has not changed if another replica held it between two reads and someone then
//! stored the old record again.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use tokio::time::Instant;

use crate::run::{clock::Moment, term::Renewed};

/// Periods of leader election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Periods {
    /// How long the lock is valid without renewal; then another replica may take it.
    pub(crate) lease: Duration,
    /// How long this replica leads without renewal. Shorter than `lease`.
    pub(crate) renew_deadline: Duration,
    /// Pause between attempts to take or renew the lock.
    pub(crate) retry: Duration,
}

impl Periods {
    /// How long before the lock expires for others this replica stops, at least: in this time, what it has sent is done.
    pub(crate) const fn margin(&self) -> Duration {
        self.lease.saturating_sub(self.renew_deadline)
    }
}

/// What was read of the lock last.
#[derive(Debug)]
struct Observed {
    /// The last record that said who holds the lock.
    record: LeaseSpec,
    /// The resource version of the Lease with it. It tells an old record that someone stored again from one that
    /// was there all the time.
    version: Option<String>,
    /// Whether it is still there.
    is_stored: bool,
    /// When it was first read so.
    since: Instant,
}

/// One replica's view of the lock.
#[derive(Debug)]
pub(crate) struct Lock {
    identity: String,
    periods: Periods,
    observed: Option<Observed>,
    /// The last write of this replica that was stored, and those after it that may be: the renew time in
    /// each, and when it was sent. None are left when another record was read.
    sent: Vec<(Option<MicroTime>, Moment)>,
    /// When the last write that took or renewed the lock was sent.
    renewed: Option<Moment>,
}

impl Lock {
    /// A lock that this replica has not read yet.
    pub(crate) const fn new(identity: String, periods: Periods) -> Self {
        Self { identity, periods, observed: None, sent: Vec::new(), renewed: None }
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    pub(crate) const fn periods(&self) -> &Periods {
        &self.periods
    }

    /// Records the Lease that was read at `now`; `None` if there is none.
    ///
    /// A Lease that was deleted, or emptied by anyone but its holder, does not stop that holder: it may
    /// go on until it reads the Lease. So the last record that named it still counts.
    pub(crate) fn observe(&mut self, lease: Option<&Lease>, now: Moment) {
        let says_who = |record: &&LeaseSpec| !holder(record).is_empty() || is_released(record);
        let version = lease.and_then(|lease| lease.metadata.resource_version.clone());
        let Some(record) = lease.and_then(|lease| lease.spec.as_ref()).filter(says_who) else {
            if let Some(last) = self.observed.as_mut().filter(|last| last.is_stored) {
                (last.is_stored, last.since) = (false, now.monotonic);
            }
            return;
        };
        let is_known = |last: &Observed| last.is_stored && last.version == version;
        if self.observed.as_ref().is_some_and(is_known) {
            return;
        }
        match self.row_of(record) {
            Some(row) => {
                self.sent.drain(..row);
                self.renewed = Some(self.sent[0].1);
            }
            None => self.sent.clear(),
        }
        let (record, since) = (record.clone(), now.monotonic);
        self.observed = Some(Observed { record, version, is_stored: true, since });
    }

    /// The replica that held the lock when it was read last, if another does.
    pub(crate) fn other_holder(&self) -> Option<&str> {
        let holder = holder(&self.observed.as_ref()?.record);
        (!holder.is_empty() && holder != self.identity).then_some(holder)
    }

    /// Whether the Lease was deleted, or emptied by anyone but its holder.
    pub(crate) fn is_gone(&self) -> bool {
        self.observed.as_ref().is_some_and(|observed| !observed.is_stored)
    }

    /// Whether the lock is free, held by this replica, or expired.
    ///
    /// A foreign lock expires when it has not been seen to change for its duration. The times
    /// within the record are not compared: clocks of two machines differ.
    pub(crate) fn may_take(&self, now: Moment) -> bool {
        let Some(Observed { record, is_stored, since, .. }) = &self.observed else { return true };
        let seconds = record.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let lease = seconds.map_or(self.periods.lease, Duration::from_secs);
        let is_free = if *is_stored {
            is_released(record) || self.is_ours(record)
        } else {
            // For as long nobody else can have taken it before it was deleted.
            let row = self.row_of(record);
            row.is_some_and(|row| now.since(self.sent[row].1) <= self.periods.lease)
        };
        is_free || now.monotonic.saturating_duration_since(*since) > lease
    }

    /// Whether this replica wrote the record, since it last read that of another.
    ///
    /// A record with our identity that we did not write now, such as one from a backup, is a foreign one.
    pub(crate) fn is_ours(&self, record: &LeaseSpec) -> bool {
        self.row_of(record).is_some()
    }

    /// The row in `sent` of the write that stored this record. Of two with the same time, which a clock
    /// that was set back shows twice, the earlier one.
    fn row_of(&self, record: &LeaseSpec) -> Option<usize> {
        let mut sent = self.sent.iter();
        let row = sent.position(|(renew_time, _)| *renew_time == record.renew_time);
        row.filter(|_| holder(record) == self.identity)
    }

    /// The record that takes or renews the lock, which is to be sent at `now`.
    pub(crate) fn next_record(&mut self, now: Moment) -> LeaseSpec {
        let last = self.observed.as_ref().map(|observed| &observed.record);
        let ours = last.filter(|record| self.is_ours(record));
        let transitions = last.and_then(|record| record.lease_transitions).unwrap_or(0);
        let is_transition = last.is_some() && ours.is_none();
        let renew_time = micro_time(now.wall);
        let record = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.periods.lease.as_secs().max(1)).ok(),
            acquire_time: ours
                .and_then(|record| record.acquire_time.clone())
                .or_else(|| renew_time.clone()),
            renew_time: renew_time.clone(),
            lease_transitions: Some(transitions.saturating_add(i32::from(is_transition))),
            ..LeaseSpec::default()
        };
        // What has not been stored in this time never will be: someone else has written meanwhile, or the
        // lock has expired.
        let is_recent = |sent: Moment| sent.monotonic + self.periods.lease >= now.monotonic;
        self.sent.retain(|(_, sent)| is_recent(*sent));
        self.sent.push((renew_time, now));
        record
    }

    /// Records that the server accepted a write of this replica: what it answered with, when the
    /// write was sent, and when the answer came.
    pub(crate) fn record_renewal(&mut self, lease: &Lease, sent: Moment, now: Moment) {
        let record = lease.spec.clone().unwrap_or_default();
        self.sent = vec![(record.renew_time.clone(), sent)];
        let version = lease.metadata.resource_version.clone();
        let since = now.monotonic;
        self.observed = Some(Observed { record, version, is_stored: true, since });
        self.renewed = Some(sent);
    }

    /// The lease of this replica, if it leads.
    ///
    /// Other replicas see the record change when the server stores it, at the earliest when it was
    /// sent. So this lease ends `lease - renew_deadline` or more before any of them may take the
    /// lock, however long the answer took.
    pub(crate) fn renewed(&self) -> Option<Renewed> {
        self.renewed.map(|at| Renewed { at, lasts: self.periods.renew_deadline })
    }

    /// Records that this replica no longer leads.
    pub(crate) const fn lost(&mut self) {
        self.renewed = None;
    }

    /// The record that releases the lock, if this is the one to release; `None` if it is not ours.
    pub(crate) fn released_record(&self, record: &LeaseSpec, now: Timestamp) -> Option<LeaseSpec> {
        self.is_ours(record).then(|| LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(RELEASED),
            renew_time: micro_time(now),
            ..record.clone()
        })
    }
}

/// The duration, in seconds, in a record that its holder has released. As client-go writes it.
const RELEASED: i32 = 1;

/// Whether the holder gave the lock back. One that someone else emptied keeps its duration.
fn is_released(record: &LeaseSpec) -> bool {
    holder(record).is_empty() && record.lease_duration_seconds == Some(RELEASED)
}

fn holder(record: &LeaseSpec) -> &str {
    record.holder_identity.as_deref().unwrap_or_default()
}

/// A time as the server stores it, so that it is found again.
fn micro_time(time: Timestamp) -> Option<MicroTime> {
    Timestamp::from_microsecond(time.as_microsecond()).ok().map(MicroTime)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    const PERIODS: Periods = Periods {
        lease: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn lock() -> Lock {
        Lock::new("me".to_owned(), PERIODS)
    }

    fn wall(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    /// A record that `holder` renewed at `second` of its own clock.
    fn held_by(holder: &str, second: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(wall(0))),
            renew_time: Some(MicroTime(wall(second))),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    /// The Lease with a record, at a version that other records do not have.
    fn lease(record: &LeaseSpec) -> Lease {
        stored_at(&format!("{record:?}"), record)
    }

    fn stored_at(version: &str, record: &LeaseSpec) -> Lease {
        let resource_version = Some(version.to_owned());
        let metadata = ObjectMeta { resource_version, ..ObjectMeta::default() };
        Lease { metadata, spec: Some(record.clone()) }
    }

    fn start() -> Moment {
        Moment { monotonic: Instant::now(), wall: wall(0) }
    }

    fn after(start: Moment, seconds: u64) -> Moment {
        let passed = Duration::from_secs(seconds);
        Moment { monotonic: start.monotonic + passed, wall: start.wall + passed }
    }

    /// A record that released the lock.
    fn released() -> LeaseSpec {
        LeaseSpec { lease_duration_seconds: Some(1), ..held_by("", 1) }
    }

    #[test]
    fn a_lock_without_holder_may_be_taken_by_who_has_seen_none() {
        let start = start();
        let free = [None, Some(LeaseSpec::default()), Some(held_by("", 0)), Some(released())];
        for record in free {
            let mut lock = lock();
            lock.observe(record.as_ref().map(lease).as_ref(), start);
            assert!(lock.may_take(start), "{record:?}");
        }
    }

    #[test]
    fn a_foreign_holder_counts_until_it_expires_although_its_lease_is_deleted_or_emptied() {
        let start = start();
        for record in [None, Some(LeaseSpec::default()), Some(held_by("", 0))] {
            let mut lock = lock();
            lock.observe(Some(&lease(&held_by("other", 0))), start);
            lock.observe(record.as_ref().map(lease).as_ref(), after(start, 2));
            lock.observe(record.as_ref().map(lease).as_ref(), after(start, 4));
            assert!(!lock.may_take(after(start, 17)), "it may not know yet: {record:?}");
            assert!(lock.may_take(after(start, 18)), "{record:?}");
            lock.observe(Some(&lease(&released())), after(start, 3));
            assert!(lock.may_take(after(start, 3)), "it has stopped");
        }
    }

    #[test]
    fn our_own_lock_may_be_renewed_at_any_time_unless_it_was_deleted_long_after() {
        let (mut lock, start) = (lock(), start());
        let record = lock.next_record(start);
        lock.record_renewal(&lease(&record), start, start);
        assert!(lock.may_take(start) && lock.may_take(after(start, 1000)));
        for gone in [None, Some(LeaseSpec::default())] {
            lock.observe(gone.as_ref().map(lease).as_ref(), after(start, 15));
            assert!(lock.may_take(after(start, 15)));
            assert!(!lock.may_take(after(start, 16)), "another may have held it meanwhile");
            assert!(lock.may_take(after(start, 31)));
        }
    }

    #[test]
    fn a_record_with_our_identity_is_ours_only_if_we_have_just_written_it() {
        let (mut lock, start) = (lock(), start());
        let ours = lock.next_record(start);
        lock.record_renewal(&lease(&ours), start, start);
        assert!(lock.is_ours(&ours));
        assert!(!lock.is_ours(&held_by("me", 7)), "someone else wrote it");
        lock.observe(Some(&lease(&held_by("other", 1))), after(start, 20));
        lock.observe(Some(&lease(&ours)), after(start, 21));
        assert!(!lock.is_ours(&ours), "someone else restored it");
        assert!(!lock.may_take(after(start, 36)), "so others may lead");
        assert!(lock.may_take(after(start, 37)));
    }

    #[test]
    fn a_write_without_an_answer_counts_from_when_it_was_sent_if_it_is_read() {
        let (mut lock, start) = (lock(), start());
        // The server does not store nanoseconds.
        let start = Moment { wall: start.wall + Duration::from_nanos(1_100), ..start };
        let [_, stored, _] = [0, 2, 4].map(|second| lock.next_record(after(start, second)));
        let stored = serde_json::to_value(stored).expect("a record");
        let stored: LeaseSpec = serde_json::from_value(stored).expect("a record");
        lock.observe(None, after(start, 5));
        assert_eq!(lock.renewed(), None);
        lock.observe(Some(&lease(&stored)), after(start, 6));
        assert_eq!(lock.renewed().map(|lease| lease.at), Some(after(start, 2)));
        lock.lost();
        lock.observe(Some(&lease(&stored)), after(start, 7));
        assert_eq!(lock.renewed(), None, "it is known already");
        assert!(lock.may_take(after(start, 7)));
    }

    #[test]
    fn few_writes_without_an_answer_are_remembered() {
        let (mut lock, start) = (lock(), start());
        for second in 0..1000 {
            lock.next_record(after(start, second));
        }
        assert!(lock.sent.len() <= 16);
    }

    #[test]
    fn a_foreign_lock_expires_when_it_has_not_been_seen_to_change() {
        let (mut lock, start) = (lock(), start());
        // Its holder's clock is far behind, or far ahead: that does not count.
        for second in [-1_000_000, 4_000_000_000] {
            lock.observe(Some(&lease(&held_by("other", second))), start);
            for seconds in [0, 8, 15] {
                lock.observe(Some(&lease(&held_by("other", second))), after(start, seconds));
                assert!(!lock.may_take(after(start, seconds)), "after {seconds} s");
            }
            assert!(lock.may_take(after(start, 16)), "its holder has crashed");
        }
    }

    #[test]
    fn a_lease_that_was_restored_twice_expires_after_the_last_change() {
        let (mut lock, start) = (lock(), start());
        let old = held_by("other", 0);
        for (version, seconds) in [("7", 0), ("9", 10), ("9", 12)] {
            lock.observe(Some(&stored_at(version, &old)), after(start, seconds));
        }
        assert!(!lock.may_take(after(start, 25)), "another may have held it between the reads");
        assert!(lock.may_take(after(start, 26)));
    }

    #[test]
    fn a_foreign_lock_that_is_renewed_stays_foreign() {
        let (mut lock, start) = (lock(), start());
        for renewal in 0..10 {
            let now = after(start, u64::try_from(renewal).expect("small") * 10);
            lock.observe(Some(&lease(&held_by("other", renewal))), now);
            assert!(!lock.may_take(now));
            assert!(!lock.may_take(after(now, 15)));
        }
    }

    #[test]
    fn a_record_without_a_valid_duration_lasts_as_long_as_ours() {
        let start = start();
        for seconds in [None, Some(-1), Some(i32::MIN)] {
            let mut lock = lock();
            let record = LeaseSpec { lease_duration_seconds: seconds, ..held_by("other", 0) };
            lock.observe(Some(&lease(&record)), start);
            assert!(!lock.may_take(after(start, 15)), "{seconds:?}");
            assert!(lock.may_take(after(start, 16)), "{seconds:?}");
        }
        let mut lock = lock();
        let longer = LeaseSpec { lease_duration_seconds: Some(60), ..held_by("other", 0) };
        lock.observe(Some(&lease(&longer)), start);
        assert!(!lock.may_take(after(start, 60)), "its holder set this duration");
        assert!(lock.may_take(after(start, 61)));
    }

    #[test]
    fn transitions_count_changes_of_the_holder() {
        let (mut lock, start) = (lock(), start());
        let record = lock.next_record(after(start, 5));
        assert_eq!(record.lease_transitions, Some(0), "it is created");
        lock.record_renewal(&lease(&record), start, start);
        assert_eq!(lock.next_record(after(start, 6)).lease_transitions, Some(0), "it is renewed");
        for record in [held_by("other", 1), released()] {
            lock.observe(Some(&lease(&record)), start);
            let next = lock.next_record(after(start, 7));
            assert_eq!(next.lease_transitions, Some(4), "{record:?}");
        }
        lock.observe(None, start);
        let next = lock.next_record(after(start, 8));
        assert_eq!(next.lease_transitions, Some(4), "it was deleted");
    }

    #[test]
    fn a_renewal_keeps_the_time_of_acquisition_and_a_takeover_does_not() {
        let (mut lock, start) = (lock(), start());
        lock.observe(Some(&lease(&held_by("other", 1))), start);
        for second in [5, 7] {
            let next = lock.next_record(after(start, second));
            assert_eq!(next.holder_identity.as_deref(), Some("me"));
            assert_eq!(next.lease_duration_seconds, Some(15));
            assert_eq!(next.acquire_time, Some(MicroTime(after(start, 5).wall)));
            assert_eq!(next.renew_time, Some(MicroTime(after(start, second).wall)));
            lock.record_renewal(&lease(&next), start, start);
        }
    }

    #[test]
    fn a_leader_stops_before_its_lock_expires_for_others() {
        let (mut ours, mut theirs) = (lock(), Lock::new("other".to_owned(), PERIODS));
        let sent = start();
        let record = ours.next_record(sent);
        // The server stores it at once; the answer takes nine seconds.
        theirs.observe(Some(&lease(&record)), sent);
        ours.record_renewal(&lease(&record), sent, after(sent, 9));
        let lease = ours.renewed().expect("it leads");
        assert_eq!(lease.time_left(after(sent, 9)), Duration::from_secs(1));
        assert_eq!(lease.time_left(after(sent, 10)), Duration::ZERO);
        assert!(!theirs.may_take(after(sent, 15)));
        ours.lost();
        assert_eq!(ours.renewed(), None);
    }

    #[test]
    fn only_our_own_lock_is_released() {
        let (mut lock, start) = (lock(), start());
        let ours = lock.next_record(after(start, 1));
        lock.record_renewal(&lease(&ours), start, start);
        for foreign in [held_by("other", 1), held_by("me", 7), held_by("", 1), LeaseSpec::default()]
        {
            assert_eq!(lock.released_record(&foreign, wall(9)), None);
        }
        let released = lock.released_record(&ours, wall(9)).expect("it is ours");
        assert_eq!(released.holder_identity.as_deref(), Some(""));
        assert_eq!(released.lease_duration_seconds, Some(1), "for those who only watch the time");
        assert_eq!(released.lease_transitions, Some(0));
        lock.observe(Some(&lease(&released)), start);
        assert!(lock.may_take(start), "by anybody, at once");
    }
}
