//! What an evaluation has cost so far.
//!
//! Two counters share one limit. `cost` follows cel-go's actual cost, so that an expression stops
//! here where it stops in Kubernetes; it is close, not equal, as cel-go does not charge for
//! everything it does. `work` counts what cel-go leaves out but what takes time or memory all the
//! same: copied elements, compared elements, characters that a function reads for a cost of 1.

use std::sync::Arc;

use crate::{error::EvaluationError, pattern::Pattern, value::Value};

/// Characters or bytes that count as one unit of work.
const BYTES_PER_UNIT: usize = 16;
/// Work of compiling a regular expression that is not constant: about a millisecond at most.
const PATTERN_WORK: usize = 10_000;
/// Compiled regular expressions that are kept for the rest of the evaluation.
const KEPT_PATTERNS: usize = 16;

/// The counters and what is remembered during one evaluation.
pub(crate) struct Meter {
    cost: u64,
    work: u64,
    limit: u64,
    /// The constant patterns of the program.
    constants: Arc<[(Arc<str>, Arc<Pattern>)]>,
    patterns: Vec<(Arc<str>, Arc<Pattern>)>,
}

impl Meter {
    pub(crate) fn new(limit: u64, constants: Arc<[(Arc<str>, Arc<Pattern>)]>) -> Self {
        Self { cost: 0, work: 0, limit, constants, patterns: Vec::new() }
    }

    pub(crate) const fn cost(&self) -> u64 {
        self.cost
    }

    /// Adds to the cost.
    pub(crate) const fn charge(&mut self, cost: u64) -> Result<(), EvaluationError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(EvaluationError::CostLimitExceeded) } else { Ok(()) }
    }

    /// Takes back the cost of what cel-go evaluates without charging for it.
    pub(crate) const fn refund(&mut self, cost: u64) {
        self.cost = self.cost.saturating_sub(cost);
    }

    /// Adds to the work, before it is done.
    pub(crate) const fn work(&mut self, units: usize) -> Result<(), EvaluationError> {
        self.work = self.work.saturating_add(units as u64);
        if self.work > self.limit { Err(EvaluationError::CostLimitExceeded) } else { Ok(()) }
    }

    /// Adds the work of reading or writing a number of bytes.
    pub(crate) const fn work_on_bytes(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.work(bytes / BYTES_PER_UNIT)
    }

    /// The compiled form of a regular expression.
    pub(crate) fn pattern(&mut self, text: &Arc<str>) -> Result<Arc<Pattern>, EvaluationError> {
        self.work_on_bytes(text.len())?;
        let mut known = self.constants.iter().chain(&self.patterns);
        if let Some((_, kept)) = known.find(|(known, _)| known == text) {
            return Ok(kept.clone());
        }
        self.work(PATTERN_WORK)?;
        let pattern = Arc::new(Pattern::new(text).map_err(EvaluationError::invalid)?);
        if self.patterns.len() == KEPT_PATTERNS {
            self.patterns.remove(0);
        }
        self.patterns.push((text.clone(), pattern.clone()));
        Ok(pattern)
    }
}

/// Characters of a string, elements of a list or a map; 1 for any other value.
pub(crate) fn size(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => text.chars().count() as u64,
        Value::Optional(Some(inner)) => size(inner),
        other => other.len().map_or(1, |n| n as u64),
    }
}

/// A tenth for each character or element, rounded up.
pub(crate) const fn tenths(size: u64) -> u64 {
    size.div_ceil(10)
}

/// The cost of running a regular expression of `pattern` characters over a text.
pub(crate) const fn pattern_cost(text: u64, pattern: u64) -> u64 {
    tenths(text + 1).saturating_mul(pattern.div_ceil(4))
}
