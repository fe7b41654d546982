//! Faults of the episode: how they begin, and how they end.

use std::sync::atomic::Ordering;

use tokio::time::{Duration, Instant};

use super::Episode;
use crate::{
    script::{Fault, TENANTS},
    server::{EVENTS, KINDS, Kind, LEASES},
    traffic::{Admission, Faults},
};

/// What ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Faults(usize),
    Freeze(usize),
    Admission(usize),
    Unreadable(Kind),
}

impl Episode {
    /// Begins a fault.
    pub(super) fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Faults { replica, faults, millis } => {
                self.set_faults(replica, faults);
                self.ends
                    .push((Instant::now() + Duration::from_millis(millis), End::Faults(replica)));
            }
            Fault::Admission { tenant, admission, millis } => {
                self.shared.lock().set_admission(tenant, admission);
                let end = Instant::now() + Duration::from_millis(millis);
                self.ends.push((end, End::Admission(tenant)));
            }
            Fault::Unreadable { kind, code, millis } => {
                // The lease is read again by those who would lead, and not watched.
                let watched: Vec<Kind> = KINDS
                    .iter()
                    .copied()
                    .filter(|kind| !matches!(*kind, LEASES | EVENTS))
                    .collect();
                let kind = watched[kind % watched.len()];
                let mut world = self.shared.lock();
                world.log(&format!("{} cannot be read: {code}", kind.plural));
                world.server.unreadable.insert(kind, code);
                let end = Instant::now() + Duration::from_millis(millis);
                self.ends.push((end, End::Unreadable(kind)));
            }
            Fault::Reset(replica) => {
                self.shared.lock().reset(self.processes[replica].number);
            }
            Fault::Freeze { replica, millis } => {
                self.processes[replica].freeze();
                self.ends
                    .push((Instant::now() + Duration::from_millis(millis), End::Freeze(replica)));
            }
            Fault::Kill(replica) => self.processes[replica].kill(),
            Fault::Terminate(replica) => self.processes[replica].terminate(),
            Fault::SetClock { replica, seconds } => {
                self.offsets[replica].store(seconds, Ordering::Relaxed);
            }
            Fault::Compact => {
                let mut world = self.shared.lock();
                let version = world.server.version();
                world.server.compact(version);
            }
            Fault::DeleteLease => {
                let key = ("kube-batch-system".to_owned(), "kube-batch".to_owned());
                self.shared.lock().server.delete_object(LEASES, &key);
            }
        }
    }

    /// Ends the faults whose time is over.
    pub(super) fn end_what_is_due(&mut self) {
        let now = Instant::now();
        let due: Vec<End> =
            self.ends.iter().filter(|(at, _)| *at <= now).map(|(_, end)| *end).collect();
        self.ends.retain(|(at, _)| *at > now);
        for end in due {
            match end {
                End::Faults(replica) => self.set_faults(replica, Faults::default()),
                End::Freeze(replica) => self.processes[replica].thaw(),
                End::Admission(tenant) => {
                    self.shared.lock().set_admission(tenant, Admission::Accepts);
                }
                End::Unreadable(kind) => {
                    self.shared.lock().server.unreadable.remove(&kind);
                }
            }
        }
    }

    fn set_faults(&self, replica: usize, faults: Faults) {
        let mut world = self.shared.lock();
        world.log(&format!("replica {replica} has {faults:?}"));
        world.set_faults(self.processes[replica].number, faults);
    }

    /// Ends all faults.
    pub(super) fn calm_down(&mut self) {
        self.ends.clear();
        for replica in 0..self.processes.len() {
            self.set_faults(replica, Faults::default());
            self.processes[replica].thaw();
        }
        let mut world = self.shared.lock();
        for tenant in 0..TENANTS.len() {
            world.set_admission(tenant, Admission::Accepts);
        }
        world.server.unreadable.clear();
        world.log("calm");
        world.calm_since = Some(Instant::now());
    }
}
