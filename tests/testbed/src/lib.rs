#![doc = include_str!("../README.md")]

pub mod assets;
pub mod audit;
mod bulk;
mod certificates;
pub mod cluster;
mod directory;
mod error;
mod etcd;
mod janitor;
mod kubeconfig;
pub mod nodes;
pub mod pool;
pub mod process;
mod stages;

pub use error::{Error, Result};
