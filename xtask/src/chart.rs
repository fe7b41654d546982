//! The Helm chart, derived from the manifests of `deploy/`.
//!
//! A template is a manifest in which named places are replaced by values. The rest is copied, and a
//! place that is not found is an error, so that chart and manifests stay equal. `values.yaml`,
//! `_helpers.tpl` and templates that only the chart has are written by hand; [`violations`] compares
//! the values with the manifests and the manual. The end-to-end tests run Helm on the result.

use std::{collections::BTreeMap, fs, iter};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use xtask_launcher::build::{self, root};

use crate::{monitoring, values::Values};

/// Files: path below the root, and content.
pub(crate) type Files = BTreeMap<String, String>;

/// The version of the workspace, and so of the chart and of the image it runs.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The API group of v0.5.0, whose CRDs are optional.
const OLDER_GROUP: &str = "scheduling.incubator.k8s.io";

/// A place in a manifest, and the template that takes it.
struct Place {
    /// A line without its indentation, or the beginning of one up to its first blank or colon. What
    /// is nested in it belongs to it.
    at: &'static str,
    /// Indented as the place is; `{+2}` is the indentation and 2 more.
    template: &'static str,
}

/// A manifest and the template made of it.
struct Template {
    /// Below `deploy/`.
    manifest: &'static str,
    /// Below `deploy/chart/templates/`.
    template: &'static str,
    /// The value without which the chart leaves it out; empty if it never does.
    condition: &'static str,
    places: &'static [Place],
}

/// A field that has the YAML of the value of its name, and is left out where that is empty.
macro_rules! value {
    ($field:literal, $indentation:literal) => {
        concat!(
            "{{- with .Values.",
            $field,
            " }}\n",
            $field,
            ":\n{{- toYaml . | nindent ",
            $indentation,
            " }}\n{{- end }}"
        )
    };
}

/// Without peers no rule at all: a rule without peers would let everyone in.
const INGRESS: &str = "\
{{- with .Values.networkPolicy.metricsFrom }}
ingress:
- from:
  {{- toYaml . | nindent {+2} }}
  ports:
  - port: http
    protocol: TCP
{{- else }}
ingress: []
{{- end }}";

const EGRESS: &str = "\
egress:
# DNS, to any address: some clusters have a cache on each node.
- ports:
  - port: 53
    protocol: UDP
  - port: 53
    protocol: TCP
# The API server, behind its Service.
- ports:
  {{- range .Values.networkPolicy.apiServer.ports }}
  - port: {{ . }}
    protocol: TCP
  {{- end }}
  {{- with .Values.networkPolicy.apiServer.to }}
  to:
  {{- toYaml . | nindent {+2} }}
  {{- end }}";

const MONITOR_LABELS: &str = "\
labels:
  {{- include \"kube-batch.labels\" . | nindent {+2} }}
  {{- with .Values.monitoring.serviceMonitor.labels }}
  {{- toYaml . | nindent {+2} }}
  {{- end }}";

const DEPLOYMENT: [Place; 11] = [
    at("replicas:", "replicas: {{ .Values.replicaCount }}"),
    at(
        "serviceAccountName:",
        concat!(
            value!("imagePullSecrets", "{+0}"),
            "\nserviceAccountName: {{ include \"kube-batch.fullname\" . }}"
        ),
    ),
    at(
        "priorityClassName:",
        "{{- with .Values.priorityClassName }}\npriorityClassName: {{ . }}\n{{- end }}",
    ),
    at(
        "image:",
        "image: \"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}\"",
    ),
    at("imagePullPolicy:", "imagePullPolicy: {{ .Values.image.pullPolicy }}"),
    at(
        "- --create-default-queue",
        "{{- if .Values.defaultQueue.create }}\n- --create-default-queue\n{{- end }}",
    ),
    at("- --leader-elect", "{{- if .Values.leaderElection.enabled }}\n- --leader-elect"),
    at("- --lock-object-namespace=$(NAMESPACE)", LOCK_AND_MORE),
    at("resources:", "resources:\n{{- toYaml .Values.resources | nindent {+2} }}"),
    at("nodeSelector:", value!("nodeSelector", "{+2}")),
    at("tolerations:", value!("tolerations", "{+0}")),
];

/// It ends what the place of `--leader-elect` begins.
const LOCK_AND_MORE: &str = "\
- --lock-object-namespace=$(NAMESPACE)
{{- end }}
{{- with .Values.extraArgs }}
{{- toYaml . | nindent {+0} }}
{{- end }}";

const TEMPLATES: [Template; 15] = [
    template("rbac.yaml", "rbac.yaml", "", &[]),
    template("user-roles.yaml", "user-roles.yaml", "", &[]),
    template(
        "components/admission/policy.yaml",
        "admission.yaml",
        "admission.enabled",
        &[at("policyName:", "policyName: {{ include \"kube-batch.fullname\" . }}-podgroups")],
    ),
    template(
        "components/admission/bound-queue.yaml",
        "admission-bound-queue.yaml",
        "admission.enabled",
        &[at("policyName:", "policyName: {{ include \"kube-batch.fullname\" . }}-bound-queue")],
    ),
    template(
        "components/queue-tree/policy.yaml",
        "queue-tree.yaml",
        "admission.queueTree.enabled",
        &[at("policyName:", "policyName: {{ include \"kube-batch.fullname\" . }}-queue-tree")],
    ),
    template(
        "components/queue-promises/policy.yaml",
        "queue-promises.yaml",
        "admission.queuePromises.enabled",
        &[
            at("policyName:", "policyName: {{ include \"kube-batch.fullname\" . }}-queue-promises"),
            at(
                "expression: \"'kube-batch:queue-promises'\"",
                "expression: {{ .Values.admission.queuePromises.group | squote | quote }}",
            ),
        ],
    ),
    template(
        "components/queue-deletion/policy.yaml",
        "queue-deletion.yaml",
        "admission.queueDeletion.enabled",
        &[at("policyName:", "policyName: {{ include \"kube-batch.fullname\" . }}-queue-deletion")],
    ),
    template(
        "components/job-evictions/policy.yaml",
        "job-evictions.yaml",
        "admission.jobEvictions.enabled",
        &[at("policyName:", "policyName: {{ include \"kube-batch.fullname\" . }}-job-evictions")],
    ),
    template(
        "components/network-policy/policy.yaml",
        "network-policy.yaml",
        "networkPolicy.enabled",
        &[at("ingress:", INGRESS), at("egress:", EGRESS)],
    ),
    template(
        "components/flow-control/flow-control.yaml",
        "flow-control.yaml",
        "flowControl.enabled",
        &[at(
            "nominalConcurrencyShares:",
            "nominalConcurrencyShares: {{ .Values.flowControl.nominalConcurrencyShares }}",
        )],
    ),
    template(
        "configmap.yaml",
        "configmap.yaml",
        "",
        &[at("scheduler.yaml:", "scheduler.yaml: |\n{{- .Values.schedulerConf | nindent {+2} }}")],
    ),
    template("deployment.yaml", "deployment.yaml", "", &DEPLOYMENT),
    template("disruption-budget.yaml", "disruption-budget.yaml", "", &[]),
    template("service.yaml", "service.yaml", "", &[]),
    template(
        "monitoring/service-monitor.yaml",
        "service-monitor.yaml",
        "monitoring.serviceMonitor.enabled",
        &[at("labels:", MONITOR_LABELS)],
    ),
];

const fn template(
    manifest: &'static str,
    template: &'static str,
    condition: &'static str,
    places: &'static [Place],
) -> Template {
    Template { manifest, template, condition, places }
}

const fn at(at: &'static str, template: &'static str) -> Place {
    Place { at, template }
}

/// The files that are generated from those of `deploy/`, and from the CRDs and the admission policy, which are
/// generated too.
pub(crate) fn files(generated: &Files) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = vec![("deploy/chart/Chart.yaml".to_owned(), description())];
    for (path, content) in generated {
        let Some(name) = path.strip_prefix("crds/") else { continue };
        if !name.starts_with(OLDER_GROUP) {
            files.push((format!("deploy/chart/crds/{name}"), content.clone()));
            continue;
        }
        files.push((format!("deploy/components/v1alpha1/{name}"), content.clone()));
        let template = crd_template(name, content).with_context(|| format!("template {name}"))?;
        files.push((format!("deploy/chart/templates/{name}"), template));
    }
    for template in &TEMPLATES {
        let manifest = format!("deploy/{}", template.manifest);
        let text = generated.get(&manifest).cloned().map_or_else(|| read(&manifest), Ok)?;
        let content =
            template.content(&text).with_context(|| format!("make a template of {manifest}"))?;
        files.push((format!("deploy/chart/templates/{}", template.template), content));
    }
    for name in iter::once("alerts.yaml").chain(monitoring::DASHBOARDS) {
        let content = read(&format!("deploy/monitoring/{name}"))?;
        files.push((format!("deploy/chart/files/{name}"), content));
    }
    let schema = Values::read(&read("deploy/chart/values.yaml")?)?.schema;
    let schema = format!("{}\n", serde_json::to_string_pretty(&schema)?);
    files.push(("deploy/chart/values.schema.json".to_owned(), schema));
    let alerts = read("deploy/monitoring/alerts.yaml")?;
    files.push(("deploy/monitoring/prometheus-rule.yaml".to_owned(), prometheus_rule(&alerts)));
    Ok(files)
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("read {path}"))
}

fn description() -> String {
    format!(
        "\
# Generated by `cargo xtask codegen`; do not edit.
apiVersion: v2
name: kube-batch
description: \"A batch scheduler for Kubernetes: gangs start whole or not at all, queues get their fair share\"
type: application
version: {VERSION}
appVersion: {VERSION}
# The first that knows every field of the manifests.
kubeVersion: \">=1.27.0-0\"
"
    )
}

/// The template of an optional CRD. Helm's `crds/` takes no conditions.
///
/// It leaves a CRD alone that another owns, such as one that `kubectl apply` or the `crds/` of an
/// earlier chart created: Helm would refuse the whole release. And it never deletes a CRD, because that
/// deletes all objects of the kind.
fn crd_template(file: &str, manifest: &str) -> anyhow::Result<String> {
    ensure!(!manifest.contains("{{"), "it contains braces that Helm would evaluate");
    let (_, manifest) = manifest.split_once('\n').context("it has no header")?;
    let annotations = "  annotations:\n";
    ensure!(manifest.matches(annotations).count() == 1, "it has no annotations");
    let keep = format!("{annotations}    helm.sh/resource-policy: keep\n");
    let manifest = manifest.replacen(annotations, &keep, 1);
    let (group, plural) =
        file.trim_end_matches(".yaml").split_once('_').context("it has no kind")?;
    Ok(format!(
        "\
{{{{- /* Generated from the Rust types by `cargo xtask codegen`; do not edit. */ -}}}}
{{{{- if .Values.crds.v1alpha1 }}}}
{{{{- /* One that this release does not own stays as it is. */ -}}}}
{{{{- $crd := lookup \"apiextensions.k8s.io/v1\" \"CustomResourceDefinition\" \"\" \"{plural}.{group}\" }}}}
{{{{- $owner := dig \"metadata\" \"annotations\" (dict) $crd }}}}
{{{{- $name := dig \"meta.helm.sh/release-name\" \"\" $owner }}}}
{{{{- $namespace := dig \"meta.helm.sh/release-namespace\" \"\" $owner }}}}
{{{{- if or (not $crd) (and (eq $name .Release.Name) (eq $namespace .Release.Namespace)) }}}}
{manifest}{{{{- end }}}}
{{{{- end }}}}
"
    ))
}

fn prometheus_rule(alerts: &str) -> String {
    let mut text = "\
# Generated from alerts.yaml by `cargo xtask codegen`; do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kube-batch
  namespace: kube-batch-system
  labels:
    app.kubernetes.io/name: kube-batch
spec:
"
    .to_owned();
    for line in alerts.lines().filter(|line| !line.starts_with('#')) {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

impl Template {
    fn content(&self, manifest: &str) -> anyhow::Result<String> {
        ensure!(!manifest.contains("{{"), "it contains braces that Helm would evaluate");
        let lines: Vec<&str> = manifest.lines().collect();
        let mut content = format!(
            "{{{{- /* Generated from deploy/{} by `cargo xtask codegen`; do not edit. */ -}}}}\n",
            self.manifest
        );
        if !self.condition.is_empty() {
            content.push_str(&format!("{{{{- if .Values.{} }}}}\n", self.condition));
        }
        let mut n_found = vec![0; self.places.len()];
        let mut row = 0;
        while let Some(line) = lines.get(row) {
            let trimmed = line.trim_start();
            let indentation = line.len() - trimmed.len();
            let place = self.places.iter().position(|place| place.is_at(trimmed));
            let mut next = row + 1;
            let common;
            let template = if let Some(place) = place {
                n_found[place] += 1;
                next = end_of_block(&lines, row);
                self.places[place].template
            } else {
                common = common_place(trimmed, row.checked_sub(1).map(|above| lines[above]));
                &common
            };
            for line in template.lines() {
                let line = fill_indentation(line, indentation);
                let pad = if line.is_empty() { 0 } else { indentation };
                content.extend(iter::repeat_n(' ', pad));
                content.push_str(&line);
                content.push('\n');
            }
            if template.is_empty() {
                content.push('\n');
            }
            row = next;
        }
        for (place, n_found) in self.places.iter().zip(n_found) {
            ensure!(n_found == 1, "`{}` stands there {n_found} times, not once", place.at);
        }
        if !self.condition.is_empty() {
            content.push_str("{{- end }}\n");
        }
        Ok(content)
    }
}

impl Place {
    fn is_at(&self, line: &str) -> bool {
        line.strip_prefix(self.at).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }
}

/// What every template names by value: names, the namespace, and labels.
fn common_place(line: &str, above: Option<&str>) -> String {
    const FULL_NAME: &str = "{{ include \"kube-batch.fullname\" . }}";
    match line {
        "namespace: kube-batch-system" => "namespace: {{ .Release.Namespace }}".to_owned(),
        "app.kubernetes.io/name: kube-batch" => {
            // Only the labels of the object itself are indented by four.
            let labels = if above == Some("  labels:") { "labels" } else { "selectorLabels" };
            format!("{{{{- include \"kube-batch.{labels}\" . | nindent {{+0}} }}}}")
        }
        _ => match line.strip_prefix("name: kube-batch") {
            Some(suffix) => format!("name: {FULL_NAME}{suffix}"),
            None => line.to_owned(),
        },
    }
}

/// The row after the last one that is nested in `row`, items of a list under their key included.
fn end_of_block(lines: &[&str], row: usize) -> usize {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let own = indentation(lines[row]);
    let is_key = !lines[row].trim_start().starts_with("- ");
    let mut end = row + 1;
    for (row, line) in lines.iter().enumerate().skip(row + 1) {
        let is_item = is_key && indentation(line) == own && line.trim_start().starts_with("- ");
        let is_comment = line.trim_start().starts_with('#');
        if is_item || (indentation(line) > own && !is_comment) {
            end = row + 1;
        } else if !is_comment {
            break;
        }
    }
    end
}

/// Replaces `{+0}` and `{+2}` by numbers.
fn fill_indentation(line: &str, indentation: usize) -> String {
    line.replace("{+0}", &indentation.to_string()).replace("{+2}", &(indentation + 2).to_string())
}

/// Differences between the chart's values, the manifests and the rest of the repository.
pub(crate) fn violations() -> anyhow::Result<Vec<String>> {
    let values = yaml("deploy/chart/values.yaml")?;
    let deployment = yaml("deploy/deployment.yaml")?;
    let config = yaml("deploy/configmap.yaml")?;
    let mut violations = Vec::new();
    let mut compare = |what: &str, one: Option<&Value>, other: Option<&Value>| {
        if one.is_none() || one != other {
            violations.push(format!("deploy: {what} differ"));
        }
    };
    let pod = "/spec/template/spec";
    for (value, manifest) in [
        ("/replicaCount", "/spec/replicas".to_owned()),
        ("/image/pullPolicy", format!("{pod}/containers/0/imagePullPolicy")),
        ("/resources", format!("{pod}/containers/0/resources")),
        ("/priorityClassName", format!("{pod}/priorityClassName")),
        ("/nodeSelector", format!("{pod}/nodeSelector")),
        ("/tolerations", format!("{pod}/tolerations")),
    ] {
        let what = format!("{value} of the chart's values and {manifest} of deployment.yaml");
        compare(&what, values.pointer(value), deployment.pointer(&manifest));
    }
    let repository = values.pointer("/image/repository").and_then(Value::as_str);
    let image = Value::from(format!("{}:{VERSION}", repository.unwrap_or_default()));
    compare(
        "the image of deployment.yaml and that of the chart's values and the workspace's version",
        deployment.pointer(&format!("{pod}/containers/0/image")),
        Some(&image),
    );
    let conf = config.pointer("/data/scheduler.yaml");
    compare("the configurations of chart and ConfigMap", values.pointer("/schedulerConf"), conf);
    let conf: Value = serde_saphyr::from_str(conf.and_then(Value::as_str).unwrap_or_default())?;
    let sample = yaml("examples/scheduler.yaml")?;
    compare("the configurations of ConfigMap and examples", Some(&conf), Some(&sample));
    let manual = read("docs/install.md")?;
    for path in Values::read(&read("deploy/chart/values.yaml")?)?.paths {
        if !manual.contains(&format!("`{path}`")) {
            violations.push(format!("docs/install.md: does not list the value {path}"));
        }
    }
    violations.extend(container_violations()?);
    Ok(violations)
}

/// Checks the versions and the user that the Containerfile repeats, and the flags with which
/// `cargo xtask static-binary` builds what it runs.
fn container_violations() -> anyhow::Result<Vec<String>> {
    let (text, toolchain) = (read("Containerfile")?, read("rust-toolchain.toml")?);
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = "));
    let channel = channel.context("rust-toolchain.toml has no channel")?.trim_matches('"');
    let deployment = yaml("deploy/deployment.yaml")?;
    let security = &deployment["spec"]["template"]["spec"]["securityContext"];
    let wanted = [
        format!("USER {}:{}\n", security["runAsUser"], security["runAsGroup"]),
        format!("RUSTFLAGS=\"{}\"", build::STATIC_FLAGS),
        format!("FROM rust:{channel}-"),
        format!("RUSTUP_TOOLCHAIN={channel} "),
        format!("image.version=\"{VERSION}\""),
        format!("--tag kube-batch:{VERSION} "),
    ];
    let missing = wanted.into_iter().filter(|wanted| !text.contains(wanted));
    Ok(missing.map(|wanted| format!("Containerfile: does not say {}", wanted.trim_end())).collect())
}

fn yaml(path: &str) -> anyhow::Result<Value> {
    match serde_saphyr::from_str(&read(path)?) {
        Ok(value) => Ok(value),
        Err(error) => bail!("{path}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "\
metadata:
  name: kube-batch
  namespace: kube-batch-system
  labels:
    app.kubernetes.io/name: kube-batch
spec:
  # Why these.
  tolerations:
  - key: a
  # Why b.
  - key: b
  # Why this.
  selector:
    app.kubernetes.io/name: kube-batch
";

    #[test]
    fn places_give_way_and_the_rest_is_copied() {
        const PLACES: [Place; 1] =
            [at("tolerations:", "tolerations: {{ .Values.t | nindent {+2} }}")];
        let content =
            template("x.yaml", "x.yaml", "", &PLACES).content(MANIFEST).expect("a template");
        let expected = "\
{{- /* Generated from deploy/x.yaml by `cargo xtask codegen`; do not edit. */ -}}
metadata:
  name: {{ include \"kube-batch.fullname\" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include \"kube-batch.labels\" . | nindent 4 }}
spec:
  # Why these.
  tolerations: {{ .Values.t | nindent 4 }}
  # Why this.
  selector:
    {{- include \"kube-batch.selectorLabels\" . | nindent 4 }}
";
        assert_eq!(content, expected);
    }

    #[test]
    fn a_place_that_is_gone_is_an_error() {
        const PLACES: [Place; 1] = [at("replicas:", "")];
        assert!(template("x.yaml", "x.yaml", "", &PLACES).content(MANIFEST).is_err());
    }
}
