//! Resources that are not counted during a session.

use super::{
    Cluster,
    queues::Queues,
    tables::{LeftOut, Nodes},
};
use crate::{
    column::{Dim, NodeIdx},
    resource::{Ledger, Request},
};

impl Cluster {
    /// Stops counting the resources that `ignores` picks: no node has them, no task requests them, and
    /// no queue is limited in them or promised any. To be called before any task is moved. Returns what is to be put back when
    /// none is any more.
    pub fn leave_out(&mut self, ignores: impl Fn(&str) -> bool) -> LeftOut {
        let dims = self.dimensions.ids();
        let dims: Vec<Dim> = dims.filter(|dim| ignores(self.dimensions.name(*dim))).collect();
        let mut unknown = self.classes.request.values().flat_map(Request::unknown);
        if dims.is_empty() && !unknown.any(|resource| ignores(resource)) {
            return LeftOut::default();
        }
        let mut left_out = LeftOut { requests: self.classes.request.clone(), ..LeftOut::default() };
        let Queues { capability, deserved, guarantee, .. } = &self.queues;
        left_out.amounts = [capability.clone(), deserved.clone(), guarantee.clone()];
        for ledger in self.nodes.ledgers() {
            left_out.ledgers.push(ledger.clone());
            for node in ledger.ids().collect::<Vec<_>>() {
                dims.iter().for_each(|dim| ledger[node][*dim] = 0);
            }
        }
        dims.iter().for_each(|dim| self.device_totals[*dim] = 0);
        left_out.jobs = Some([self.jobs.held.clone(), self.jobs.waiting.clone()]);
        for ledger in [&mut self.jobs.held, &mut self.jobs.waiting] {
            for job in ledger.ids().collect::<Vec<_>>() {
                dims.iter().for_each(|dim| ledger[job][*dim] = 0);
            }
        }
        let Queues { held, leaving, stuck, .. } = &mut self.queues;
        left_out.queues = [held.clone(), leaving.clone(), stuck.clone()];
        for ledger in [held, leaving, stuck] {
            for queue in ledger.ids().collect::<Vec<_>>() {
                dims.iter().for_each(|dim| ledger[queue][*dim] = 0);
            }
        }
        for request in self.classes.request.values_mut() {
            *request = request.without(&dims, &ignores);
        }
        let Queues { capability, deserved, guarantee, .. } = &mut self.queues;
        for amounts in [capability, deserved, guarantee] {
            for amounts in amounts.values_mut() {
                amounts.retain(|(dim, _)| !dims.contains(dim));
            }
        }
        left_out
    }

    /// Counts resources again that were left out.
    pub fn put_back(&mut self, left_out: LeftOut) {
        let LeftOut { ledgers, jobs, queues, requests, amounts } = left_out;
        let Some([held, waiting]) = jobs else { return };
        (self.jobs.held, self.jobs.waiting) = (held, waiting);
        [self.queues.held, self.queues.leaving, self.queues.stuck] = queues;
        for (ledger, before) in self.nodes.ledgers().into_iter().zip(ledgers) {
            *ledger = before;
        }
        self.classes.request = requests;
        [self.queues.capability, self.queues.deserved, self.queues.guarantee] = amounts;
    }
}

impl Nodes {
    fn ledgers(&mut self) -> [&mut Ledger<NodeIdx>; 6] {
        let Self { allocatable, idle, releasing, pipelined, used, foreign, .. } = self;
        [allocatable, idle, releasing, pipelined, used, foreign]
    }
}
