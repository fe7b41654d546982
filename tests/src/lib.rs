//! Tests of the scheduler as a whole, and the work its speed is measured on.

pub mod build;
pub mod shapes;
pub mod worlds;
