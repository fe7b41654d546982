//! What an evaluation has cost so far.
//!
//! Two counters share one limit. `cost` follows cel-go's actual cost, so that an expression stops
//! here where it stops in Kubernetes; it is close, not equal, as cel-go does not charge for
//! everything it does. `work` counts what cel-go leaves out but what takes time or memory all the
//! same: copied elements, compared elements, characters that a function reads for a cost of 1.

use std::sync::Arc;

use crate::{
    error::EvaluationError,
    pattern::{Draft, Pattern},
    value::Value,
};

/// Characters or bytes that count as one unit of work.
const BYTES_PER_UNIT: usize = 16;
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

    /// What the evaluation has taken, in units of about 10 ns, whether cel-go charges for it or not.
    pub(crate) const fn spent(&self) -> u64 {
        if self.cost > self.work { self.cost } else { self.work }
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
        let constants = Arc::clone(&self.constants);
        let known = self.known_pattern(&constants, text)?;
        let kept = std::mem::take(&mut self.patterns);
        let known = known.map_or_else(|| self.known_pattern(&kept, text), |known| Ok(Some(known)));
        self.patterns = kept;
        if let Some(known) = known? {
            return Ok(known);
        }
        let draft = Draft::new(text).map_err(EvaluationError::invalid)?;
        self.work(usize::try_from(draft.work()).unwrap_or(usize::MAX))?;
        let pattern = Arc::new(draft.build().map_err(EvaluationError::invalid)?);
        if self.patterns.len() == KEPT_PATTERNS {
            self.patterns.remove(0);
        }
        self.patterns.push((text.clone(), pattern.clone()));
        Ok(pattern)
    }

    /// The pattern with this text among others. Only those of the same length are compared.
    fn known_pattern(
        &mut self,
        patterns: &[(Arc<str>, Arc<Pattern>)],
        text: &Arc<str>,
    ) -> Result<Option<Arc<Pattern>>, EvaluationError> {
        self.work(patterns.len() / BYTES_PER_UNIT)?;
        for (known, pattern) in patterns.iter().filter(|(known, _)| known.len() == text.len()) {
            if Arc::ptr_eq(known, text) {
                return Ok(Some(pattern.clone()));
            }
            self.work_on_bytes(text.len())?;
            if known == text {
                return Ok(Some(pattern.clone()));
            }
        }
        Ok(None)
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
