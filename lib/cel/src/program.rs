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
    /// What the evaluation took, in units of about 10 ns: at least the cost, as cel-go does not charge for everything that
    /// takes time, and at most twice the limit.
    pub work: u64,
}

/// The work of parsing and checking a byte of an expression. Measured: 0.1 µs, and 0.5 µs for lists in lists.
const WORK_OF_BYTE: u64 = 40;

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
        assert!(work("device.driver == 'd'") < 2000);
        assert!(work(r"'a'.matches('^[a-z]{1,10}$')") < 20_000);
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

    /// An expression in which a text of `10 << n` bytes stands for `$`.
    fn of_a_long_text(begins: &str, n: usize, last: &str) -> String {
        let binds: String =
            (1..=n).map(|n| format!("cel.bind(v{n}, v{0} + v{0}, ", n - 1)).collect();
        let last = last.replace('$', &format!("v{n}"));
        format!("cel.bind(v0, '{begins}', {binds}{last}){}", ")".repeat(n))
    }

    #[test]
    fn what_takes_time_or_memory_is_work_although_it_costs_little() {
        let long = |n, last: &str| of_a_long_text("aaaaaaaaaa", n, last);
        for expression in [
            long(
                11,
                "cel.bind(u, url('http://' + $ + '/'), lists.range(20000).all(x, u.getHost() != ''))",
            ),
            long(
                11,
                "cel.bind(u, url('http://h/?' + $), lists.range(20000).all(x, u.getQuery() != {}))",
            ),
            of_a_long_text(
                "aaaaaaaa!^",
                11,
                "cel.bind(u, url('http://h/' + $), lists.range(20000).all(x, u.getEscapedPath() != ''))",
            ),
            long(11, "lists.range(20000).all(x, !isURL('http://h/' + $ + '\\n'))"),
            of_a_long_text(
                "aaaaaaaaa.",
                11,
                "cel.bind(u, semver('1.0.0-' + $ + 'a'), lists.range(20000).all(x, u.compareTo(u) == 0))",
            ),
            of_a_long_text(
                "aaaaaaaaa.",
                11,
                "cel.bind(u, semver('1.0.0-' + $ + 'a'), lists.range(20000).all(x, u == u))",
            ),
            long(11, "cel.bind(u, url('http://' + $ + '/'), lists.range(20000).all(x, u == u))"),
            long(11, "cel.bind(m, {$: 1}, lists.range(20000).all(x, m[$] == 1))"),
            long(11, "cel.bind(m, {$: 1}, lists.range(20000).all(x, $ in m))"),
            long(11, "lists.range(20000).all(x, {$: 1} != {})"),
            long(11, "cel.bind(m, {$: 1}, lists.range(20000).all(x, m == m))"),
            long(11, "lists.range(20000).all(x, [$, $].sort() != [])"),
            long(11, "lists.range(20000).all(x, $.split('').size() != 0)"),
            long(11, "lists.range(20000).all(x, strings.quote($) != '')"),
            long(
                11,
                "cel.bind(o, optional.of($), lists.range(20000).all(x, o != optional.none()))",
            ),
            long(
                11,
                "cel.bind(a, lists.range(900).map(x, optional.of($)), lists.range(900).map(x, a).includes(1))",
            ),
            "cel.bind(r, lists.range(30000), r.map(x, r).includes(1))".to_owned(),
            "cel.bind(r, lists.range(1500).map(x, ''), r.map(x, r).includes(''))".to_owned(),
            format!("lists.range(30000).all(x, !(x in [-1{}]))", ", -1".repeat(1000)),
            format!("lists.range(30000).all(x, [x{}] != [])", ", 1".repeat(1000)),
            format!("lists.range(30000).all(x, true{})", " && true".repeat(300)),
            "lists.range(1100000).size() > 0".to_owned(),
        ] {
            let answer = answer(&expression, COST_LIMIT);
            let is_stopped = answer.outcome == Err(EvaluationError::CostLimitExceeded);
            assert!(
                is_stopped,
                "{}, {answer:?}",
                &expression[expression.len().saturating_sub(150)..]
            );
        }
    }

    #[test]
    fn a_loop_over_the_keys_of_a_map_costs_nothing_for_those_that_are_not_looked_at() {
        let expression = "cel.bind(m, lists.range(2000).transformMap(i, v, true), \
                          lists.range(2000).all(x, m.exists(k, true)))";
        let answer = answer(expression, COST_LIMIT);
        assert_eq!(answer.outcome, Ok(true));
        assert!(answer.work < 100_000, "{}", answer.work);
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
