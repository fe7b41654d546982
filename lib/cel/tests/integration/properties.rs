//! Laws that hold for every expression and every device.

use std::sync::LazyLock;

use kube_batch_cel::{Attribute, COST_LIMIT, Device, Program, Read, Reads};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Cases {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    expr: String,
}

static EXPRESSIONS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let cases: Cases = serde_saphyr::from_str(include_str!("../cel.yaml")).expect("valid YAML");
    cases.rows.into_iter().map(|row| row.expr).collect()
});

const DOMAINS: [&str; 3] = ["gpu.example.com", "nic.example.com", "std.example.org"];
const NAMES: [&str; 8] = ["model", "cores", "mig", "fw", "addr", "pcie", "links", "nope"];
const CAPACITIES: [&str; 4] = ["memory", "engines", "bandwidth", "x"];

fn attribute() -> impl Strategy<Value = Attribute> {
    prop_oneof![
        (0_i64..200).prop_map(Attribute::Int),
        any::<bool>().prop_map(Attribute::Bool),
        proptest::collection::vec((0_i64..4).prop_map(Attribute::Int), 0..3)
            .prop_map(Attribute::List),
        "(a100|h100|l0|10\\.1\\.2\\.3|t4|[a-c]{0,3})".prop_map(|text| Attribute::from(&*text)),
        (0_u64..3, 0_u64..3)
            .prop_map(|(major, minor)| semver::Version::new(major, minor, 0).into()),
    ]
}

/// A value, or none, for each name in each domain.
fn device() -> impl Strategy<Value = Device> {
    let attributes =
        prop::collection::vec(prop::option::of(attribute()), DOMAINS.len() * NAMES.len());
    let capacity =
        prop::collection::vec(prop::option::of(0_u32..100), DOMAINS.len() * CAPACITIES.len());
    let driver = prop::sample::select(&DOMAINS[..2]);
    (driver, any::<bool>(), attributes, capacity).prop_map(
        |(driver, allow, attributes, capacity)| {
            let qualified = |names: &[&str]| -> Vec<String> {
                let pairs = DOMAINS
                    .iter()
                    .flat_map(|domain| names.iter().map(move |name| format!("{domain}/{name}")));
                pairs.collect()
            };
            let (of_attributes, of_capacity) = (qualified(&NAMES), qualified(&CAPACITIES));
            let attributes = of_attributes.iter().zip(attributes);
            let capacity = of_capacity.iter().zip(capacity);
            Device::new(
                driver,
                allow,
                attributes.filter_map(|(name, value)| Some((&**name, value?))),
                capacity.filter_map(|(name, value)| {
                    Some((&**name, format!("{}Gi", value?).parse().expect("a quantity")))
                }),
            )
        },
    )
}

/// `other` with the values that are read taken from `device`.
fn with_read_values(device: &Device, other: &Device, reads: &[Read]) -> Device {
    let is_read = |read: Read| reads.contains(&read);
    let driver = if is_read(Read::Driver) { device.driver() } else { other.driver() };
    let allow = if is_read(Read::AllowMultipleAllocations) { device } else { other };
    let mut attributes = Vec::new();
    let mut capacity = Vec::new();
    for domain in DOMAINS {
        for name in NAMES {
            let read = Read::Attribute { domain: domain.into(), name: name.into() };
            let from = if is_read(read) { device } else { other };
            let value = from.attribute(domain, name).cloned();
            attributes.extend(value.map(|value| (format!("{domain}/{name}"), value)));
        }
        for name in CAPACITIES {
            let read = Read::Capacity { domain: domain.into(), name: name.into() };
            let from = if is_read(read) { device } else { other };
            let value = from.capacity(domain, name);
            capacity.extend(value.map(|value| (format!("{domain}/{name}"), value)));
        }
    }
    Device::new(
        driver,
        allow.allow_multiple_allocations(),
        attributes.iter().map(|(name, value)| (&**name, value.clone())),
        capacity.iter().map(|(name, value)| (&**name, *value)),
    )
}

fn some_device() -> Device {
    let attributes = [("model", Attribute::from("a100")), ("cores", Attribute::Int(108))];
    Device::new(
        "gpu.example.com",
        false,
        attributes,
        [("memory", "40Gi".parse().expect("a quantity"))],
    )
}

/// Evaluates whatever compiles, and checks the bound of the cost.
fn survives(expression: &str, limit: u64) {
    if let Ok(program) = Program::compile(expression) {
        let answer = program.evaluate(&some_device(), limit);
        assert!(answer.cost <= limit, "{expression}: {}", answer.cost);
        let bounds = answer.cost..=limit * 2;
        assert!(bounds.contains(&answer.work), "{expression}: {}", answer.work);
    }
}

proptest! {
    #[test]
    fn any_text_is_compiled_or_rejected(text in any::<String>()) {
        survives(&text, 10_000);
    }

    #[test]
    fn any_text_of_the_grammars_characters_is_compiled_or_rejected(
        text in "[a-c0-9 .,?:+*/%!<>=&|(){}\\[\\]'\"\\\\-]{0,60}"
    ) {
        survives(&text, 10_000);
    }

    #[test]
    fn a_changed_expression_is_compiled_or_rejected(
        row in 0_usize..122, at in 0_usize..200, length in 0_usize..6, inserted in "[a-z0-9.,?:+*!=&|(){}\\[\\]\"]{0,3}"
    ) {
        let mut characters: Vec<char> = EXPRESSIONS[row].chars().collect();
        let from = at.min(characters.len());
        let to = (from + length).min(characters.len());
        characters.splice(from..to, inserted.chars());
        survives(&characters.into_iter().collect::<String>(), 10_000);
    }

    #[test]
    fn joined_parts_of_expressions_are_compiled_or_rejected(
        first in 0_usize..122, second in 0_usize..122, operator in "(&&|\\|\\||==|\\?|:|\\+|in|,)"
    ) {
        let all = &EXPRESSIONS;
        survives(&format!("({}) {operator} ({})", all[first], all[second]), 10_000);
    }

    #[test]
    fn devices_that_agree_on_what_is_read_get_the_same_answer(
        row in 0_usize..122, device in device(), other in device()
    ) {
        let Ok(program) = Program::compile(&EXPRESSIONS[row]) else { return Ok(()) };
        let Reads::Only(reads) = program.reads() else { return Ok(()) };
        let reads: Vec<Read> = reads.iter().cloned().collect();
        let other = with_read_values(&device, &other, &reads);
        let (one, two) = (program.evaluate(&device, COST_LIMIT), program.evaluate(&other, COST_LIMIT));
        prop_assert_eq!(one.outcome, two.outcome);
        prop_assert_eq!(one.cost, two.cost);
    }
}

/// What is evaluated `n` times is charged `n` times, so that no loop repeats work that is not counted.
#[test]
fn work_that_is_repeated_is_charged_each_time() {
    const N: u64 = 20;
    let device = some_device();
    for expression in EXPRESSIONS.iter() {
        let Ok(once) = Program::compile(expression) else { continue };
        let once = once.evaluate(&device, COST_LIMIT).work;
        // The name is one that no expression uses.
        let repeated = format!("lists.range({N}).all(unused, ({expression}) || true)");
        let Ok(repeated) = Program::compile(&repeated) else { continue };
        let repeated = repeated.evaluate(&device, COST_LIMIT);
        if once * N > COST_LIMIT {
            continue;
        }
        assert_eq!(repeated.outcome, Ok(true), "{expression}");
        // A pattern that is put together is built once.
        let least = if expression.contains("matches") { N } else { N * once };
        assert!(repeated.work >= least, "{expression}: {once} once, {} {N} times", repeated.work);
    }
}

/// Lists in lists, `levels` for each of `n` variables, which are then compared one by one.
fn nested_lists(n: usize, levels: usize) -> String {
    let value = |of: String| format!("{}{of}{}", "[".repeat(levels), "]".repeat(levels));
    let binds: Vec<String> = (0..n)
        .map(|level| {
            let inner = if level == 0 { "1".to_owned() } else { format!("v{}", level - 1) };
            format!("cel.bind(v{level}, {}, ", value(format!("dyn({inner})")))
        })
        .collect();
    let terms: Vec<String> = (0..n).map(|level| format!("v{level} == v{level}")).collect();
    format!("{}{}{}", binds.concat(), terms.join(" && "), ")".repeat(n))
}

/// Expressions that would take much time or memory without limits.
fn hostile() -> Vec<String> {
    let chain = |first: &str, next: &str, n: usize, last: &str| {
        let mut text = String::new();
        for level in 0..n {
            let value = if level == 0 {
                first.to_owned()
            } else {
                next.replace('$', &format!("v{}", level - 1))
            };
            text.push_str(&format!("cel.bind(v{level}, {value}, "));
        }
        text.push_str(&last.replace('$', &format!("v{}", n - 1)));
        text.push_str(&")".repeat(n));
        text
    };
    vec![
        nested_lists(9, 100),
        nested_lists(90, 10),
        nested_lists(100, 100),
        "lists.range(1000000000).size() == 0".to_owned(),
        "lists.range(9223372036854775807).size() == 0".to_owned(),
        "cel.bind(r, lists.range(400000), r.exists_one(x, r.exists_one(y, false)))".to_owned(),
        "cel.bind(r, lists.range(400000), r.filter(x, r.filter(y, false).size() > 0).size() == 0)"
            .to_owned(),
        chain("'0123456789'", "$ + $", 60, "$.size() == 0"),
        chain("'0123456789'", "$.replace('', $)", 60, "$.size() == 0"),
        chain("'0123456789'", "[$, $, $, $].join($)", 60, "$.size() == 0"),
        chain("'0123456789'", "'%s%s%s%s'.format([$, $, $, $])", 60, "$.size() == 0"),
        chain("[1]", "$ + $", 60, "$.size() == 0"),
        chain("[1]", "[$, $]", 60, "$ == $"),
        chain("[1]", "[$, $]", 60, "'%s'.format([$]) == ''"),
        chain("[1]", "[$, $]", 60, "dyn($).flatten(100).size() == 0"),
        chain("{'a': 1}", "{'a': $, 'b': $}", 60, "$ == $"),
        chain("{'a': 1}", "{$: $}", 60, "$ == $"),
        chain("[[]]", "[$, $]", 60, "true"),
        // A value that is needed late is evaluated deep within others.
        chain("1", &format!("{}${}", "1 + (".repeat(100), ")".repeat(100)), 60, "$ > 0"),
        chain("[1]", &format!("{}${}", "[".repeat(100), "]".repeat(100)), 100, "$ == $"),
        chain("optional.none()", "optional.of($)", 60, "$ == $"),
        format!(
            "lists.range(100000).exists(x, '{}'.matches('(a*)*' + string(x)))",
            "a".repeat(500)
        ),
        "lists.range(100000).exists(x, 'x'.matches('(\\\\pL{1,200}){1,200}' + string(x)))"
            .to_owned(),
        "'a'.matches('((((a{1,1000}){1,1000}){1,1000}){1,1000})')".to_owned(),
        chain("'0123456789'", "$ + $", 18, "lists.range(100000).exists(x, $.size() == x)"),
        chain("'0123456789'", "$ + $", 16, "$.findAll('.*[^0-9]|[0-9]').size() == 0"),
        "lists.range(100000).sort() == [] || lists.range(100000).distinct() == []".to_owned(),
        "'%.1000000000f'.format([1.0]) == ''".to_owned(),
        "lists.range(1000).map(x, lists.range(1000)).flatten().size() == 0".to_owned(),
    ]
}

#[test]
fn hostile_expressions_stop() {
    // Each takes less than a second; without the limits most would never end.
    for expression in hostile() {
        survives(&expression, COST_LIMIT);
    }
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{1: ", "}"),
        ("!", ""),
        ("-", ""),
        ("-(", ")"),
        ("!(", ")"),
        ("size(", ")"),
        ("true ? true : ", ""),
        ("[1].map(x, ", ")"),
        ("cel.bind(x, 1, ", ")"),
        ("1 + ", ""),
        ("true && ", ""),
        ("true || ", ""),
        ("true && (", ")"),
        ("{", "}"),
        ("[?", "]"),
    ] {
        for n in [10, 200, 249, 250, 251, 400, 10_000, 100_000] {
            survives(&format!("{}true{}", open.repeat(n), close.repeat(n)), COST_LIMIT);
        }
    }
    for suffix in
        [".a", "[0]", ".?a", ".size()", " + 1", " == 1", " in [1]", ".map(x, x)", " ? true : false"]
    {
        for n in [10, 200, 399, 400, 10_000] {
            survives(&format!("device{}", suffix.repeat(n)), COST_LIMIT);
            survives(&format!("dyn(1){}", suffix.repeat(n)), COST_LIMIT);
        }
    }
}

#[test]
fn nesting_is_allowed_as_deep_as_in_cel_go() {
    let nested = |n: usize| format!("{}true{}", "(".repeat(n), ")".repeat(n));
    assert!(Program::compile(&nested(240)).is_ok());
    assert!(Program::compile(&nested(250)).is_err());
}

#[test]
fn values_may_be_nested_deeply() {
    let program = Program::compile(&nested_lists(9, 100)).expect("it compiles");
    assert_eq!(program.evaluate(&some_device(), COST_LIMIT).outcome, Ok(true));
    assert!(Program::compile(&nested_lists(100, 100)).is_err());
}

#[test]
fn programs_can_be_shared_by_threads() {
    fn is_shareable<T: Send + Sync>() {}
    is_shareable::<Program>();
    is_shareable::<Device>();
}
