//! Messages about the jobs and queues that keep a job waiting.

use std::fmt;

use super::of_same_queue;
use crate::{
    others::{
        Borrower, ClassOfVolume, ClosestNode, KeptRoom, Others, Protection, QueueUse,
        SelectedNodes, Shortage, WantedDevices, WantedVolume,
    },
    people,
};

impl fmt::Display for Others {
    /// Further parts of a sentence, each after a semicolon; empty if there is nothing to say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { short, selected, devices, volume, kept, queue, n_before } = self;
        devices.as_ref().map_or(Ok(()), |devices| devices.fmt(f))?;
        volume.as_ref().map_or(Ok(()), |volume| volume.fmt(f))?;
        selected.as_ref().map_or(Ok(()), |selected| selected.fmt(f))?;
        if let Some(Shortage { resource, closest: Some(closest), .. }) = short.as_deref() {
            closest_node(f, resource, closest)?;
        }
        kept.as_ref().map_or(Ok(()), |kept| kept.fmt(f))?;
        queue.as_ref().map_or(Ok(()), |queue| queue.fmt(f))?;
        match n_before {
            0 => Ok(()),
            1 => {
                f.write_str("; 1 job of the queue that is older or has a higher priority waits too")
            }
            n => {
                let jobs = rounded(*n);
                write!(
                    f,
                    "; {jobs} jobs of the queue that are older or have a higher priority wait too"
                )
            }
        }
    }
}

/// A number of jobs, at least 1, with one digit that counts: else the text would change with each job that ends.
fn rounded(n: u32) -> String {
    let power = 10_u32.pow(n.ilog10());
    if n < 10 { n.to_string() } else { format!("at least {}", n / power * power) }
}

fn closest_node(
    f: &mut fmt::Formatter<'_>,
    resource: &str,
    ClosestNode { node, free, used, user, n_more }: &ClosestNode,
) -> fmt::Result {
    write!(f, "; closest node {node} has {} free", people::named(resource, *free))?;
    if *used == 0 {
        return Ok(());
    }
    write!(f, " ({} used by ", people::amount(resource, *used))?;
    match user {
        Some(user) => f.write_str(&of_same_queue(user))?,
        None => f.write_str("pods that are in no queue")?,
    }
    match n_more {
        0 => f.write_str(")"),
        1 => f.write_str(" and 1 more job)"),
        _ => write!(f, " and {n_more} more jobs)"),
    }
}

impl fmt::Display for SelectedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requirements, unmet, n_nodes } = self;
        let all = requirements.join(", ");
        match (unmet, n_nodes) {
            (Some(unmet), _) => write!(f, "; no node matches its selector {unmet}"),
            (None, 0) => write!(f, "; no node matches all of its selector {all}"),
            (None, 1) => write!(f, "; 1 node matches its selector {all}"),
            (None, n) => write!(f, "; {n} nodes match its selector {all}"),
        }
    }
}

impl fmt::Display for WantedDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, request, class, n_wanted, n_devices, n_idle } = self;
        let devices = |n: u64| if n == 1 { "1 device".to_owned() } else { format!("{n} devices") };
        let wanted = devices(*n_wanted);
        write!(
            f,
            "; claim \"{claim}\", request \"{request}\", needs {wanted} of DeviceClass {class}: "
        )?;
        match n_devices {
            0 => f.write_str("no node has any"),
            n => write!(f, "{n_idle} of {} are not in use", devices(*n)),
        }?;
        match n_idle < n_wanted {
            true => Ok(()),
            false => f.write_str(", of which too few on any node match it"),
        }
    }
}

impl fmt::Display for WantedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, storage_class, has } = self;
        write!(f, "; claim \"{claim}\" ")?;
        match storage_class {
            Some(class) => write!(f, "is of StorageClass {class}, ")?,
            None => f.write_str("has no StorageClass: ")?,
        }
        match (has, storage_class) {
            (ClassOfVolume::Missing, _) => f.write_str("which does not exist"),
            (ClassOfVolume::Static { n_free: 0 }, None) => {
                f.write_str("no PersistentVolume without one is free")
            }
            (ClassOfVolume::Static { n_free }, None) => {
                write!(f, "free PersistentVolumes without one: {n_free}")
            }
            (ClassOfVolume::Static { n_free: 0 }, Some(_)) => f.write_str(
                "whose volumes are not made when needed; no PersistentVolume of it is free",
            ),
            (ClassOfVolume::Static { n_free }, Some(_)) => {
                write!(
                    f,
                    "whose volumes are not made when needed; free PersistentVolumes: {n_free}"
                )
            }
            (ClassOfVolume::Provisioned, _) => f.write_str("whose volumes are made when needed"),
        }
    }
}

impl fmt::Display for KeptRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, n_more, holder } = self;
        let holder = of_same_queue(holder);
        match n_more {
            0 => write!(f, "; what is free on node {node} is kept for {holder}"),
            1 => write!(f, "; what is free on node {node} and 1 more node is kept for {holder}"),
            _ => {
                write!(
                    f,
                    "; what is free on node {node} and {n_more} more nodes is kept for {holder}"
                )
            }
        }?;
        if *n_more == 0 { Ok(()) } else { f.write_str(" and others") }
    }
}

impl fmt::Display for QueueUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, resource, used, deserved, borrower } = self;
        let amount = |of: i64| people::amount(resource, of);
        write!(f, "; queue \"{queue}\" ")?;
        match (*used, *deserved) {
            (_, 0) => write!(f, "deserves no {}", people::plural(resource))?,
            (used, deserved) if used > deserved => {
                write!(
                    f,
                    "uses {}, and deserves {}",
                    people::named(resource, used),
                    amount(deserved)
                )?;
            }
            (used, deserved) => {
                let deserved = people::named(resource, deserved);
                write!(f, "uses {} of the {deserved} that it deserves", amount(used))?;
            }
        }
        borrower.as_ref().map_or(Ok(()), |borrower| borrower.fmt_with(f, resource))
    }
}

impl Borrower {
    fn fmt_with(&self, f: &mut fmt::Formatter<'_>, resource: &str) -> fmt::Result {
        let Self { queue, excess, n_more, kept_by } = self;
        let excess = people::named(resource, *excess);
        write!(f, "; queue \"{queue}\" uses {excess} more than it deserves")?;
        match n_more {
            0 => {}
            1 => f.write_str(", and 1 other queue some")?,
            _ => write!(f, ", and {n_more} other queues some")?,
        }
        for protection in kept_by {
            f.write_str(", ")?;
            protection.fmt_with(f, resource)?;
        }
        Ok(())
    }
}

impl Protection {
    fn fmt_with(&self, f: &mut fmt::Formatter<'_>, resource: &str) -> fmt::Result {
        let amount = |of: &i64| people::named(resource, *of);
        match self {
            Self::NoReclaim => {
                f.write_str("and nothing is reclaimed: the configuration has no action for it")
            }
            Self::NotReclaimable { queue } => {
                write!(f, "and nothing is reclaimed from queue \"{queue}\"")
            }
            Self::Leaving { amount: of } => {
                write!(f, "its pods with {} are being terminated", amount(of))
            }
            Self::MinRuntime { amount: of, first_end } => {
                let amount = amount(of);
                write!(f, "minRuntime protects its pods with {amount}, the first until {first_end}")
            }
            Self::Reservation { amount: of, first_end } => {
                let amount = amount(of);
                f.write_str("its pods that started from a reservation are protected: ")?;
                write!(f, "{amount}, the first until {first_end}")
            }
            Self::Budget { amount: of } => {
                write!(f, "disruption budgets protect its pods with {}", amount(of))
            }
        }
    }
}
