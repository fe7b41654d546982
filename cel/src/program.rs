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

/// An expression that was compiled, and what that took.
#[derive(Debug)]
pub struct Compilation {
    /// The program, or why there is none.
    pub program: Result<Program, CompileError>,
    /// What compiling took, in units of about 10 ns: at most about 4.5 million.
    pub work: u64,
}

/// The answer for one device, and what it cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the device is selected, or why that cannot be said.
    pub outcome: Result<bool, EvaluationError>,
    /// The cost in the units of cel-go; at most the limit, unless the limit was exceeded.
    pub cost: u64,
    /// What the evaluation took, in units of about 10 ns. At least the cost: cel-go does not charge for everything
    /// that takes time.
    pub work: u64,
}

/// The work of parsing and checking a byte of an expression. Measured: 0.1 µs.
const WORK_OF_BYTE: u64 = 10;

impl Program {
    /// Parses and checks an expression.
    ///
    /// # Errors
    ///
    /// A [`CompileError`] for the first problem: the expression is not CEL, is nested more than 250
    /// levels deep, uses names or fields that do not exist, has types that do not agree, a constant
    /// that is not valid, or a result that is no boolean.
    pub fn compile(expression: &str) -> Result<Self, CompileError> {
        Self::compile_metered(expression).program
    }

    /// As [`Self::compile`], and says what it took.
    pub fn compile_metered(expression: &str) -> Compilation {
        let mut work = WORK_OF_BYTE * expression.len() as u64;
        let program = parse(expression).and_then(|parsed| check(expression, &parsed, &mut work));
        let program = program.map(|checked| {
            let reads = reads(&checked.node);
            Self { checked, reads }
        });
        Compilation { program, work }
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
        let meter = &evaluation.meter;
        Answer { outcome, cost: meter.cost().min(limit), work: meter.spent() }
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

    #[test]
    fn an_answer_says_what_it_took_beside_its_cost() {
        // Each of 98 regular expressions is built.
        let expression = r"lists.range(98).exists(x, 'x'.matches('\\pL{1,2}' + string(x)))";
        let answer = answer(expression, COST_LIMIT);
        assert!(answer.cost < 5000, "{}", answer.cost);
        assert_eq!(answer.outcome, Err(EvaluationError::CostLimitExceeded));
        assert!(answer.work > COST_LIMIT, "{}", answer.work);
    }

    #[test]
    fn a_regular_expression_that_is_put_together_is_bounded() {
        let doubled = |n: usize| {
            let binds: String =
                (1..n).map(|n| format!("cel.bind(v{n}, v{0} + v{0}, ", n - 1)).collect();
            format!("cel.bind(v0, '\\\\PL', {binds}'a'.matches(v{})){}", n - 1, ")".repeat(n - 1))
        };
        assert_eq!(outcome(&doubled(3)), Ok(false));
        // 128 classes are 5 MB, and 512 KB of text are not even read.
        for n in [8, 18] {
            assert_eq!(outcome(&doubled(n)), Err(EvaluationError::invalid("it is too large")));
        }
    }

    #[test]
    fn compiling_says_what_it_took_also_if_it_fails() {
        let work = |expression: &str| Program::compile_metered(expression).work;
        assert!(work("device.driver == 'd'") < 1000);
        assert!(work(r"'a'.matches('^[a-z]{1,10}$')") < 10_000);
        // 8 ms, of which most is building.
        assert!(work(r"'a'.matches('^.{1,500}$')") > 800_000);
        assert!(work(&format!("'a'.matches('{}') && x", "a?".repeat(1000))) > 1_500_000);
        let many: Vec<String> =
            (0..100).map(|n| format!(r"'a'.matches('{n}\\pL{{1,5}}')")).collect();
        let compilation = Program::compile_metered(&many.join(" || "));
        let error = compilation.program.unwrap_err();
        assert!(error.message.contains("too large together"), "{error}");
        assert!(compilation.work < 5_000_000, "{}", compilation.work);
    }

    #[test]
    fn durations_and_zones_that_overflow_are_errors() {
        for expression in [
            "duration('170141183460469231731687303715.884105727s' + '') > duration('0s')",
            "duration('9223372036s170141183460469231731687303715884105727ns' + '') > duration('0s')",
            "timestamp('2020-01-01T00:00:00Z').getHours('-1:-2147483648') > 0",
        ] {
            assert!(outcome(expression).is_err(), "{expression}");
        }
    }
}
