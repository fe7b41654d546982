//! The expressions of `cel.yaml`, whose answers are those of Kubernetes 1.37.

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

#[test]
fn every_expression_has_the_answers_of_kubernetes() {
    let cases: Cases = serde_saphyr::from_str(include_str!("cel.yaml")).unwrap();
    assert_eq!(cases.rows.len(), 122);
    let devices = cases.devices.iter().map(|(name, case)| (name.clone(), case.device())).collect();
    let differences: Vec<String> = cases
        .rows
        .iter()
        .filter_map(|row| difference(row, &devices).map(|what| format!("{}\n    {what}", row.expr)))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
