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
