//! Evaluation of macros.
//!
//! cel-go expands a macro to a loop with an accumulator. Here the loop is code, and what the loop of
//! cel-go would cost is charged: its condition, its step, and reading its result.

use std::sync::Arc;

use crate::{
    ast::FoldKind,
    error::EvaluationError,
    evaluate::{Evaluation, Local},
    functions::lists::sort_by,
    functions::operators::count,
    meter::size,
    node::{Fold, Node},
    value::{Entries, Key, Outcome, Value},
};

/// Evaluating the condition and the accumulator of `all` and `exists`.
const ALL: (u64, u64) = (2, 1);
const EXISTS: (u64, u64) = (3, 1);
/// Appending an element: the accumulator, a list of one element, and their sum.
const APPEND: u64 = 12;

impl<'a> Evaluation<'a> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
        let range = self.evaluate(&fold.range)?;
        match fold.kind {
            FoldKind::All => self.quantify(fold, &range, false, ALL),
            FoldKind::Exists => self.quantify(fold, &range, true, EXISTS),
            FoldKind::ExistsOne => self.exists_one(fold, &range),
            FoldKind::List => self.collect_list(fold, &range),
            FoldKind::Map | FoldKind::MapEntry => self.collect_map(fold, &range),
        }
    }

    /// Calls `step` for each element, with its variables, until it returns false.
    fn each(
        &mut self,
        fold: &'a Fold,
        range: &Value<'a>,
        mut step: impl FnMut(&mut Self, &Value<'a>) -> Result<bool, EvaluationError>,
    ) -> Result<(), EvaluationError> {
        let has_two = fold.has_two_variables;
        let n_outer = self.locals.len();
        let mut visit = |this: &mut Self, first: Value<'a>, second: Option<Value<'a>>| {
            this.meter.work(1)?;
            this.locals.push(Local::Known(Ok(first.clone())));
            this.locals.extend(second.map(|second| Local::Known(Ok(second))));
            let outcome = step(this, &first);
            this.locals.truncate(n_outer);
            outcome
        };
        if let Value::List(elements) = range {
            for (index, element) in elements.iter().enumerate() {
                let (first, second) = if has_two {
                    (count(index), Some(element.clone()))
                } else {
                    (element.clone(), None)
                };
                if !visit(self, first, second)? {
                    return Ok(());
                }
            }
            return Ok(());
        }
        if !range.is_map() {
            let message = format!("got '{}', expected iterable type", range.type_name());
            return Err(EvaluationError::invalid(message));
        }
        for key in range.keys() {
            let key = key.into_value();
            if has_two {
                self.meter.work_on_key(&key, range)?;
            }
            let value = if has_two { range.entry(&key) } else { None };
            if !visit(self, key, value)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// `all` and `exists`: one element that is `decisive` is the answer, whatever errors others have.
    fn quantify(
        &mut self,
        fold: &'a Fold,
        range: &Value<'a>,
        decisive: bool,
        (condition, step): (u64, u64),
    ) -> Outcome<'a> {
        let mut outcome = Ok(!decisive);
        self.each(fold, range, |this, _| {
            this.meter.charge(condition)?;
            if outcome == Ok(decisive) {
                return Ok(false);
            }
            this.meter.charge(step)?;
            match this.boolean(&fold.body) {
                Ok(value) if value == decisive => outcome = Ok(decisive),
                Ok(_) => {}
                Err(EvaluationError::CostLimitExceeded) => {
                    return Err(EvaluationError::CostLimitExceeded);
                }
                Err(error) => {
                    if outcome.is_ok() {
                        outcome = Err(error);
                    }
                }
            }
            Ok(true)
        })?;
        self.meter.charge(1)?;
        outcome.map(Value::Bool)
    }

    fn exists_one(&mut self, fold: &'a Fold, range: &Value<'a>) -> Outcome<'a> {
        let mut n = 0_u64;
        self.each(fold, range, |this, _| {
            if this.boolean(&fold.body)? {
                this.meter.charge(2)?;
                n += 1;
            }
            Ok(true)
        })?;
        self.meter.charge(2)?;
        Ok(Value::Bool(n == 1))
    }

    fn passes(&mut self, fold: &'a Fold) -> Result<bool, EvaluationError> {
        fold.filter.as_ref().map_or(Ok(true), |filter| self.boolean(filter))
    }

    fn collect_list(&mut self, fold: &'a Fold, range: &Value<'a>) -> Outcome<'a> {
        let mut values = Vec::new();
        let append = append_cost(&fold.body);
        self.each(fold, range, |this, _| {
            if this.passes(fold)? {
                this.meter.work_on_values(1)?;
                values.push(this.evaluate(&fold.body)?);
                this.meter.charge(append)?;
            }
            Ok(true)
        })?;
        self.meter.charge(1)?;
        Ok(Value::list(values))
    }

    fn collect_map(&mut self, fold: &'a Fold, range: &Value<'a>) -> Outcome<'a> {
        let mut entries = Entries::new();
        self.each(fold, range, |this, key| {
            if !this.passes(fold)? {
                return Ok(true);
            }
            let value = this.evaluate(&fold.body)?;
            this.meter.charge(2)?;
            if fold.kind == FoldKind::MapEntry {
                this.insert_all(&mut entries, &value)?;
                return Ok(true);
            }
            this.meter.charge(1)?;
            this.meter.work_on_entry(key, entries.len())?;
            insert(&mut entries, key, value)?;
            Ok(true)
        })?;
        self.meter.charge(1)?;
        Ok(Value::map(entries))
    }

    fn insert_all(
        &mut self,
        entries: &mut Entries<'a>,
        map: &Value<'a>,
    ) -> Result<(), EvaluationError> {
        if !map.is_map() {
            return Err(EvaluationError::NoSuchOverload);
        }
        for key in map.keys() {
            let key = key.into_value();
            self.meter.work_on_entry(&key, entries.len())?;
            self.meter.work_on_key(&key, map)?;
            if let Some(value) = map.entry(&key) {
                insert(entries, &key, value)?;
            }
        }
        Ok(())
    }

    /// The macro evaluates its value in cel-go once more if `body` needs it; here that is only paid.
    pub(super) fn optional_map(
        &mut self,
        value: &'a Node,
        body: &'a Node,
        is_flat: bool,
    ) -> Outcome<'a> {
        let before = self.meter.cost();
        let Value::Optional(value) = self.evaluate(value)? else {
            return Err(EvaluationError::NoSuchOverload);
        };
        let cost = self.meter.cost() - before;
        self.meter.charge(1)?;
        let Some(value) = value else {
            // `optional.none()`
            self.meter.charge(1)?;
            return Ok(Value::Optional(None));
        };
        let local = Local::Unpaid((*value).clone(), cost.saturating_add(1));
        let result = self.with_local(local, body)?;
        if is_flat {
            return match result {
                Value::Optional(_) => Ok(result),
                _ => Err(EvaluationError::NoSuchOverload),
            };
        }
        self.meter.charge(1)?;
        Ok(Value::some(result))
    }

    pub(super) fn sort_by(&mut self, value: &'a Node, body: &'a Node) -> Outcome<'a> {
        let value = self.evaluate(value)?;
        let Value::List(elements) = &value else { return Err(EvaluationError::NoSuchOverload) };
        let mut keys = Vec::with_capacity(elements.len());
        let append = append_cost(body);
        for element in elements.iter() {
            self.meter.charge(append)?;
            keys.push(self.with_local(Local::Known(Ok(element.clone())), body)?);
        }
        // The list is read twice, the list of keys once.
        self.meter.charge(3)?;
        let keys = Value::List(Arc::new(keys));
        let n = size(&keys, &mut self.meter)?;
        let for_text = match &keys {
            Value::List(keys)
                if matches!(keys.first(), Some(Value::String(_) | Value::Bytes(_))) =>
            {
                n.saturating_mul(n) / 10
            }
            _ => 0,
        };
        self.meter.charge(n.saturating_mul(n).saturating_mul(2).saturating_add(for_text + 11))?;
        sort_by(&mut self.meter, &[value.clone(), keys])
    }
}

/// A list of a constant is constant itself, and costs nothing.
const fn append_cost(body: &Node) -> u64 {
    if body.constant().is_some() { 2 } else { APPEND }
}

fn insert<'a>(
    entries: &mut Entries<'a>,
    key: &Value<'a>,
    value: Value<'a>,
) -> Result<(), EvaluationError> {
    let key = Key::of(key).ok_or(EvaluationError::NoSuchOverload)?;
    match entries.entry(key) {
        std::collections::btree_map::Entry::Vacant(place) => {
            place.insert(value);
            Ok(())
        }
        std::collections::btree_map::Entry::Occupied(place) => {
            let key = place.key().clone().into_value();
            let text = crate::functions::conversions::text_of(&key)?;
            Err(EvaluationError::invalid(format!("insert failed: key {text} already exists")))
        }
    }
}
