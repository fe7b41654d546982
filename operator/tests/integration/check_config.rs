//! The command `check-config` as a user sees it: output, messages and exit codes.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

/// Checks a configuration that is given at standard input.
fn check(arguments: &[&str], text: &str) -> Checked {
    let mut process = Command::new(env!("CARGO_BIN_EXE_kube-batch"))
        .args(["check-config", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = process.stdin.take().expect("it is piped");
    stdin.write_all(text.as_bytes()).expect("the command reads all of it");
    drop(stdin);
    Checked::new(process.wait_with_output().expect("the command ends"))
}

struct Checked {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Checked {
    fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let Output { status, stdout, stderr } = output;
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// The lines about the file, without its name.
    fn notes(&self) -> Vec<&str> {
        let place = |line: &'_ str| line.contains(": standard input:");
        self.stderr.lines().filter(|line| place(line)).collect()
    }
}

/// What a configuration of Volcano becomes. It is valid here, and nothing in it is without effect.
fn converted(arguments: &[&str], text: &str) -> Checked {
    let checked = check(arguments, text);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let again = check(&[], &checked.stdout);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert_eq!(again.stderr, "note: standard input is a valid configuration\n");
    checked
}

/// A plugin of the converted configuration, with its switches and arguments.
fn plugin<'a>(converted: &'a str, name: &str) -> &'a str {
    let start = converted.find(&format!("- name: {name}\n")).unwrap_or_else(|| panic!("{name}"));
    let rest = &converted[start + 2..];
    let end = rest.find("\n  - name:").or_else(|| rest.find("\n- plugins")).unwrap_or(rest.len());
    rest[..end].trim_end()
}

fn repository_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).expect("the file is there")
}

#[test]
fn the_configuration_of_volcanos_chart_is_converted_as_the_manual_shows() {
    let checked = converted(&[], &repository_file("examples/volcano-scheduler.conf"));
    let manual = repository_file("docs/migrating-from-volcano.md");
    let shown = "$ kube-batch check-config examples/volcano-scheduler.conf\n";
    let (_, shown) = manual.split_once(shown).expect("the manual shows it");
    assert_eq!(Some(&*checked.stdout), shown.split("```").next());
    let starts = [
        "note: standard input:1:10: action enqueue is left out: kube-batch sets PodGroups to Inqueue",
        "note: standard input:5:11: plugin gang: gang.stalenessGracePeriod: 0s keeps",
        "warning: standard input:9:11: plugin overcommit is left out: gang.strictEnqueue counts",
        "note: standard input:13:11: plugin capacity becomes proportion: the fields parent, deserved",
        "note: standard input:14:11: plugin nodeorder: the weights that Volcano sets by default",
    ];
    let notes = checked.notes();
    assert_eq!(notes.len(), starts.len(), "{}", checked.stderr);
    for (note, start) in notes.iter().zip(starts) {
        assert!(note.starts_with(start), "{note}");
    }
}

#[test]
fn arguments_of_binpack_and_nodeorder_are_kept() {
    let checked = converted(
        &[],
        "\
actions: \"enqueue, allocate, backfill\"
tiers:
- plugins:
  - name: nodeorder
    arguments:
      leastrequested.weight: 0
      nodeaffinity.weight: 5
      selectorspread.weight: 1
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.cpu: 5
      binpack.memory: 1
      binpack.resources: nvidia.com/gpu, example.com/foo
      binpack.resources.nvidia.com/gpu: 2
      binpack.resources.example.com/foo: 3
      binpack.resources.example.com/bar: 4
",
    );
    let nodeorder = plugin(&checked.stdout, "nodeorder");
    for argument in ["nodeaffinity.weight: 5", "leastrequested.weight: 0", "podaffinity.weight: 2"]
    {
        assert!(nodeorder.contains(argument), "{argument} in {nodeorder}");
    }
    assert_eq!(
        plugin(&checked.stdout, "binpack"),
        "name: binpack
    arguments:
      binpack.weight: 10
      binpack.cpu: 5
      binpack.memory: 1
      binpack.resources: nvidia.com/gpu, example.com/foo
      binpack.resources.nvidia.com/gpu: 2
      binpack.resources.example.com/foo: 3"
    );
    for part in [
        ":8:30: argument selectorspread.weight of plugin nodeorder is left out: Kubernetes removed",
        ":17:42: argument binpack.resources.example.com/bar of plugin binpack is left out: has no effect: \
         binpack.resources does not list example.com/bar",
    ] {
        assert!(checked.stderr.contains(part), "{part} in {}", checked.stderr);
    }
}

#[test]
fn what_has_no_equivalent_is_left_out_with_what_to_do_instead() {
    let checked = converted(
        &[],
        "\
actions: \"enqueue, reclaim, allocate, preempt, backfill, shuffle\"
metrics:
  type: prometheus
tiers:
- plugins:
  - name: priority
  - name: tdm
    arguments:
      tdm.revocable-zone.rz1: 10:00-21:00
      tdm.evict.period: 1m
  - name: sla
    arguments:
      sla-waiting-time: 1h2m3s
  - name: network-topology-aware
    arguments:
      weight: 10
  - name: of-our-own
- plugins:
  - name: usage
",
    );
    assert_eq!(
        checked.stdout,
        "actions: reclaim, allocate, preempt, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: topology\n"
    );
    for part in [
        "warning: standard input:1:10: action reclaim: pods with volcano.sh/preemptable",
        "warning: standard input:1:10: action preempt: pods with volcano.sh/preemptable",
        "action shuffle is left out: kube-batch evicts no pods to balance nodes; run the descheduler",
        "note: standard input:3:3: key metrics is left out",
        "plugin tdm is left out: no decision depends on the time of the day; add and remove",
        "plugin sla is left out: a job has no maximum waiting time; set a priority class",
        "warning: standard input:14:11: plugin network-topology-aware becomes topology: HyperNodes are not read; \
         set the argument levels",
        "argument weight of plugin network-topology-aware is left out: domains have no scores",
        "plugin of-our-own is left out: neither kube-batch nor Volcano 1.15 has it",
        "plugin usage is left out: kube-batch does not read how much load is measured",
    ] {
        assert!(checked.stderr.contains(part), "{part} in {}", checked.stderr);
    }
}

#[test]
fn gang_aware_actions_evict_whole_gangs() {
    let with = |configurations: &str| {
        let text = format!(
            "actions: allocate, backfill, gangreclaim, preempt, gangpreempt\n{configurations}tiers:\n- \
             plugins: [{{name: gang}}]\n"
        );
        converted(&[], &text)
    };
    let by_default = with("");
    assert!(by_default.stdout.starts_with("actions: allocate, backfill, reclaim, preempt\n"));
    assert!(by_default.stdout.contains("gang.evictWholeGangs: true"), "{}", by_default.stdout);
    assert!(
        by_default.stderr.contains("action gangreclaim becomes reclaim: HyperNodes are not read")
    );
    let off = with(
        "configurations: [{name: gangpreempt, arguments: {allowWholeBundle: false, maxDomains: 4}}]\n",
    );
    assert!(off.stdout.contains("gang.evictWholeGangs: false"), "{}", off.stdout);
    let note = "argument maxDomains of action gangpreempt is left out: the number of domains";
    assert!(off.stderr.contains(note), "{}", off.stderr);
    let odd = with("configurations: [{name: gangpreempt, arguments: {allowWholeBundle: maybe}}]\n");
    assert!(odd.stdout.contains("gang.evictWholeGangs: true"), "{}", odd.stdout);
    let note = "allowWholeBundle of action gangpreempt is left out: \"maybe\" is not true or false";
    assert!(odd.stderr.contains(note), "{}", odd.stderr);
}

#[test]
fn arguments_of_actions_that_do_not_run_have_no_effect() {
    let checked = converted(
        &["--volcano"],
        "actions: allocate, preempt\n\
         configurations: [{name: gangpreempt, arguments: {allowWholeBundle: true}}]\n\
         tiers: [{plugins: [{name: gang}]}]\n",
    );
    assert!(!checked.stdout.contains("evictWholeGangs"), "{}", checked.stdout);
}

#[test]
fn switches_matter_only_where_they_differ() {
    let with = |value: bool| {
        let text = format!(
            "\
actions: enqueue, allocate
tiers:
- plugins:
  - name: gang
    enableJobStarving: {value}
    enableJobOrder: {value}
  - name: capacity
    enableHierarchy: {value}
  - name: predicates
    arguments:
      predicate.PodAffinityEnable: {value}
      predicate.GPUSharingEnable: {}
      predicate.MemoryPressureEnable: true
",
            !value
        );
        converted(&[], &text)
    };
    let as_here = with(true);
    assert_eq!(as_here.notes().len(), 3, "{}", as_here.stderr);
    assert!(plugin(&as_here.stdout, "gang").contains("enableJobOrder: true"));
    assert!(plugin(&as_here.stdout, "predicates").contains("predicate.MemoryPressureEnable: true"));
    let other = with(false);
    for part in [
        "key enableJobStarving of plugin gang is left out: it cannot be false; the plugin decides this",
        "key enableHierarchy of plugin capacity is left out: it cannot be false; remove parent from the queues",
        "predicate.PodAffinityEnable of plugin predicates is left out: it cannot be false; change the pods",
        "predicate.GPUSharingEnable of plugin predicates is left out: kube-batch does not assign parts",
    ] {
        assert!(other.stderr.contains(part), "{part} in {}", other.stderr);
    }
    assert_eq!(other.notes().len(), 7, "{}", other.stderr);
}

#[test]
fn keys_that_volcano_does_not_read_are_reported() {
    let checked = converted(
        &[],
        "actions: enqueue, allocate\ntiers: [{plugins: [{name: binpack, binpack.weight: 9, arguments: }]}]\n",
    );
    let note =
        "note: standard input:2:52: key binpack.weight of plugin binpack is not below arguments";
    assert!(checked.stderr.contains(note), "{}", checked.stderr);
}

#[test]
fn names_cannot_control_the_terminal() {
    let text =
        "actions: enqueue, allocate\n\"\\e[2J\": 1\ntiers: [{plugins: [{name: \"\\e[31m\"}]}]\n";
    let checked = converted(&[], text);
    assert!(!checked.stderr.contains('\u{1b}'), "{}", checked.stderr);
    assert!(checked.stderr.contains(r"key \u{1b}[2J is left out"), "{}", checked.stderr);
}

#[test]
fn a_plugin_is_once_in_a_tier() {
    let checked = converted(
        &[],
        "actions: allocate\ntiers: [{plugins: [{name: proportion}, {name: capacity}, {name: overcommit}]}]\n",
    );
    assert_eq!(checked.stdout.matches("proportion").count(), 1, "{}", checked.stdout);
    assert!(checked.stderr.contains(":2:40: plugin proportion is in this tier already"));
}

/// Valid here, and in Volcano with other defaults.
const VALID_FOR_BOTH: &str = "actions: allocate\ntiers: [{plugins: [{name: nodeorder}]}]\n";

#[test]
fn a_file_that_is_valid_here_is_not_converted_unless_asked() {
    let checked = check(&[], VALID_FOR_BOTH);
    assert_eq!((checked.code, &*checked.stdout), (Some(0), ""));
    assert_eq!(checked.stderr, "note: standard input is a valid configuration\n");
    let volcano = converted(&["--volcano"], VALID_FOR_BOTH);
    assert!(volcano.stdout.contains("tainttoleration.weight: 3"), "{}", volcano.stdout);
}

#[test]
fn warnings_do_not_make_a_file_invalid() {
    let checked = check(&[], &VALID_FOR_BOTH.replace("actions", "queues: 1\nactions"));
    assert_eq!((checked.code, &*checked.stdout), (Some(0), ""));
    for part in ["warning: queues: unknown key has no effect", "is a valid configuration"] {
        assert!(checked.stderr.contains(part), "{part} in {}", checked.stderr);
    }
}

#[test]
fn what_nobody_knows_is_a_warning_and_the_rest_is_converted() {
    let text = "actions: enqueue, alocate, allocate, mine\ntiers: [{plugins: [{name: gang}, {name: numa-aware}, {name: own}]}]\n";
    let checked = converted(&[], text);
    assert!(checked.stdout.contains("actions: allocate\n"), "{}", checked.stdout);
    for part in [
        "action alocate is left out: neither kube-batch nor Volcano 1.15 has it; did you mean allocate?",
        "action mine is left out: neither kube-batch nor Volcano 1.15 has it",
        "plugin numa-aware is left out: kube-batch does not see the NUMA nodes of a machine",
        "plugin own is left out: neither kube-batch nor Volcano 1.15 has it",
    ] {
        assert!(checked.stderr.contains(part), "{part} in {}", checked.stderr);
    }
}

#[test]
fn every_error_is_listed_and_nothing_is_printed() {
    for (arguments, text, parts) in [
        (
            &[][..],
            "actions: alocate, x\ntiers:\n- plugins: [{name: gan}]\n",
            &[
                "unknown action \"alocate\", did you mean allocate",
                "unknown action \"x\"",
                "unknown plugin \"gan\", did you mean gang",
                "3 errors in configuration standard input",
            ][..],
        ),
        (&[], "actions: [", &["1 error in configuration standard input"]),
        (&["--volcano"], "actions: [", &["1 error in configuration standard input"]),
        (&[], "", &["1 error in configuration"]),
        (
            &[],
            "apiVersion: v1\nkind: ConfigMap\ndata: {}\n",
            &["actions: is missing", "is a manifest of kind ConfigMap"],
        ),
        // Volcano rejects these too, or nothing would be left of them.
        (
            &[],
            "actions: enqueue, alocate\ntiers: [{plugins: [{name: gang, enableJobOrder: maybe}]}]\n",
            &[
                "no action is left, list at least allocate",
                "expected a boolean, found \"maybe\"",
                "2 errors in configuration standard input",
            ],
        ),
        (&["--volcano"], "tiers: []\n", &["actions: is missing"]),
        (&["--volcano"], "actions: allocate\ntiers: 7\n", &["expected a sequence"]),
    ] {
        let checked = check(arguments, text);
        assert_eq!((checked.code, &*checked.stdout), (Some(2), ""), "{text}: {}", checked.stderr);
        for part in parts {
            assert!(checked.stderr.contains(part), "{part} in {}", checked.stderr);
        }
    }
}

#[test]
fn a_file_is_read_by_name() {
    let run = |path: &str| {
        let directory = env!("CARGO_MANIFEST_DIR");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kube-batch"));
        command.args(["check-config", path]).current_dir(directory);
        Checked::new(command.output().expect("the binary runs"))
    };
    let sample = run("../examples/scheduler.yaml");
    assert_eq!((sample.code, &*sample.stdout), (Some(0), ""));
    assert_eq!(sample.stderr, "note: ../examples/scheduler.yaml is a valid configuration\n");
    let missing = run("no/such.yaml");
    assert_eq!(missing.code, Some(2));
    assert!(
        missing.stderr.contains("cannot read configuration no/such.yaml"),
        "{}",
        missing.stderr
    );
}

const QUEUES_OF_VOLCANO: &str = "\
apiVersion: v1
kind: List
items:
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata: {name: root, uid: r}
  spec: {weight: 1}
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata: {name: research, uid: a}
  spec:
    parent: root
    deserved: {cpu: 10, nvidia.com/gpu: 16}
    capability: {cpu: 20}
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata: {name: vision, uid: b, labels: {team: vision}}
  spec:
    parent: research
    weight: 3
    priority: 5
    reclaimable: false
    deserved: {cpu: 8}
    guarantee: {resource: {cpu: 4, deviceclass/gpu.example.com: 2, memory.deviceclass/gpu.example.com: 1Gi}}
    affinity: {nodeGroupAffinity: {}}
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata: {name: speech, uid: c}
  spec: {parent: research, weight: 1, deserved: {cpu: 6}}
  status: {state: Closed}
- apiVersion: scheduling.volcano.sh/v1beta1
  kind: Queue
  metadata: {name: lost, uid: d}
  spec: {parent: nowhere, weight: 2}
";

#[test]
fn queues_of_volcano_are_converted() {
    let checked = check(&[], QUEUES_OF_VOLCANO);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let expected = "\
apiVersion: scheduling.sigs.dev/v1alpha2
kind: Queue
metadata:
  labels:
    team: vision
  name: vision
spec:
  deserved:
    cpu: 8
  guarantee:
    cpu: 4
    gpu.example.com.deviceclass.resource.kubernetes.io/devices: 2
  parent: research
  priority: 5
  reclaimable: false
  weight: 3
";
    assert!(checked.stdout.contains(expected), "{}", checked.stdout);
    let mut documents = checked.stdout.split("---\n");
    assert!(documents.all(|own| !own.contains("name: root") && !own.contains("parent: root")));
    assert!(checked.stdout.contains("  parent: research\n  state: Closed\n  weight: 1\n"));
    for part in [
        "note: standard input:4:1: queue \"root\" is the top here",
        "warning: standard input:15:1: spec.affinity of queue \"vision\" has no equivalent: left out",
        "guarantee of memory.deviceclass/gpu.example.com of queue \"vision\" has no equivalent",
        "queue \"vision\" has deserved and weight 3: Volcano's plugin capacity ignores the weight",
        "queue \"speech\" is closed: spec.state says so here",
        "the queues below \"research\" have deserved of 14 cpu together, and its own deserved is 10",
        "queue \"lost\" serves nothing: parent \"nowhere\" does not exist",
    ] {
        assert!(checked.stderr.contains(part), "{part} in {}", checked.stderr);
    }
    // The result has nothing more to say but what is wrong with it.
    let again = check(&[], &checked.stdout);
    assert_eq!((again.code, &*again.stdout), (Some(0), &*checked.stdout));
    assert!(!again.stderr.contains("left out"), "{}", again.stderr);
}

#[test]
fn a_queue_that_cannot_be_read_is_an_error() {
    let text = QUEUES_OF_VOLCANO.replace("capability: {cpu: 20}", "capability: {cpu: many}");
    let checked = check(&[], &text);
    assert_eq!((checked.code, &*checked.stdout), (Some(2), ""));
    assert!(checked.stderr.contains("Queue research: spec.capability"), "{}", checked.stderr);
}
