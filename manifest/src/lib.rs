#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod defaults;
pub mod diagnostic;
pub mod object;
pub mod place;
pub mod pods;
pub mod reader;
pub mod rejection;
pub mod render;
pub mod source;
pub mod unsimulated;

mod context;
mod item;
mod pool;
