//! The expressions of `cel.yaml` and `recorded.yaml`, whose answers are those of Kubernetes 1.37.

use std::collections::BTreeMap;

use kube_batch_cel::{Attribute, COST_LIMIT, Device, Program};
use serde::Deserialize;

#[derive(Deserialize)]
struct Cases {
    devices: BTreeMap<String, DeviceCase>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct DeviceCase {
    driver: String,
    #[serde(default, rename = "allowMultipleAllocations")]
    allow_multiple_allocations: bool,
    #[serde(default)]
    attributes: BTreeMap<String, BTreeMap<String, Scalar>>,
    #[serde(default)]
    capacity: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Bool(bool),
    Int(i64),
    String(String),
}

#[derive(Deserialize)]
struct Row {
    expr: String,
    expect: Expectation,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Expectation {
    holds: Vec<String>,
    fails: BTreeMap<String, String>,
    compile_error: Option<String>,
}

impl DeviceCase {
    fn device(&self) -> Device {
        let attributes = self.attributes.iter().map(|(name, value)| {
            let (kind, scalar) = value.iter().next().expect("a value");
            let attribute = match scalar {
                Scalar::Bool(value) => Attribute::Bool(*value),
                Scalar::Int(number) => Attribute::Int(*number),
                Scalar::String(text) if kind == "version" => {
                    text.parse::<semver::Version>().expect("a version").into()
                }
                Scalar::String(text) => Attribute::from(&**text),
            };
            (&**name, attribute)
        });
        let capacity = self
            .capacity
            .iter()
            .map(|(name, value)| (&**name, value["value"].parse().expect("a quantity")));
        Device::new(&self.driver, self.allow_multiple_allocations, attributes, capacity)
    }
}

/// What is wrong with the answers for one expression, if anything is.
fn difference(row: &Row, devices: &BTreeMap<String, Device>) -> Option<String> {
    let program = match (Program::compile(&row.expr), &row.expect.compile_error) {
        (Err(_), Some(_)) => return None,
        (Err(error), None) => return Some(format!("does not compile: {error}")),
        (Ok(_), Some(error)) => return Some(format!("compiles, but: {error}")),
        (Ok(program), None) => program,
    };
    devices.iter().find_map(|(name, device)| {
        let outcome = program.evaluate(device, COST_LIMIT).outcome;
        let expected = match row.expect.fails.get(name) {
            Some(error) => Err(error),
            None => Ok(row.expect.holds.contains(name)),
        };
        let agrees = match (&outcome, &expected) {
            (Ok(found), Ok(expected)) => found == expected,
            // Where the text is not that of a library of Go, it is the same.
            (Err(found), Err(expected)) => {
                let is_foreign = ["No Major.Minor", "CEL result of type"];
                is_foreign.iter().any(|text| expected.starts_with(text))
                    || found.to_string() == **expected
            }
            _ => false,
        };
        (!agrees).then(|| format!("device {name}: found {outcome:?}, expected {expected:?}"))
    })
}

fn cases() -> (Vec<Row>, BTreeMap<String, Device>) {
    let cases: Cases = serde_saphyr::from_str(include_str!("../cel.yaml")).expect("valid YAML");
    let devices = cases.devices.iter().map(|(name, case)| (name.clone(), case.device())).collect();
    (cases.rows, devices)
}

#[test]
fn every_expression_has_the_answers_of_kubernetes() {
    let (rows, devices) = cases();
    assert_eq!(rows.len(), 122);
    let differences: Vec<String> = rows
        .iter()
        .filter_map(|row| difference(row, &devices).map(|what| format!("{}\n    {what}", row.expr)))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[derive(Deserialize)]
struct Recording {
    rows: Vec<Recorded>,
}

#[derive(Deserialize)]
struct Recorded {
    expr: String,
    /// A letter for each device: `t`rue, `f`alse or `e`rror; or `none`: it does not compile.
    answers: String,
    /// The cost for each device, or one for all. Those of errors are left out.
    #[serde(default)]
    costs: Vec<Option<u64>>,
}

impl Recorded {
    /// What is wrong with our answers, if anything is.
    fn difference(&self, devices: &BTreeMap<String, Device>) -> Option<String> {
        let program = match (Program::compile(&self.expr), &*self.answers) {
            (Err(_), "none") => return None,
            (Err(error), _) => return Some(format!("does not compile: {error}")),
            (Ok(_), "none") => return Some("compiles".to_owned()),
            (Ok(program), _) => program,
        };
        devices.values().zip(self.answers.chars()).enumerate().find_map(
            |(index, (device, expected))| {
                let answer = program.evaluate(device, COST_LIMIT);
                let found = match answer.outcome {
                    Ok(true) => 't',
                    Ok(false) => 'f',
                    Err(_) => 'e',
                };
                let cost = self.costs.get(index).or(self.costs.first()).copied().flatten();
                let agrees = found == expected && cost.is_none_or(|cost| cost == answer.cost);
                (!agrees).then(|| format!("found {answer:?}, expected {expected} for {cost:?}"))
            },
        )
    }
}

#[test]
fn recorded_expressions_have_the_answers_and_costs_of_kubernetes() {
    let recording: Recording =
        serde_saphyr::from_str(include_str!("../recorded.yaml")).expect("valid YAML");
    let (_, devices) = cases();
    let differences: Vec<String> = recording
        .rows
        .iter()
        .filter_map(|row| row.difference(&devices).map(|what| format!("{}\n    {what}", row.expr)))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
