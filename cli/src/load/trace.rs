//! Jobs of a trace: a CSV file with a row for each job that was submitted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube_batch_manifest::diagnostic::{Diagnostic, Severity};
use kube_batch_model::{duration, name::is_dns_subdomain, resource::ResourceList};
use kube_batch_sim::{arrivals::ARRIVAL_ANNOTATION, controllers::DURATION_ANNOTATION};
use serde_json::{Value, json};

/// Columns that are no resources.
const COLUMNS: [&str; 10] = [
    "submit_time",
    "run_time",
    "name",
    "namespace",
    "queue",
    "priority",
    "priority_class",
    "pods",
    "min_member",
    "gpu",
];

/// How many pods a job may have.
const MAX_PODS: u32 = 100_000;

/// The objects of each row with its line, and the problems of rows that are left out.
pub(super) fn read(source: &str, bytes: &[u8]) -> (Vec<(u32, [Value; 2])>, Vec<Diagnostic>) {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bytes);
    let of_file = |message: String| Diagnostic::of_source(Severity::Error, source, message);
    let headers = match reader.headers() {
        Ok(headers) => headers.clone(),
        Err(error) => return (Vec::new(), vec![of_file(error.to_string())]),
    };
    let names: Vec<&str> = headers.iter().collect();
    if let Some(missing) = ["submit_time", "run_time"].into_iter().find(|own| !names.contains(own))
    {
        let message = format!("the first line names the columns, and {missing} is missing");
        return (Vec::new(), vec![of_file(message)]);
    }
    if let Some(unknown) = names.iter().find(|name| !COLUMNS.contains(name) && !is_resource(name)) {
        let message = format!(
            "\"{unknown}\" is no column of a trace: there are {}, cpu, memory and names of resources such as \
             example.com/fpga",
            COLUMNS.join(", ")
        );
        return (Vec::new(), vec![of_file(message)]);
    }
    let (mut objects, mut problems) = (Vec::new(), Vec::new());
    for (at, record) in reader.records().enumerate() {
        let line = |position: Option<&csv::Position>| {
            position.map_or(0, |position| u32::try_from(position.line()).unwrap_or(u32::MAX))
        };
        let problem = |line: u32, field: Option<&str>, message: String| Diagnostic {
            line,
            column: 1,
            field: field.map(str::to_owned),
            ..of_file(message)
        };
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                problems.push(problem(line(error.position()), None, error.to_string()));
                continue;
            }
        };
        let values = names.iter().copied().zip(record.iter());
        let row = Row { at, values: values.filter(|(_, value)| !value.is_empty()).collect() };
        match row.objects() {
            Ok(own) => objects.push((line(record.position()), own)),
            Err((field, message)) => {
                problems.push(problem(line(record.position()), Some(field), message));
            }
        }
    }
    (objects, problems)
}

fn is_resource(name: &str) -> bool {
    ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.contains('/')
}

/// A row: the values that are not empty, by column.
struct Row<'a> {
    at: usize,
    values: BTreeMap<&'a str, &'a str>,
}

/// The column, and what is wrong with its value.
type RowError<'a> = (&'a str, String);

impl<'a> Row<'a> {
    fn get(&self, column: &str) -> Option<&'a str> {
        self.values.get(column).copied()
    }

    /// The PodGroup and the Job.
    fn objects(&self) -> Result<[Value; 2], RowError<'a>> {
        let arrives = self.submit_time()?;
        let n_pods = self.number("pods", 1, MAX_PODS)?.unwrap_or(1);
        let min = self.number("min_member", 0, n_pods)?.unwrap_or(n_pods);
        let name = self.name("name")?.map_or_else(|| format!("job-{}", self.at + 1), str::to_owned);
        let namespace = self.name("namespace")?.unwrap_or("default");
        let annotations = json!({ARRIVAL_ANNOTATION: arrives});
        let meta = json!({"name": name, "namespace": namespace, "annotations": annotations});
        let mut group = json!({
            "apiVersion": "scheduling.sigs.dev/v1alpha2",
            "kind": "PodGroup",
            "metadata": meta,
            "spec": {"minMember": min},
        });
        if let Some(queue) = self.name("queue")? {
            group["spec"]["queue"] = json!(queue);
        }
        if let Some(class) = self.name("priority_class")? {
            group["spec"]["priorityClassName"] = json!(class);
        }
        let mut annotations = json!({"scheduling.k8s.io/group-name": name});
        if let Some(run_time) = self.run_time()? {
            annotations[DURATION_ANNOTATION] = json!(run_time);
        }
        let requests = self.requests()?;
        let mut spec = json!({
            "schedulerName": "kube-batch",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "trace", "resources": {"requests": requests}}],
        });
        if let Some(priority) = self.get("priority") {
            let priority: i32 = priority
                .parse()
                .map_err(|_| ("priority", format!("\"{priority}\" is not a whole number")))?;
            spec["priority"] = json!(priority);
        }
        // Evictions end no job: each of its pods is replaced.
        let ignore = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
        let job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": meta,
            "spec": {
                "parallelism": n_pods,
                "completions": n_pods,
                "completionMode": "Indexed",
                "backoffLimitPerIndex": 1_000,
                "podFailurePolicy": {"rules": [ignore]},
                "template": {"metadata": {"annotations": annotations}, "spec": spec},
            },
        });
        Ok([group, job])
    }

    /// Seconds since the beginning, or a time.
    fn submit_time(&self) -> Result<String, RowError<'a>> {
        let column = "submit_time";
        let text = self.get(column).ok_or((column, "is missing".to_owned()))?;
        if text.parse::<Timestamp>().is_ok() {
            return Ok(text.to_owned());
        }
        seconds(text).map(|_| text.to_owned()).map_err(|problem| {
            (
                column,
                format!("\"{text}\" is neither a time nor seconds since the beginning: {problem}"),
            )
        })
    }

    /// Without one, it runs until the end.
    fn run_time(&self) -> Result<Option<&'a str>, RowError<'a>> {
        let Some(text) = self.get("run_time") else { return Ok(None) };
        seconds(text).map_err(|problem| ("run_time", format!("\"{text}\": {problem}")))?;
        Ok(Some(text))
    }

    fn number(
        &self,
        column: &'static str,
        least: u32,
        most: u32,
    ) -> Result<Option<u32>, RowError<'a>> {
        let Some(text) = self.get(column) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.map(Some).ok_or_else(|| {
            (column, format!("\"{text}\" is not a whole number from {least} to {most}"))
        })
    }

    fn name(&self, column: &'static str) -> Result<Option<&'a str>, RowError<'a>> {
        let Some(name) = self.get(column) else { return Ok(None) };
        match is_dns_subdomain(name) {
            true => Ok(Some(name)),
            false => Err((
                column,
                format!("\"{name}\" is not a name of lower-case letters, digits, - and ."),
            )),
        }
    }

    /// What each pod requests.
    fn requests(&self) -> Result<BTreeMap<&'a str, &'a str>, RowError<'a>> {
        let mut requests = BTreeMap::new();
        for (column, value) in &self.values {
            let resource = match *column {
                "gpu" => "nvidia.com/gpu",
                column if is_resource(column) => column,
                _ => continue,
            };
            let amounts = BTreeMap::from([(resource, *value)]);
            ResourceList::of_limits(&amounts)
                .map_err(|error| (*column, format!("\"{value}\": {error}")))?;
            if *value != "0" {
                requests.insert(resource, *value);
            }
        }
        Ok(requests)
    }
}

fn seconds(text: &str) -> Result<std::time::Duration, String> {
    duration::parse_or_seconds(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<(u32, String)> {
        let (_, problems) = read("trace.csv", text.as_bytes());
        problems.into_iter().map(|problem| (problem.line, problem.to_string())).collect()
    }

    #[test]
    fn a_row_is_a_gang_that_arrives() {
        let text = "submit_time,run_time,name,queue,pods,min_member,gpu,cpu,priority\n\
                    90,10m,llm,vision,4,3,8,32,7\n\
                    2025-01-01T09:00:00Z,,,,,,1,500m,\n";
        let (objects, problems) = read("trace.csv", text.as_bytes());
        assert_eq!(problems, []);
        assert_eq!(objects.len(), 2);
        let (line, [group, job]) = &objects[0];
        assert_eq!(*line, 2);
        assert_eq!(group["spec"], json!({"minMember": 3, "queue": "vision"}));
        assert_eq!(group["metadata"]["annotations"][ARRIVAL_ANNOTATION], "90");
        let template = &job["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"][DURATION_ANNOTATION], "10m");
        assert_eq!(template["spec"]["priority"], 7);
        let requests = json!({"cpu": "32", "nvidia.com/gpu": "8"});
        assert_eq!(template["spec"]["containers"][0]["resources"]["requests"], requests);
        assert_eq!(objects[1].1[1]["metadata"]["name"], "job-2");
        assert_eq!(objects[1].1[1]["spec"]["parallelism"], 1);
    }

    #[test]
    fn a_bad_row_costs_only_itself() {
        let text = "submit_time,run_time,pods,gpu,name\n\
                    0,10,1,8,a\n\
                    soon,10,1,8,b\n\
                    0,10,0,8,c\n\
                    0,10,1,many,d\n\
                    0,10,1,8,Not A Name\n\
                    0,10,1\n\
                    0,10,1,8,e\n";
        let (objects, _) = read("trace.csv", text.as_bytes());
        assert_eq!(objects.len(), 2);
        let problems = problems(text);
        let lines: Vec<u32> = problems.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 4, 5, 6, 7], "{problems:?}");
        for ((_, problem), part) in problems.iter().zip(["submit_time", "pods", "gpu", "name", ""])
        {
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn the_first_line_names_the_columns() {
        for (text, part) in [
            ("submit_time,pods\n", "run_time is missing"),
            ("submit_time,run_time,color\n", "\"color\" is no column of a trace"),
        ] {
            let problems = problems(text);
            assert!(problems[0].1.contains(part), "{problems:?}");
        }
    }
}
