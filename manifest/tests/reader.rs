//! The objects and the diagnostics that result from manifests.

use std::{fs, path::PathBuf};

use k8s_openapi::api::core::v1::Node;
use kube_batch_api::kind::ApplyObject as _;
use kube_batch_cache::{
    assumed::Assumed,
    dump::{self, Dump},
    store::Store,
};
use kube_batch_manifest::{
    diagnostic::Diagnostic,
    object::Object,
    place::Place,
    reader::{Reader, Sink, Summary},
    render::{Paint, render},
    source::{Source, collect_sources},
};
use kube_batch_model::facts::FactError;

/// Records all objects and problems; accepts the objects that the store accepts.
#[derive(Default)]
struct Collected {
    objects: Vec<String>,
    lines: Vec<u32>,
    problems: Vec<Diagnostic>,
    dumps: Vec<Dump>,
    store: Store,
}

impl Sink for Collected {
    fn dump(&mut self, dump: Dump) {
        self.dumps.push(dump);
    }

    fn object(&mut self, object: Object, place: &Place<'_>) -> Result<(), FactError> {
        match &object {
            Object::Node(node) => drop(self.store.apply(&**node)?),
            Object::PodGroup(version, group) => {
                self.store.apply_group(*version, group).map(drop)?;
            }
            Object::Queue(version, queue) => {
                self.store.apply_queue(*version, queue).map(drop)?;
            }
            Object::Pod(pod) => {
                let mut pod = pod.clone();
                pod.metadata.uid.get_or_insert("uid".to_owned());
                self.store.apply(&*pod)?;
            }
            _ => {}
        }
        self.objects.push(object.to_string());
        self.lines.push(place.line());
        Ok(())
    }

    fn problem(&mut self, diagnostic: Diagnostic) {
        self.problems.push(diagnostic);
    }
}

fn read(bytes: impl AsRef<[u8]>) -> (Collected, Summary) {
    let mut collected = Collected::default();
    let mut reader = Reader::new();
    reader.read("f", bytes.as_ref(), &mut collected);
    (collected, reader.into_summary())
}

/// The names of the objects and the problems, one line each.
fn outcome(bytes: impl AsRef<[u8]>) -> (Vec<String>, Vec<String>) {
    let (collected, _) = read(bytes);
    (collected.objects, collected.problems.iter().map(ToString::to_string).collect())
}

fn check(bytes: impl AsRef<[u8]>, objects: &[&str], problems: &[&str]) {
    let shown: String = String::from_utf8_lossy(bytes.as_ref()).chars().take(200).collect();
    let (found, reported) = outcome(bytes);
    assert_eq!(found, objects, "objects of {shown:?}");
    assert_eq!(reported, problems, "problems of {shown:?}");
}

const NODE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n";

fn pod(rest: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a, namespace: ns}}\n{rest}")
}

fn group(spec: &str) -> String {
    format!(
        "apiVersion: scheduling.sigs.dev/v1alpha2\nkind: PodGroup\n\
         metadata: {{name: g, namespace: ns}}\nspec:\n  {spec}\n"
    )
}

#[test]
fn documents_lists_and_json_give_the_same_objects() {
    let two = ["Node n", "Pod ns/a"];
    let pod = pod("spec: {containers: []}\n");
    check(format!("{NODE}---\n{pod}"), &two, &[]);
    check(format!("\u{feff}---\n{NODE}...\n# b\n%YAML 1.2\n---\n{pod}...\n"), &two, &[]);
    check(format!("{NODE}---\n{pod}").replace('\n', "\r\n"), &two, &[]);
    let node_json = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}"#;
    let pod_json = r#"{"metadata": {"namespace": "ns", "name": "a"}, "spec": {"containers": []},
        "kind": "Pod", "apiVersion": "v1"}"#;
    check(format!("[{node_json}, {pod_json}]"), &two, &[]);
    check(format!("{node_json}\n{pod_json}\n"), &two, &[]);
    check(format!("{node_json}{pod_json}"), &two, &[]);
    check(format!("---\n{node_json}\n--- {pod_json}"), &two, &[]);
    check(format!("- {node_json}\n- {pod_json}"), &two, &[]);
    check("{apiVersion: v1, kind: Node, metadata: {name: n}}", &["Node n"], &[]);
    check(
        format!(r#"{{"apiVersion": "v1", "items": [{node_json}, {pod_json}], "kind": "List"}}"#),
        &two,
        &[],
    );
    let indented = |text: &str| text.trim_end().replace('\n', "\n  ");
    check(
        format!(
            "apiVersion: v1\nitems:\n- {}\n- {}\nkind: List\nmetadata:\n  resourceVersion: \"\"\n",
            indented(NODE),
            indented(&pod)
        ),
        &two,
        &[],
    );
}

#[test]
fn lists_of_every_kind_are_opened() {
    let nodes = ["Node a", "Node b"];
    // Items that do not say what they are; the list may say it later.
    for text in [
        r#"{"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]}"#,
        r#"{"apiVersion": "v1", "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}], "kind": "NodeList"}"#,
        "items:\n- metadata: {name: a}\n- metadata: {name: b}\napiVersion: v1\nkind: NodeList\n",
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: NodeList\n  items:\n  - metadata: {name: a}\n  - metadata: {name: b}\n",
        "apiVersion: v1\nkind: List\nx: &x {apiVersion: v1, kind: Node, metadata: {name: a}}\nitems:\n- *x\n- <<: *x\n  metadata: {name: b}\n",
        "apiVersion: v1\nkind: List\nx: &x [{apiVersion: v1, kind: Node, metadata: {name: a}}, {apiVersion: v1, kind: Node, metadata: {name: b}}]\nitems: *x\n",
    ] {
        check(text, &nodes, &[]);
    }
    check("kind: List\napiVersion: v1\nitems: []\n", &[], &[]);
    check("kind: List\napiVersion: v1\nitems: null\n", &[], &[]);
    check("kind: List\napiVersion: v1\n", &[], &["f:1:1: error: List: items: is missing"]);
    check(
        "kind: List\napiVersion: v1\nitems: {a: b}\n",
        &[],
        &["f:3:8: error: List: items: expected a sequence, found a mapping"],
    );
    check(
        "items:\n- metadata: {name: a}\n- 7\nkind: List\napiVersion: v1\n",
        &[],
        &[
            "f:2:3: error: object a: apiVersion and kind are missing",
            "f:3:3: error: expected an object with apiVersion and kind, found the number 7",
        ],
    );
    // Something of another kind that happens to have items.
    let (collected, summary) = read("apiVersion: x.io/v1\nitems: [1, 2]\nkind: Shop\n");
    assert!(collected.problems.is_empty());
    assert_eq!(summary.to_string(), "0 objects; ignored: 1 x.io/v1 Shop");
}

#[test]
fn any_served_version_is_read() {
    let text = "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: b}\n---\n\
                apiVersion: scheduling.k8s.io/v1beta1\nkind: PriorityClass\nmetadata: {name: c}\n\
                value: 7\n---\n\
                apiVersion: storage.k8s.io/v1beta1\nkind: CSINode\nmetadata: {name: d}\n\
                spec: {drivers: []}\n---\n\
                apiVersion: extensions/v1beta1\nkind: ReplicaSet\nmetadata: {name: e}\n---\n\
                apiVersion: scheduling.incubator.k8s.io/v1alpha1\nkind: Queue\nmetadata: {name: q}\n---\n\
                apiVersion: scheduling.sigs.dev/v1alpha2\nkind: Queue\nmetadata: {name: q}\n";
    let expected = [
        "PodDisruptionBudget b",
        "PriorityClass c",
        "CSINode d",
        "ReplicaSet e",
        "Queue q",
        "Queue q",
    ];
    check(text, &expected, &[]);
}

#[test]
fn kinds_that_are_not_needed_are_counted() {
    let text = "apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n---\ndata: {a: b}\nkind: ConfigMap\n\
                apiVersion: v1\n---\napiVersion: apps/v1\nkind: DaemonSet\nspec: {replicas: x}\n";
    let (collected, summary) = read(format!("{text}---\n{NODE}"));
    assert_eq!(collected.objects, ["Node n"]);
    assert!(collected.problems.is_empty());
    assert_eq!(summary.to_string(), "1 object; ignored: 1 apps/v1 DaemonSet, 2 v1 ConfigMap");
}

#[test]
fn an_invalid_document_does_not_affect_the_others() {
    check(
        format!("a: b: c\n---\n{NODE}---\na: [\n---\n{}", pod("spec: {containers: []}")),
        &["Node n", "Pod ns/a"],
        &[
            "f:1:5: error: malformed YAML: mapping values are not allowed in this context",
            "f:7:4: error: malformed YAML: unclosed bracket '['",
        ],
    );
}

#[test]
fn api_version_and_kind_are_required() {
    for (text, expected) in [
        ("kind: Pod\nmetadata: {name: a}", "f:1:1: error: Pod a: apiVersion: is missing"),
        ("apiVersion: v1\nmetadata: {name: a}", "f:1:1: error: object a: kind: is missing"),
        (
            "metadata: {name: a, namespace: b}",
            "f:1:1: error: object b/a: apiVersion and kind are missing",
        ),
        ("apiVersion: v1\nkind: [Pod]", "f:2:7: error: kind: expected a name, found a sequence"),
        (
            "apiVersion: 1\nkind: Pod",
            "f:1:13: error: Pod: apiVersion: expected a name, found the number 1",
        ),
        ("apiVersion: v1\nkind: ''", "f:2:7: error: kind: expected a name, found \"\""),
        (
            "hello world",
            "f:1:1: error: expected an object with apiVersion and kind, found \"hello world\"",
        ),
        ("[1]", "f:1:2: error: expected an object with apiVersion and kind, found the number 1"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}",
            "f:3:11: error: Pod: metadata.name: is missing",
        ),
        (
            "apiVersion: v1\nkind: podd\nmetadata: {name: a}",
            "f:2:7: warning: podd a: unknown kind \"podd\" of v1, did you mean Pod",
        ),
        (
            "apiVersion: v1\nkind: PodGroup\nmetadata: {name: a}",
            "f:2:7: warning: PodGroup a: PodGroup is in scheduling.incubator.k8s.io/v1alpha1 and \
          scheduling.sigs.dev/v1alpha2, not in \"v1\"",
        ),
    ] {
        check(text, &[], &[expected]);
    }
}

#[test]
fn quantities_are_found_in_the_text() {
    let text = pod(
        "spec:\n  containers:\n  - name: a\n  - name: b\n    resources:\n      requests:\n        memory: 1Gi\n        cpu: 1x\n",
    );
    let expected = "f:11:14: error: Pod ns/a: spec.containers[1].resources.requests: cannot parse \
                    cpu amount: \"1x\" is not a quantity: unknown suffix \"x\"";
    check(&text, &[], &[expected]);
    // The same in a list, in JSON, and behind an alias that only the whole document explains.
    let item = text.trim_end().replace('\n', "\n  ");
    check(
        format!("kind: List\napiVersion: v1\nitems:\n- {item}\n"),
        &[],
        &[&expected.replace("f:11:14", "f:14:16")],
    );
    check(
        "[\n {\"kind\": \"Node\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"n\"},\n  \
         \"status\": {\"allocatable\": {\"cpu\": \"é\", \"memory\": \"-1\"}}}]",
        &[],
        &["f:3:37: error: Node n: status.allocatable: cannot parse cpu amount: \"é\" is not a \
           quantity: it must start with a number"],
    );
    check(
        "kind: List\napiVersion: v1\nx: &x {cpu: -1}\nitems:\n- kind: Node\n  apiVersion: v1\n  \
         metadata: {name: n}\n  status: {allocatable: *x}\n",
        &[],
        &["f:5:3: error: Node n: status.allocatable: cpu amount \"-1\" is negative"],
    );
}

#[test]
fn a_minimum_is_a_number_that_is_not_negative() {
    for (spec, expected) in [
        ("minMember: -1", "f:5:14: error: PodGroup ns/g: spec.minMember: -1 is negative"),
        (
            "minMember: three",
            "f:5:14: error: PodGroup ns/g: spec.minMember: expected a 32-bit \
                              integer, found \"three\"",
        ),
        (
            "minMember: 1.5",
            "f:5:14: error: PodGroup ns/g: spec.minMember: expected a 32-bit \
                            integer, found the number 1.5",
        ),
        (
            "minMember: 99999999999",
            "f:5:14: error: PodGroup ns/g: spec.minMember: expected a \
                                    32-bit integer, found the number 99999999999",
        ),
        (
            "minMember: '3'",
            "f:5:14: error: PodGroup ns/g: spec.minMember: expected a 32-bit \
                            integer, found \"3\"",
        ),
        (
            "queue: 7",
            "f:5:10: error: PodGroup ns/g: spec.queue: expected a string, found the \
                      number 7: put it in quotes",
        ),
    ] {
        check(group(spec), &[], &[expected]);
    }
    check(group("minMember: 0x10"), &["PodGroup ns/g"], &[]);
    check(group("minMember:"), &["PodGroup ns/g"], &[]);
}

#[test]
fn a_misspelt_field_is_reported_once() {
    let two = format!(
        "{}---\n{}",
        group("minMembers: 3"),
        group("minMembers: 3").replace("name: g", "name: h")
    );
    check(
        two,
        &["PodGroup ns/g", "PodGroup ns/h"],
        &["f:5:3: warning: PodGroup ns/g: spec.minMembers: unknown field, did you mean minMember"],
    );
    let text = pod(
        "spec:\n  containers:\n  - {name: a, imagePullPolice: Never}\n  - {name: b, imagePullPolice: x}\n",
    );
    check(
        text,
        &["Pod ns/a"],
        &["f:6:15: warning: Pod ns/a: spec.containers[0].imagePullPolice: unknown field, did you \
           mean imagePullPolicy"],
    );
}

#[test]
fn the_first_of_two_objects_with_one_name_is_kept() {
    let text = "---\nkind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {}\n---\n\
                kind: Pod\napiVersion: v1\nmetadata: {name: a, namespace: default}\n";
    check(text, &["Pod a"], &["f:7:1: error: Pod default/a: is already defined at f:2"]);
    // A rejected object does not count.
    let bad = "kind: Node\napiVersion: v1\nmetadata: {name: n}\nstatus: {allocatable: {cpu: x}}\n";
    let (objects, problems) = outcome(format!("{bad}---\n{NODE}"));
    assert_eq!((objects, problems.len()), (vec!["Node n".to_owned()], 1));
    // Names are compared across files.
    let mut collected = Collected::default();
    let mut reader = Reader::new();
    reader.read("one.yaml", NODE.as_bytes(), &mut collected);
    reader.read("two.yaml", format!("# two\n{NODE}").as_bytes(), &mut collected);
    let problem = collected.problems[0].to_string();
    assert_eq!(problem, "two.yaml:2:1: error: Node n: is already defined at one.yaml:1");
    assert_eq!(reader.into_summary().to_string(), "1 object, 1 error");
}

#[test]
fn files_without_objects_are_reported() {
    for text in ["", "\n", "# nothing\n", "---\n---\n...\n", "\u{feff}", "\u{feff}# nothing"] {
        check(text, &[], &["f: warning: contains no objects"]);
    }
    check("---\nnull\n---\n~\n", &[], &["f: warning: contains no objects"]);
}

#[test]
fn bytes_that_are_not_text_are_reported() {
    check(b"\x7fELF\x02\x01\x01\0\0\0", &[], &["f:1:8: error: is not text: byte 0x00"]);
    check(
        [b"a: \xff\n---\n", NODE.as_bytes()].concat(),
        &["Node n"],
        &["f:1:4: error: is not UTF-8 text: byte 0xff"],
    );
    let utf16: Vec<u8> =
        std::iter::once(0xfeff).chain(NODE.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    check(&utf16, &["Node n"], &[]);
    let utf16: Vec<u8> = utf16.chunks(2).flat_map(|unit| [unit[1], unit[0]]).collect();
    check(&utf16, &["Node n"], &[]);
}

#[test]
fn hostile_text_costs_little() {
    let deep = "is nested more than 128 levels deep";
    check("[".repeat(10_000), &[], &[&format!("f:1:130: error: {deep}")]);
    check("{\"a\":".repeat(10_000), &[], &[&format!("f:1:641: error: {deep}")]);
    check("- ".repeat(10_000), &[], &[&format!("f:1:257: error: {deep}")]);
    check("{a: ".repeat(10_000), &[], &[&format!("f:1:517: error: {deep}")]);
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, before) in ('b'..='z').zip('a'..) {
        bomb += &format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 9].join(","));
    }
    check(
        format!("{bomb}---\n{NODE}"),
        &["Node n"],
        &["f:5:7: error: anchors and aliases copy more than 100000 values"],
    );
    let many = format!("[{}", "0,".repeat(5_000));
    let (objects, problems) = outcome(many);
    assert!(objects.is_empty());
    assert_eq!(problems.len(), 1_001);
    assert_eq!(problems[1_000], "f: error: 4001 more problems are not shown");
    let wide = format!("kind: Pod\napiVersion: v1\nspec: [{}]", "0,".repeat(1_000_001));
    let (_, problems) = outcome(wide);
    assert_eq!(problems, ["f:3:2000004: error: has more than 1000000 values"]);
}

#[test]
fn malformed_json_and_templates_are_reported() {
    check(
        "{\"kind\": \"Node\", \"apiVersion\": \"v1\", \"metadata\": {\"name\": \"n\"}}\n{\"kind\"",
        &["Node n"],
        &["f:2:8: error: malformed JSON: expected \":\", found the end of the text"],
    );
    check(
        "{\"kind\": \"Node\", }",
        &[],
        &["f:1:18: error: malformed JSON: expected a key in double quotes, found '}'"],
    );
    check(
        "kind: {{ .Values.kind }}\n",
        &[],
        &["f:1:8: error: a key must be a string; this looks like a template, render it first"],
    );
}

#[test]
fn threads_keep_order_and_lines() {
    let names = 0..12_000;
    let document =
        |n| format!("---\n# room\napiVersion: v1\nkind: Node\nmetadata: {{name: n{n}}}\n");
    let text: String = names.clone().map(document).collect();
    let expected: Vec<String> = names.clone().map(|n| format!("Node n{n}")).collect();
    let lines: Vec<u32> = names.map(|n| 5 * n + 3).collect();
    let (collected, summary) = read(&text);
    assert_eq!(collected.objects, expected);
    assert_eq!(collected.lines, lines);
    assert_eq!(summary.to_string(), "12000 objects");
}

#[test]
fn the_maximum_nesting_fits_the_stack_of_a_thread() {
    let fields = format!("{}1{}", "{a: ".repeat(122), "}".repeat(122));
    let deep = format!(
        "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: n\n  managedFields:\n  \
         - {{fieldsV1: {fields}}}\n"
    );
    let room = format!("---\n{}", "# room\n".repeat(20_000));
    let (objects, problems) = outcome(room.clone() + &deep + &room + &room + &deep);
    assert_eq!(objects, ["Node n"]);
    assert_eq!(problems, ["f:60012:1: error: Node n: is already defined at f:20003"]);
}

#[test]
fn a_diagnostic_is_rendered_with_its_line() {
    let rendered = |text: &str, paint| {
        let (collected, _) = read(text);
        render(&collected.problems[0], paint)
    };
    let text = group("minMember: three  # of four");
    assert_eq!(
        rendered(&text, Paint::Plain),
        "\
error: PodGroup ns/g: spec.minMember: expected a 32-bit integer, found \"three\"
 --> f:5:14
  |
5 |   minMember: three  # of four
  |              ^^^^^"
    );
    assert!(rendered(&text, Paint::Styled).contains("\u{1b}["));
    assert_eq!(rendered("", Paint::Plain), "warning: contains no objects\n--> f");
    let long = rendered(&format!("{{x: 1,{}x: 2}}", " ".repeat(5_000)), Paint::Plain);
    assert!(long.contains("f:1:5007") && long.len() < 500, "{long}");
}

#[test]
fn a_diagnostic_knows_its_parts() {
    let (collected, _) = read(format!("{NODE}---\n{}", group("minMember: three")));
    let problem = &collected.problems[0];
    assert_eq!((problem.source.as_str(), problem.document), ("f", 2));
    assert_eq!((problem.line, problem.column), (9, 14));
    assert_eq!(problem.object.as_deref(), Some("PodGroup ns/g"));
    assert_eq!(problem.field.as_deref(), Some("spec.minMember"));
}

/// An empty directory of this name.
fn directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

#[test]
fn manifests_of_directories_are_sorted() {
    let root = directory("manifests_of_directories_are_sorted");
    fs::create_dir_all(root.join("b/.hidden")).expect("directories");
    for name in ["c.json", "a.yaml", "b/d.YML", "x.txt", ".e.yaml", "b/.hidden/f.yaml", "b/c.yml"] {
        fs::write(root.join(name), NODE).expect("a file");
    }
    let (sources, problems) = collect_sources(&[&root, &root.join("x.txt")]);
    let expected = ["a.yaml", "b/c.yml", "b/d.YML", "c.json", "x.txt"];
    assert_eq!(sources, expected.map(|name| Source::File(root.join(name))));
    assert!(problems.is_empty());
    assert_eq!(collect_sources(&["-"]).0, [Source::Stdin]);
}

#[test]
fn paths_without_manifests_are_reported() {
    let root = directory("paths_without_manifests_are_reported");
    fs::write(root.join("x.txt"), NODE).expect("a file");
    let absent = root.join("absent.yaml");
    let (sources, problems) = collect_sources(&[&root, &absent]);
    assert!(sources.is_empty());
    let root = root.display();
    assert_eq!(
        problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            format!("{root}: error: contains no manifests (*.yaml, *.yml, *.json)"),
            format!("{root}/absent.yaml: error: cannot read: no such file or directory"),
        ]
    );
}

#[test]
fn a_file_that_cannot_be_read_does_not_stop_the_others() {
    let root = directory("a_file_that_cannot_be_read_does_not_stop_the_others");
    fs::write(root.join("node.yaml"), NODE).expect("a file");
    let sources = [Source::File(root.clone()), Source::File(root.join("node.yaml"))];
    let mut collected = Collected::default();
    let mut reader = Reader::new();
    reader.read_sources(&sources, &mut collected);
    assert_eq!(collected.objects, ["Node n"]);
    assert_eq!(
        collected.problems[0].to_string(),
        format!("{}: error: cannot read: is a directory", root.display())
    );
    assert_eq!(reader.into_summary().to_string(), "1 object, 1 error");
}

#[test]
fn a_dump_is_read() {
    let mut store = Store::default();
    let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    store.apply::<Node>(&serde_json::from_value(node).expect("a node")).expect("facts");
    let mut bytes = Vec::new();
    dump::write(&store, &Assumed::default(), jiff::Timestamp::UNIX_EPOCH, &mut bytes)
        .expect("memory takes all");
    let (collected, summary) = read(&bytes);
    assert_eq!(collected.dumps.len(), 1);
    assert_eq!(collected.dumps[0].store.nodes, store.nodes);
    assert_eq!(summary.to_string(), "1 object");

    bytes.truncate(bytes.len() - 10);
    let (collected, summary) = read(&bytes);
    assert!(collected.dumps.is_empty());
    assert_eq!(summary.n_errors, 1);
    let problem = collected.problems[0].to_string();
    assert!(problem.starts_with("f:2:1: error: EOF while parsing"), "{problem}");
}

#[test]
fn aliases_in_objects_that_are_ignored_are_no_problem() {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x}}\ndata:\n  a: &x foo\n  b: *x\n---\n{NODE}"
    );
    check(text, &["Node n"], &[]);
}

#[test]
fn problems_of_a_nested_list_are_shown_where_they_are() {
    // All in one line, and with an alias of an earlier item.
    let node = |n: usize, more: &str| {
        format!("{{apiVersion: v1, kind: Node, metadata: {{name: n{n}}}, {more}}}")
    };
    let items = [
        format!("&a {}", node(0, "wrong0: é")),
        node(1, "wrong1: 1"),
        "*a".to_owned(),
        node(3, "wrong3: 1"),
    ];
    let text = format!("[{{apiVersion: v1, kind: List, items: [{}]}}]", items.join(", "));
    let (collected, _) = read(&text);
    assert_eq!(collected.objects, ["Node n0", "Node n1", "Node n3"]);
    let is_about = |problem: &&Diagnostic| problem.to_string().contains("wrong");
    let marked = collected.problems.iter().filter(is_about).map(|problem| {
        let excerpt = problem.excerpt.as_ref().expect("an excerpt");
        excerpt.text[excerpt.marked.clone()].trim_end_matches(':').to_owned()
    });
    let marked: Vec<String> = marked.collect();
    // The alias is the same object again.
    assert_eq!(marked, ["wrong0", "wrong1", "wrong3"]);
}
