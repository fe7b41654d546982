//! What an evaluation has cost so far.
//!
//! There are two counters. `cost` follows cel-go's actual cost, so that an expression stops here
//! where it stops in Kubernetes; it is close, not equal. `work` counts what takes time or memory,
//! whether cel-go charges for it or not: nodes that are evaluated, elements that are copied or
//! compared, characters that a function reads for a cost of 1, bytes of values that are made. It is
//! counted before it is done, so that what an expression takes is bounded by what it was charged:
//! a unit stands for about 10 ns, or 16 bytes.

use std::sync::Arc;

use crate::{
    error::EvaluationError,
    pattern::{Draft, Pattern},
    value::Value,
};

/// Characters or bytes that count as one unit of work.
const BYTES_PER_UNIT: usize = 16;
/// How much more the work may be than the cost, so that ordinary expressions end because of their cost,
/// as in Kubernetes: a loop over numbers takes about as much work as it costs.
const WORK_LIMIT: u64 = 2;
/// Bytes that a text takes beside its characters.
const BYTES_OF_TEXT: usize = 48;
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

    /// What the evaluation has taken, in units of about 10 ns, whether cel-go charges for it or not. What was beyond the
    /// limit has not been done.
    pub(crate) fn spent(&self) -> u64 {
        self.cost.max(self.work).min(self.limit.saturating_mul(WORK_LIMIT))
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
        if self.work > self.limit.saturating_mul(WORK_LIMIT) {
            Err(EvaluationError::CostLimitExceeded)
        } else {
            Ok(())
        }
    }

    /// Adds the work of reading or writing a number of bytes.
    pub(crate) const fn work_on_bytes(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        self.work(bytes / BYTES_PER_UNIT)
    }

    /// Adds the work of making a number of values: so much memory is one unit for 16 bytes.
    pub(crate) const fn work_on_values(&mut self, n: usize) -> Result<(), EvaluationError> {
        self.work_on_bytes(n.saturating_mul(size_of::<Value<'_>>()))
    }

    /// Adds the work of making a list of `n` texts with `bytes` bytes in all.
    pub(crate) const fn work_on_texts(
        &mut self,
        n: usize,
        bytes: usize,
    ) -> Result<(), EvaluationError> {
        let of_each = size_of::<Value<'_>>() + BYTES_OF_TEXT;
        self.work_on_bytes(n.saturating_mul(of_each).saturating_add(bytes))
    }

    /// Adds the work of looking up a key in a map.
    pub(crate) fn work_on_key(
        &mut self,
        key: &Value<'_>,
        map: &Value<'_>,
    ) -> Result<(), EvaluationError> {
        self.work_on_key_among(key, map.len().unwrap_or(0))
    }

    fn work_on_key_among(&mut self, key: &Value<'_>, n: usize) -> Result<(), EvaluationError> {
        let n_compared = n.checked_ilog2().unwrap_or(0) as usize + 1;
        self.work_on_bytes(key.bytes().saturating_mul(n_compared))
    }

    /// Adds the work of inserting a key and its value into a map with `n` others.
    pub(crate) fn work_on_entry(
        &mut self,
        key: &Value<'_>,
        n: usize,
    ) -> Result<(), EvaluationError> {
        self.work_on_values(3)?;
        self.work_on_key_among(key, n)
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
///
/// # Errors
///
/// [`EvaluationError::CostLimitExceeded`], because counting characters is work.
pub(crate) fn size(value: &Value<'_>, meter: &mut Meter) -> Result<u64, EvaluationError> {
    meter.work(1)?;
    Ok(match value {
        Value::String(text) => {
            meter.work_on_bytes(text.len())?;
            text.chars().count() as u64
        }
        Value::Optional(Some(inner)) => size(inner, meter)?,
        other => other.len().map_or(1, |n| n as u64),
    })
}

/// A tenth for each character or element, rounded up.
pub(crate) const fn tenths(size: u64) -> u64 {
    size.div_ceil(10)
}

/// The cost of running a regular expression of `pattern` characters over a text.
pub(crate) const fn pattern_cost(text: u64, pattern: u64) -> u64 {
    tenths(text + 1).saturating_mul(pattern.div_ceil(4))
}
