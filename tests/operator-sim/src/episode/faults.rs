//! Faults of the episode: how they begin, and how they end.

use std::sync::atomic::Ordering;

use tokio::time::{Duration, Instant};

use super::{End, Episode};
use crate::{
    changes,
    configuration::Configuration,
    crds,
    script::Fault,
    server::LEASES,
    traffic::{Admission, Faults},
};

/// How long the API server needs until it serves a kind that was defined again.
const INITIALIZING_MS: u64 = 2_000;

impl Episode {
    /// Begins a fault.
    pub(super) fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Faults { replica, faults, millis } => {
                self.set_faults(replica, faults);
                self.end_after(millis, End::Faults(replica));
            }
            Fault::Admission { tenant, admission, millis } => {
                self.shared.lock().set_admission(tenant, admission);
                self.end_after(millis, End::Admission(tenant));
            }
            Fault::Outage { requests, effect, millis } => {
                self.shared.lock().outages.begin(requests, effect);
                self.end_after(millis, End::Outage(requests));
            }
            Fault::Watches { kind, fault, millis } => {
                self.shared.lock().watch_faults.insert(kind, fault);
                self.end_after(millis, End::Watches(kind));
            }
            Fault::Reset(replica) => {
                self.shared.lock().reset(self.processes[replica].number);
            }
            Fault::Freeze { replica, millis } => {
                self.processes[replica].freeze();
                self.end_after(millis, End::Freeze(replica));
            }
            Fault::Kill(replica) => self.processes[replica].kill(),
            Fault::Terminate(replica) => self.processes[replica].terminate(),
            Fault::SetClock { replica, seconds } => {
                self.offsets[replica].store(seconds, Ordering::Relaxed);
            }
            Fault::JumpClocks { seconds, millis } => {
                self.set_clocks_forward(seconds);
                self.end_after(millis, End::JumpClocks(seconds));
            }
            Fault::FlapNode { node, millis } => {
                let mut world = self.shared.lock();
                changes::flap(&mut world, node, Duration::from_millis(millis));
            }
            Fault::DeleteCrds { kinds, millis } => {
                for kind in kinds {
                    crds::delete(&mut self.shared.lock(), *kind);
                    self.end_after(millis, End::DeleteCrd(*kind));
                }
            }
            Fault::Configure { replica, configuration, millis } => {
                self.shared.lock().configure(replica, configuration);
                self.end_after(millis, End::Configure(replica));
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

    fn end_after(&mut self, millis: u64, end: End) {
        self.ends.push((Instant::now() + Duration::from_millis(millis), end));
    }

    /// Ends the faults whose time is over.
    pub(super) fn end_what_is_due(&mut self) {
        let now = Instant::now();
        let due: Vec<End> =
            self.ends.iter().filter(|(at, _)| *at <= now).map(|(_, end)| *end).collect();
        self.ends.retain(|(at, _)| *at > now);
        due.into_iter().for_each(|end| self.end(end));
    }

    fn end(&mut self, end: End) {
        match end {
            End::Faults(replica) => self.set_faults(replica, Faults::default()),
            End::Freeze(replica) => self.processes[replica].thaw(),
            End::Admission(tenant) => {
                self.shared.lock().set_admission(tenant, Admission::Accepts);
            }
            End::Watches(kind) => {
                self.shared.lock().watch_faults.remove(&kind);
            }
            End::Outage(requests) => self.shared.lock().outages.end(requests),
            End::DeleteCrd(kind) => {
                let rejected = crds::create(&mut self.shared.lock(), kind);
                if let Some((requests, effect)) = rejected {
                    self.shared.lock().outages.begin(requests, effect);
                    self.end_after(INITIALIZING_MS, End::Outage(requests));
                }
            }
            End::Configure(replica) => {
                self.shared.lock().configure(replica, Configuration::Shipped);
            }
            End::JumpClocks(seconds) => self.set_clocks_forward(-seconds),
        }
        self.shared.notify();
    }

    fn set_faults(&self, replica: usize, faults: Faults) {
        let mut world = self.shared.lock();
        world.log(&format!("replica {replica} has {faults:?}"));
        world.set_faults(self.processes[replica].number, faults);
    }

    fn set_clocks_forward(&self, seconds: i64) {
        for offset in &self.offsets {
            offset.fetch_add(seconds, Ordering::Relaxed);
        }
    }

    /// Ends all faults.
    pub(super) fn calm_down(&mut self) {
        // The end of one fault may be the begin of another.
        while let Some((_, end)) = self.ends.pop() {
            self.end(end);
        }
        let mut world = self.shared.lock();
        world.recreates = None;
        world.log("calm");
        world.calm_since = Some(Instant::now());
    }
}
