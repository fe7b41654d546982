//! To which nodes searches are confined while a statement is open.

use kube_batch_model::{cluster::Cluster, column::JobIdx};

use crate::{
    policy::Policy,
    topology::{InLevel, Scope, ScopeRef},
};

/// To which nodes searches are confined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confinement {
    /// The job that they are for, if it requires a domain.
    job: Option<JobIdx>,
    /// Where the action looks for places.
    scope: Option<Scope>,
}

impl Confinement {
    /// What a job requires.
    pub(crate) fn of_job(cluster: &Cluster, job: JobIdx) -> Self {
        Self { job: cluster.requires_domain(job).then_some(job), scope: None }
    }

    /// A domain.
    pub(crate) const fn to(scope: Scope) -> Self {
        Self { job: None, scope: Some(scope) }
    }

    /// Sets the domain, or removes it.
    pub(crate) fn set_scope(&mut self, scope: Option<Scope>) {
        self.scope = scope;
    }

    /// The nodes to consider; `None` if that is all of them.
    pub(crate) fn scope<'a>(
        &'a self,
        cluster: &Cluster,
        policy: &'a Policy,
    ) -> Option<ScopeRef<'a>> {
        match &self.scope {
            Some(Scope { level, domain }) => {
                Some(ScopeRef { level, nodes: InLevel::Domain(*domain) })
            }
            None => policy.topology(cluster, self.job?)?.required(),
        }
    }
}
