//! Compiled expressions.

use std::sync::Arc;

use crate::{
    checker::{Checked, check},
    device::Device,
    error::{CompileError, EvaluationError},
    evaluate::Evaluation,
    meter::Meter,
    parser::parse,
    reads::{Reads, reads},
    value::Value,
};

/// The cost at which Kubernetes stops the evaluation of a selector for one device:
/// `CELSelectorExpressionMaxCost` of `k8s.io/api/resource/v1`.
pub const COST_LIMIT: u64 = 1_000_000;

/// A selector of devices, ready to be evaluated.
///
/// ```
/// use kube_batch_cel::{Attribute, COST_LIMIT, Device, Program};
///
/// let program = Program::compile(r#"device.attributes["gpu.example.com"].model == "a100""#)?;
/// let device = Device::new("gpu.example.com", false, [("model", "a100".into())], []);
/// assert_eq!(program.evaluate(&device, COST_LIMIT).outcome, Ok(true));
/// # Ok::<(), kube_batch_cel::CompileError>(())
/// ```
#[derive(Debug)]
pub struct Program {
    checked: Checked,
    reads: Reads,
}

/// The answer for one device, and what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the device is selected, or why that cannot be said.
    pub outcome: Result<bool, EvaluationError>,
    /// The cost in the units of cel-go; at most the limit, unless the limit was exceeded.
    pub cost: u64,
}

impl Program {
    /// Parses and checks an expression.
    ///
    /// # Errors
    ///
    /// A [`CompileError`] for the first problem: the expression is not CEL, is nested more than 250
    /// levels deep, uses names or fields that do not exist, has types that do not agree, a constant
    /// that is not valid, or a result that is no boolean.
    pub fn compile(expression: &str) -> Result<Self, CompileError> {
        let checked = check(expression, &parse(expression)?)?;
        let reads = reads(&checked.node);
        Ok(Self { checked, reads })
    }

    /// Evaluates the expression for a device. Stops when the cost exceeds `limit`; see
    /// [`COST_LIMIT`].
    pub fn evaluate(&self, device: &Device, limit: u64) -> Answer {
        let meter = Meter::new(limit, Arc::clone(&self.checked.patterns));
        let mut evaluation = Evaluation::new(device, meter);
        let outcome = match evaluation.evaluate(&self.checked.node) {
            Ok(Value::Bool(value)) => Ok(value),
            Ok(other) => Err(EvaluationError::NotBool(other.type_name().into())),
            Err(error) => Err(error),
        };
        Answer { outcome, cost: evaluation.meter.cost().min(limit) }
    }

    /// The values of a device that the answer can depend on.
    pub const fn reads(&self) -> &Reads {
        &self.reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(expression: &str, limit: u64) -> Answer {
        let device = Device::new("gpu.example.com", false, [("model", "a100".into())], []);
        Program::compile(expression).unwrap().evaluate(&device, limit)
    }

    fn outcome(expression: &str) -> Result<bool, EvaluationError> {
        answer(expression, COST_LIMIT).outcome
    }

    #[test]
    fn a_decisive_operand_hides_an_error_on_either_side() {
        for expression in
            ["1 / 0 == 1 || true", "true || 1 / 0 == 1", "[0, 1].exists(x, 1 / x == 1)"]
        {
            assert_eq!(outcome(expression), Ok(true), "{expression}");
        }
        for expression in ["1 / 0 == 1 && false", "false && 1 / 0 == 1", "[0, 1].all(x, 1 / x > 1)"]
        {
            assert_eq!(outcome(expression), Ok(false), "{expression}");
        }
        for expression in ["1 / 0 == 1 || false", "1 / 0 == 1 && true", "[0, 1].all(x, 1 / x == 1)"]
        {
            assert_eq!(outcome(expression), Err(EvaluationError::DivisionByZero), "{expression}");
        }
    }

    #[test]
    fn nothing_hides_that_the_limit_was_exceeded() {
        for expression in [
            "lists.range(100).all(x, x >= 0) || true",
            "[1].exists(y, lists.range(100).all(x, x >= 0) || true)",
        ] {
            assert_eq!(answer(expression, 1000).outcome, Ok(true), "{expression}");
            let stopped = answer(expression, 300);
            assert_eq!(stopped.outcome, Err(EvaluationError::CostLimitExceeded), "{expression}");
            assert_eq!(stopped.cost, 300, "{expression}");
        }
    }

    #[test]
    fn costs_are_those_of_cel_go() {
        for (expression, cost) in [
            ("true", 0),
            (r#"device.driver == "gpu.example.com""#, 4),
            (r#"device.attributes["gpu.example.com"].model == "a100""#, 5),
            ("[1, 2, 3].all(x, x > 0)", 16),
            ("[1, 2, 3].map(x, x) == []", 40),
            ("cel.bind(x, device.driver, true)", 0),
        ] {
            assert_eq!(answer(expression, COST_LIMIT).cost, cost, "{expression}");
        }
    }

    #[test]
    fn reads_are_found_by_constant_paths() {
        let names = |expression: &str| match Program::compile(expression).unwrap().reads {
            Reads::Only(reads) => {
                reads.iter().map(|read| format!("{read:?}")).collect::<Vec<_>>().join(", ")
            }
            Reads::Everything => "everything".to_owned(),
        };
        let model = r#"Attribute { domain: "d", name: "model" }"#;
        for expression in [
            r#"device.attributes["d"].model == "a""#,
            r#"device.attributes.d.?model.hasValue()"#,
            r#"has(device.attributes["d"]["model"].x) || "model" in device.attributes["d"]"#,
            r#"cel.bind(d, device.attributes["d"], d.model == "a")"#,
            r#"[1].exists(x, cel.bind(d, device.attributes, d["d"].model == x))"#,
        ] {
            assert_eq!(names(expression), model, "{expression}");
        }
        assert_eq!(names("device.driver in [\"a\"]"), "Driver");
        assert_eq!(names("1 == 1"), "");
        for expression in [
            r#"device.attributes["d"].size() == 0"#,
            r#""d" in device.attributes"#,
            r#"device.attributes[device.driver].x"#,
            r#"device.attributes.exists(d, d == "x")"#,
            r#"dyn(device) == 1"#,
            r#"has(device.attributes.d)"#,
        ] {
            assert_eq!(names(expression), "everything", "{expression}");
        }
    }
}
