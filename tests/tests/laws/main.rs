//! All cases, and laws that hold in random clusters.
//!
//! `KUBE_BATCH_SEEDS=5000 cargo test -p kube-batch-tests --test laws torn_gangs::` plays 5000 clusters or histories of
//! one law, and `KUBE_BATCH_SEED=7` only the one of that seed.

mod admission;
mod capability;
mod cases;
mod checker;
mod claims;
mod composites;
mod dependent_gangs;
mod device_shares;
mod fast_path;
mod fitting_gangs;
mod hostile;
mod memory;
mod names;
mod nominations;
mod not_admitted;
mod preemption;
mod properties;
mod queues;
mod recording;
mod renamed_actions;
mod reservations;
mod roles;
mod self_affinity;
mod simulation;
mod steady_demand;
mod topology;
mod torn_gangs;
mod unlike_gangs;
mod variants;
mod volumes;
mod whole_gangs;
