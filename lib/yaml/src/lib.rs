#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod document;
mod json;
mod path;
mod problem;
mod reader;
mod scalar;
mod stream;
mod syntax;
mod token;
mod typed;
mod value;

pub use self::{
    document::{Document, documents},
    path::{push_index, push_key},
    problem::{MAX_PROBLEMS, Problem, Problems, suggest},
    reader::{Cursor, MapReader},
    scalar::Number,
    stream::{Stream, Take, parse},
    token::{Limits, Position, Shape},
    value::{Entry, Key, Located, Value},
};
