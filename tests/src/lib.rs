//! Tests of the scheduler as a whole, and clusters for benchmarks.

pub mod checker;
pub mod figures;
pub mod hostile;
pub mod leader;
pub mod performance;
pub mod random_cluster;
pub mod seeds;
pub mod shapes;
pub mod small_cluster;
pub mod steady_world;
pub mod streams;
pub mod tree_world;
