//! What searches for devices read in one session.

use std::{collections::BTreeMap, sync::Arc};

use kube_batch_api::{
    cluster::Cluster,
    facts::device::request::{ClaimSpec, Wanted},
    name::Name,
};
use kube_batch_devices::{
    claims::{Claim, Classes},
    inventory::Inventory,
    rows::WantedIdx,
    search::Devices,
    selectors::{Selectors, budget},
    wanted::AllWanted,
};

use crate::device_tables::DeviceTables;

/// What searches for devices read in one session.
#[derive(Debug)]
pub(crate) struct SessionTables {
    pub(crate) shared: Arc<DeviceTables>,
    selectors: Selectors,
    wanted: AllWanted,
    /// What new expressions may still cost, by namespace: no tenant's selectors delay the others.
    budgets: BTreeMap<Name, u64>,
}

impl SessionTables {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let shared = DeviceTables::of(cluster);
        let (selectors, wanted) = shared.known();
        Self { shared, selectors, wanted, budgets: BTreeMap::new() }
    }

    /// Makes a claim of a namespace ready, whose name is for messages.
    pub(crate) fn claim(
        &mut self,
        classes: &Classes,
        namespace: &Name,
        claim: (&str, &Arc<ClaimSpec>),
    ) -> Result<Claim, String> {
        let Self { shared, selectors, wanted, budgets } = self;
        let budget = budgets.entry(namespace.clone()).or_insert_with(|| budget(&shared.inventory));
        Claim::new((&shared.inventory, selectors, wanted), classes, claim, budget)
    }

    /// The row of what wants any device of a class; `None` if there is no such class.
    pub(crate) fn any_of_class(&mut self, classes: &Classes, class: &Name) -> Option<WantedIdx> {
        let facts = classes.get(class)?;
        let Self { shared, selectors, wanted, .. } = self;
        // Administrators write classes.
        let mut no_limit = u64::MAX;
        let any = Wanted::of_class(class, 1);
        Some(wanted.row(&shared.inventory, selectors, (&any, facts), &mut no_limit))
    }

    pub(crate) fn devices(&self) -> Devices<'_> {
        let Self { shared, selectors, wanted, .. } = self;
        Devices { inventory: &shared.inventory, wanted, selectors }
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
