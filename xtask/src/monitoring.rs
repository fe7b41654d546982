//! Checks that the dashboards and the alerts use only metrics that exist.
//!
//! Every PromQL expression is parsed, and each metric, label and label value in it is looked up in
//! `docs/metrics.md`, which a test of the binary compares with the code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context, anyhow, bail};
use promql_parser::{
    label::{MatchOp, Matcher},
    parser::{self, Expr, LabelModifier, VectorSelector, token},
};
use serde_json::Value;

use xtask_launcher::build::root;

/// Labels that Prometheus adds to every scraped series; `namespace` and `pod` only in a cluster.
const TARGET: [&str; 4] = ["instance", "job", "namespace", "pod"];

/// Functions that are meaningful for counters only.
const FOR_COUNTERS: [&str; 3] = ["increase", "irate", "rate"];

/// Grafana variables that are used as PromQL durations.
const DURATIONS: [&str; 3] = ["$__rate_interval", "$__interval", "$__range"];

type Labels = BTreeSet<String>;

/// The dashboards, below `deploy/monitoring/`: for operators, and for users of a queue.
pub(crate) const DASHBOARDS: [&str; 2] = ["dashboard.json", "queues-dashboard.json"];

/// Every metric, label or label value in the dashboards and the alerts that does not exist.
pub(crate) fn violations() -> anyhow::Result<Vec<String>> {
    let metrics = Metrics::from_table(&read("docs/metrics.md")?)?;
    let mut violations = Vec::new();
    for file in DASHBOARDS {
        let dashboard = serde_json::from_str(&read(&format!("deploy/monitoring/{file}"))?)?;
        violations.extend(dashboard_violations(file, &metrics, &dashboard));
    }
    let alerts = serde_saphyr::from_str(&read("deploy/monitoring/alerts.yaml")?)
        .map_err(|error| anyhow!("deploy/monitoring/alerts.yaml: {error}"))?;
    violations.extend(alert_violations(&metrics, &alerts, &read("docs/install.md")?));
    Ok(violations)
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("read {path}"))
}

/// A row of `docs/metrics.md`.
struct Metric {
    type_: String,
    /// Labels, each with all its values if they are listed.
    labels: BTreeMap<String, Vec<String>>,
    only_grows: bool,
}

/// All metrics, by name.
struct Metrics(BTreeMap<String, Metric>);

impl Metrics {
    fn from_table(markdown: &str) -> anyhow::Result<Self> {
        let mut metrics = BTreeMap::new();
        for line in markdown.lines().filter(|line| line.starts_with("| `kube_batch_")) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let [_, name, type_, labels, _unit, meaning, _before, _] = cells[..] else {
                bail!("docs/metrics.md: a row needs 6 cells: {line}");
            };
            let metric = Metric {
                type_: type_.to_owned(),
                labels: labels_of_cell(labels),
                only_grows: type_ == "counter" || meaning.ends_with("(counter)"),
            };
            metrics.insert(name.trim_matches('`').to_owned(), metric);
        }
        Ok(Self(metrics))
    }

    /// The metric a series belongs to, and whether the series is a histogram bucket.
    fn of_series(&self, series: &str) -> Option<(&Metric, bool)> {
        let suffixes = ["_bucket", "_sum", "_count"];
        if let Some(metric) = self.0.get(series) {
            return (metric.type_ != "histogram").then_some((metric, false));
        }
        suffixes.iter().find_map(|suffix| {
            let metric = self.0.get(series.strip_suffix(suffix)?)?;
            (metric.type_ == "histogram").then_some((metric, *suffix == "_bucket"))
        })
    }
}

/// Reads `` `a` (`x`, `y`), `b` ``.
fn labels_of_cell(cell: &str) -> BTreeMap<String, Vec<String>> {
    let mut labels: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut last = String::new();
    let mut is_value = false;
    // Names are between backticks; the text between them shows how they belong together.
    for (position, part) in cell.split('`').enumerate() {
        if position % 2 == 0 {
            is_value = part.contains('(') || (is_value && !part.contains(')'));
        } else if is_value {
            labels.entry(last.clone()).or_default().push(part.to_owned());
        } else {
            part.clone_into(&mut last);
            labels.entry(last.clone()).or_default();
        }
    }
    labels
}

/// Checks one expression.
struct Reader<'m> {
    metrics: &'m Metrics,
    problems: Vec<String>,
}

impl Reader<'_> {
    /// The labels that the result of an expression can carry.
    fn labels(&mut self, expr: &Expr) -> Labels {
        match expr {
            Expr::VectorSelector(selector) => self.selector(selector),
            Expr::MatrixSelector(range) => self.selector(&range.vs),
            Expr::Paren(paren) => self.labels(&paren.expr),
            Expr::Unary(unary) => self.labels(&unary.expr),
            Expr::Subquery(subquery) => self.labels(&subquery.expr),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Labels::new(),
            Expr::Aggregate(aggregate) => {
                let inner = self.labels(&aggregate.expr);
                let keeps_series = [token::T_TOPK, token::T_BOTTOMK].contains(&aggregate.op.id());
                match &aggregate.modifier {
                    _ if keeps_series => inner,
                    None => Labels::new(),
                    Some(LabelModifier::Include(by)) => {
                        self.demand(&by.labels, &inner);
                        by.labels.iter().cloned().collect()
                    }
                    Some(LabelModifier::Exclude(without)) => {
                        self.demand(&without.labels, &inner);
                        inner.into_iter().filter(|l| !without.labels.contains(l)).collect()
                    }
                }
            }
            Expr::Binary(binary) => {
                let (left, right) = (self.labels(&binary.lhs), self.labels(&binary.rhs));
                if let Some(modifier) = &binary.modifier
                    && let Some(matching) = &modifier.matching
                {
                    self.demand(&matching.labels().labels, &left);
                    self.demand(&matching.labels().labels, &right);
                }
                if left.is_empty() { right } else { left }
            }
            Expr::Call(call) => {
                let mut labels = Labels::new();
                for argument in &call.args.args {
                    if FOR_COUNTERS.contains(&call.func.name) {
                        self.demand_counter(argument);
                    }
                    labels.extend(self.labels(argument));
                }
                if call.func.name == "histogram_quantile" && !labels.remove("le") {
                    self.problems.push("histogram_quantile needs the label le".to_owned());
                }
                labels
            }
            Expr::Extension(_) => {
                self.problems.push("PromQL extensions are not supported".to_owned());
                Labels::new()
            }
        }
    }

    fn selector(&mut self, selector: &VectorSelector) -> Labels {
        let name = selector.name.as_deref().unwrap_or_default();
        let Some((metric, is_bucket)) = self.metrics.of_series(name) else {
            self.problems.push(format!("series {name} does not exist"));
            return Labels::new();
        };
        let mut labels: Labels = metric.labels.keys().cloned().collect();
        labels.extend(TARGET.map(str::to_owned));
        labels.extend(is_bucket.then(|| "le".to_owned()));
        for matcher in &selector.matchers.matchers {
            if !labels.contains(&matcher.name) {
                self.problems.push(format!("{name} has no label {}", matcher.name));
            }
            let values = metric.labels.get(&matcher.name).filter(|values| !values.is_empty());
            for value in values.iter().flat_map(|_| plain_values(matcher)) {
                if values.is_some_and(|values| values.iter().all(|known| *known != value)) {
                    self.problems.push(format!(
                        "label {} of {name} never has the value {value}",
                        matcher.name
                    ));
                }
            }
        }
        labels
    }

    fn demand(&mut self, labels: &[String], among: &Labels) {
        for label in labels.iter().filter(|label| !among.contains(*label)) {
            self.problems.push(format!("cannot group by {label}: the label does not exist"));
        }
    }

    fn demand_counter(&mut self, argument: &Expr) {
        let Expr::MatrixSelector(range) = argument else { return };
        let name = range.vs.name.as_deref().unwrap_or_default();
        let found = self.metrics.of_series(name);
        if found.is_some_and(|(metric, _)| metric.type_ != "histogram" && !metric.only_grows) {
            self.problems.push(format!("{name} is not a counter"));
        }
    }
}

/// The values that a matcher names, without those that are variables or patterns.
fn plain_values(matcher: &Matcher) -> Vec<&str> {
    let values: Vec<&str> = match matcher.op {
        MatchOp::Equal | MatchOp::NotEqual => vec![&matcher.value],
        MatchOp::Re(_) | MatchOp::NotRe(_) => matcher.value.split('|').collect(),
    };
    let is_plain = |value: &&str| value.chars().all(|c| c.is_alphanumeric() || c == '_');
    values.into_iter().filter(is_plain).collect()
}

/// The labels of what an expression gives, or what is wrong with it.
fn read_expression(metrics: &Metrics, text: &str) -> Result<Labels, Vec<String>> {
    let text = DURATIONS.iter().fold(text.to_owned(), |text, name| text.replace(name, "5m"));
    let expr = parser::parse(&text).map_err(|error| vec![error])?;
    let mut reader = Reader { metrics, problems: Vec::new() };
    let labels = reader.labels(&expr);
    if reader.problems.is_empty() { Ok(labels) } else { Err(reader.problems) }
}

fn dashboard_violations(file: &str, metrics: &Metrics, dashboard: &Value) -> Vec<String> {
    let mut violations = Vec::new();
    let mut ids = BTreeSet::new();
    let list = |pointer: &str| dashboard.pointer(pointer).and_then(Value::as_array);
    for panel in list("/panels").into_iter().flatten() {
        let title = panel["title"].as_str().unwrap_or_default();
        let mut report = |what: &str| violations.push(format!("{file}, {title}: {what}"));
        if !ids.insert(panel["id"].to_string()) {
            report("another panel has the same id");
        }
        if panel["type"] == "row" {
            continue;
        }
        if panel["description"].as_str().is_none_or(str::is_empty) {
            report("it has no description");
        }
        let targets = panel["targets"].as_array();
        if targets.is_none_or(Vec::is_empty) {
            report("it has no expression");
        }
        for target in targets.into_iter().flatten() {
            let expr = target["expr"].as_str().unwrap_or_default();
            match read_expression(metrics, expr) {
                Ok(labels) => {
                    let legend = target["legendFormat"].as_str().unwrap_or_default();
                    for label in between(legend, "{{", "}}").filter(|l| !labels.contains(*l)) {
                        report(&format!("{expr}: the legend uses the unknown label {label}"));
                    }
                }
                Err(problems) => {
                    problems.iter().for_each(|problem| report(&format!("{expr}: {problem}")));
                }
            }
        }
    }
    for variable in list("/templating/list").into_iter().flatten() {
        let query = variable["query"].as_str().unwrap_or_default();
        let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let Some((expr, label)) = inner.and_then(|inner| inner.rsplit_once(", ")) else { continue };
        let known = read_expression(metrics, expr).is_ok_and(|labels| labels.contains(label));
        if !known {
            violations.push(format!("{file}, variable {}: {query}", variable["name"]));
        }
    }
    violations
}

fn alert_violations(metrics: &Metrics, alerts: &Value, manual: &str) -> Vec<String> {
    let mut violations = Vec::new();
    let mut names = BTreeSet::new();
    let groups = alerts["groups"].as_array().into_iter().flatten();
    for rule in groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()) {
        let name = rule["alert"].as_str().unwrap_or_default();
        let mut report = |what: &str| violations.push(format!("alert {name}: {what}"));
        if !names.insert(name) {
            report("another alert has the same name");
        }
        if !["info", "warning", "critical"].map(Value::from).contains(&rule["labels"]["severity"]) {
            report("its severity is not info, warning or critical");
        }
        if !manual.contains(&format!("| `{name}` |")) {
            report("docs/install.md does not list it");
        }
        let summary = rule["annotations"]["summary"].as_str().unwrap_or_default();
        if summary.is_empty() {
            report("it has no summary");
        }
        let expr = rule["expr"].as_str().unwrap_or_default();
        match read_expression(metrics, expr) {
            Ok(labels) => {
                for label in between(summary, "$labels.", " ").filter(|l| !labels.contains(*l)) {
                    report(&format!("the summary uses the unknown label {label}"));
                }
            }
            Err(problems) => problems.iter().for_each(|problem| report(problem)),
        }
    }
    for name in between(manual, "| `KubeBatch", "`") {
        if !names.contains(format!("KubeBatch{name}").as_str()) {
            violations.push(format!("docs/install.md: alert KubeBatch{name} does not exist"));
        }
    }
    violations
}

/// Every text between two marks.
fn between<'t>(text: &'t str, open: &'t str, close: &'t str) -> impl Iterator<Item = &'t str> {
    text.split(open).skip(1).filter_map(move |rest| rest.split(close).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        let table = "\
| name | type | labels | unit | meaning | in v0.5.0 |
|---|---|---|---|---|---|
| `kube_batch_writes_total` | counter | `write` (`bind`, `evict`), `result` | | W | |
| `kube_batch_leader` | gauge | | | L | |
| `kube_batch_retries` | gauge | | | R (counter) | |
| `kube_batch_lag_seconds` | histogram | `kind` | s | H | |
";
        Metrics::from_table(table).expect("a table")
    }

    #[test]
    fn tables_name_labels_and_their_values() {
        let metrics = metrics();
        let labels = &metrics.0["kube_batch_writes_total"].labels;
        assert_eq!(labels["write"], ["bind", "evict"]);
        assert!(labels["result"].is_empty() && labels.len() == 2);
    }

    #[test]
    fn good_expressions_say_their_labels() {
        let metrics = metrics();
        for (expr, expected) in [
            (
                "sum by (write) (rate(kube_batch_writes_total{result=~\"a|$b\"}[$__rate_interval]))",
                "write",
            ),
            (
                "histogram_quantile(0.9, sum by (le, kind) (rate(kube_batch_lag_seconds_bucket[5m])))",
                "kind",
            ),
            (
                "rate(kube_batch_retries[5m]) and on (job) kube_batch_leader == 1",
                "instance job namespace pod",
            ),
            ("topk(3, max by (job) (kube_batch_leader))", "job"),
            ("absent(kube_batch_leader == 1) > 0", "instance job namespace pod"),
        ] {
            let labels = read_expression(&metrics, expr).expect(expr);
            assert_eq!(labels.into_iter().collect::<Vec<_>>().join(" "), expected, "{expr}");
        }
    }

    #[test]
    fn bad_expressions_say_why() {
        let metrics = metrics();
        for (expr, problem) in [
            ("kube_batch_leaders", "series kube_batch_leaders does not exist"),
            ("kube_batch_lag_seconds", "series kube_batch_lag_seconds does not exist"),
            ("kube_batch_leader{kind=\"pods\"}", "kube_batch_leader has no label kind"),
            (
                "kube_batch_writes_total{write=~\"bind|bund\"}",
                "label write of kube_batch_writes_total never has the value bund",
            ),
            ("rate(kube_batch_leader[5m])", "kube_batch_leader is not a counter"),
            ("sum by (kind) (kube_batch_leader)", "cannot group by kind: the label does not exist"),
            (
                "histogram_quantile(0.9, kube_batch_lag_seconds_count)",
                "histogram_quantile needs the label le",
            ),
        ] {
            assert_eq!(read_expression(&metrics, expr), Err(vec![problem.to_owned()]), "{expr}");
        }
        assert!(read_expression(&metrics, "sum by (").is_err());
    }
}
