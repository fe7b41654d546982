#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod ast;
mod checker;
mod device;
mod equality;
mod error;
mod evaluate;
mod functions;
mod lexer;
mod literal;
mod macros;
mod meter;
mod named_format;
mod node;
mod overload;
mod parser;
mod pattern;
mod program;
mod reads;
mod signature;
mod token;
mod types;
mod unify;
mod url;
mod value;

pub use self::{
    device::{Attribute, Device},
    error::{CompileError, EvaluationError},
    program::{Answer, COST_LIMIT, Compilation, Program},
    reads::{Read, Reads},
};
