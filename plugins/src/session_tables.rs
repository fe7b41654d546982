//! Tables that searches for devices read during one session.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_devices::{
    claims::{Claim, DeviceClasses},
    inventory::Inventory,
    rows::WantedIdx,
    search::Devices,
    selectors::{Selectors, budget},
    wanted::AllWanted,
};
use kube_batch_model::{
    cluster::Cluster,
    facts::device::request::{ClaimSpec, Wanted},
    name::Name,
};

use crate::device_tables::DeviceTables;

/// Tables that searches for devices read during one session.
#[derive(Debug)]
pub(crate) struct SessionTables {
    pub(crate) shared: Arc<DeviceTables>,
    selectors: Selectors,
    wanted: AllWanted,
    /// What new expressions of each namespace may still cost, so that the selectors of one tenant do not delay others.
    budgets: BTreeMap<Name, u64>,
}

impl SessionTables {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let shared = DeviceTables::of(cluster);
        let (selectors, wanted) = shared.known();
        Self { shared, selectors, wanted, budgets: BTreeMap::new() }
    }

    /// Prepares a claim of a namespace for the search. `claim.0` is its name, for messages.
    pub(crate) fn claim(
        &mut self,
        classes: &DeviceClasses,
        namespace: &Name,
        claim: (&str, &Arc<ClaimSpec>),
    ) -> Result<Claim, String> {
        let Self { shared, selectors, wanted, budgets } = self;
        let budget = budgets.entry(namespace.clone()).or_insert_with(|| budget(&shared.inventory));
        Claim::new((&shared.inventory, selectors, wanted), classes, claim, budget)
    }

    /// The row of a request for any one device of a class; `None` if there is no such class.
    pub(crate) fn any_of_class(
        &mut self,
        classes: &DeviceClasses,
        class: &Name,
    ) -> Option<WantedIdx> {
        let facts = classes.get(class)?;
        let Self { shared, selectors, wanted, .. } = self;
        // No limit of cost: only administrators create classes.
        let mut no_limit = u64::MAX;
        let any = Wanted::of_class(class, 1);
        Some(wanted.row(&shared.inventory, selectors, (&any, facts), &mut no_limit))
    }

    pub(crate) fn devices(&self) -> Devices<'_> {
        let Self { shared, selectors, wanted, .. } = self;
        Devices { inventory: &shared.inventory, wanted, selectors, first: 0 }
    }

    pub(crate) const fn wanted(&self) -> &AllWanted {
        &self.wanted
    }

    pub(crate) fn inventory(&self) -> &Inventory {
        &self.shared.inventory
    }

    /// Keeps what is known of expressions and requests for the next session.
    pub(crate) fn keep(&self) {
        self.shared.keep(&self.selectors, &self.wanted);
    }
}
