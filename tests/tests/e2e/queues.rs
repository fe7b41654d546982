//! Queues that form a tree, as administrators make them and users look at them.

use std::{
    fs,
    io::{BufRead, BufReader},
    iter,
    path::Path,
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, SYSTEM, binary, group, job, nodes};

const QUEUES: &str = "queues.scheduling.sigs.dev";

/// A queue with these fields.
fn queue(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "scheduling.sigs.dev/v1alpha2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    })
}

/// Applies a PodGroup in a queue and its Job.
fn submit(bed: &Bed, name: &str, queue: &str, n: usize, cpu: &str) {
    let mut group = group(name, 1);
    group["spec"]["queue"] = json!(queue);
    bed.apply(&group);
    bed.apply(&job(name, n, cpu));
}

/// Waits until a field of the status of a queue has a value.
fn wait_for_status(bed: &Bed, name: &str, pointer: &str, wanted: &Value) {
    bed.eventually(&format!("status{pointer} of queue {name} is {wanted}"), || {
        let status = bed.get(QUEUES, name)["status"].clone();
        if status.pointer(pointer) == Some(wanted) { Ok(()) } else { Err(status.to_string()) }
    });
}

/// The reason and message of a condition of a queue.
fn condition(bed: &Bed, name: &str, type_: &str) -> (String, String, String) {
    let object = bed.get(QUEUES, name);
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|own| own["type"] == type_);
    let field =
        |field: &str| found.and_then(|own| own[field].as_str()).unwrap_or_default().to_owned();
    (field("status"), field("reason"), field("message"))
}

fn wait_for_condition(bed: &Bed, name: &str, type_: &str, wanted: (&str, &str, &str)) {
    bed.eventually(&format!("queue {name} has {type_} {wanted:?}"), || {
        let (status, reason, message) = condition(bed, name, type_);
        let is_met = (&*status, &*reason, &*message) == wanted;
        if is_met { Ok(()) } else { Err(format!("{status}, {reason}, {message}")) }
    });
}

/// Waits until the condition of the PodGroup has a reason.
fn wait_for_reason(bed: &Bed, name: &str, reason: &str) {
    bed.eventually(&format!("PodGroup {name} waits because of {reason}"), || {
        let object = bed.get("podgroups.scheduling.sigs.dev", name);
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let has = |own: &Value| own["status"] == "True" && own["reason"] == reason;
        if conditions.iter().any(has) { Ok(()) } else { Err(object["status"].to_string()) }
    });
}

/// Runs a command of the program against a cluster.
fn run(kubeconfig: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(args).arg("--kubeconfig").arg(kubeconfig);
    command.output().expect("the binary runs")
}

/// The standard output of a command that has to succeed.
fn shown(kubeconfig: &Path, args: &[&str]) -> String {
    let output = run(kubeconfig, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn a_tree_is_made_with_kubectl_and_survives_the_loss_of_a_parent() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.start_scheduler(&[]);
    // The children first: the order does not matter.
    bed.apply(&queue("physics", json!({"parent": "science", "weight": 1})));
    bed.apply(&queue("biology", json!({"parent": "science", "weight": 3})));
    let missing = ("False", "ParentNotFound", "parent \"science\" does not exist");
    wait_for_condition(&bed, "physics", "Active", missing);
    bed.apply(&queue("science", json!({"weight": 1})));
    wait_for_condition(&bed, "physics", "Active", ("True", "Active", ""));
    wait_for_status(&bed, "science", "/children", &json!(2));

    let own = bed.kubectl([
        "patch",
        QUEUES,
        "science",
        "--type=merge",
        "--patch",
        "{\"spec\":{\"parent\":\"science\"}}",
    ]);
    let refused = own.expect_err("a queue is not above itself");
    assert!(refused.contains("spec.parent must not be the queue itself"), "{refused}");

    submit(&bed, "faculty", "science", 1, "1");
    wait_for_reason(&bed, "faculty", "QueueNotLeaf");
    submit(&bed, "quarks", "physics", 8, "1");
    submit(&bed, "cells", "biology", 8, "1");
    bed.wait_until_running("quarks", 2);
    bed.wait_until_running("cells", 6);
    wait_for_status(&bed, "science", "/allocated/cpu", &json!("8"));
    wait_for_status(&bed, "science", "/use", &json!("cpu 8/8"));
    let table = bed.kubectl(["get", QUEUES]).expect("a table");
    let columns: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(&columns[..4], ["NAME", "PARENT", "STATE", "WEIGHT"], "{table}");

    // What runs stays, and nothing starts.
    bed.kubectl(["delete", QUEUES, "science"]).expect("deleted");
    wait_for_condition(&bed, "biology", "Active", missing);
    submit(&bed, "late", "biology", 1, "1");
    wait_for_reason(&bed, "late", "QueueParent");
    bed.wait_until_running("quarks", 2);
    bed.wait_until_running("cells", 6);
    let events = bed.list_all("events");
    let of_queue = |event: &&Value| event["reason"] == "ParentNotFound";
    assert!(events.iter().any(|event| of_queue(&event)), "the queue has an event");

    bed.apply(&queue("science", json!({"weight": 1})));
    wait_for_condition(&bed, "biology", "Active", ("True", "Active", ""));
    wait_for_status(&bed, "science", "/allocated/cpu", &json!("8"));
    bed.wait_until_running("quarks", 2);
    bed.wait_until_running("cells", 6);
}

#[test]
fn a_closed_queue_starts_nothing_until_it_is_opened() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.apply(&queue("arts", json!({"weight": 1})));
    bed.apply(&queue("music", json!({"weight": 1, "parent": "arts"})));
    bed.start_scheduler(&[]);
    submit(&bed, "opera", "music", 1, "1");
    bed.wait_until_running("opera", 1);
    let kubeconfig = bed.plane.kubeconfig();
    assert_eq!(shown(&kubeconfig, &["queue", "close", "arts"]), "queue \"arts\" is closed now\n");
    wait_for_status(&bed, "arts", "/state", &json!("Closing"));
    wait_for_condition(
        &bed,
        "music",
        "Active",
        ("False", "Closed", "\"arts\", above it, is closed"),
    );
    submit(&bed, "ballet", "music", 1, "1");
    wait_for_reason(&bed, "ballet", "QueueClosed");
    bed.expect_waiting("ballet");
    bed.wait_until_running("opera", 1);
    bed.kubectl(["delete", "job", "opera", "--namespace", NAMESPACE]).expect("deleted");
    wait_for_status(&bed, "arts", "/state", &json!("Closed"));
    assert_eq!(shown(&kubeconfig, &["queue", "open", "arts"]), "queue \"arts\" is open now\n");
    bed.wait_until_running("ballet", 1);
    let again = shown(&kubeconfig, &["queue", "open", "arts"]);
    assert_eq!(again, "queue \"arts\" is open already\n");
}

#[test]
fn a_guarantee_is_taken_at_once_on_a_full_cluster() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.apply(&queue("batch", json!({"weight": 1})));
    bed.apply(&queue("notebooks", json!({"weight": 1, "guarantee": {"cpu": "2"}})));
    bed.start_scheduler(&[]);
    submit(&bed, "sweep", "batch", 12, "1");
    bed.wait_until_running("sweep", 6);
    bed.consistently("two CPUs stay free", || {
        let n = bed.n_bound("sweep");
        if n == 6 { Ok(()) } else { Err(format!("{n} pods run")) }
    });
    wait_for_status(&bed, "notebooks", "/guaranteed/cpu", &json!("2"));
    submit(&bed, "notebook", "notebooks", 2, "1");
    bed.wait_until_running("notebook", 2);
    bed.wait_until_running("sweep", 6);
    assert!(bed.list("events").iter().all(|event| event["reason"] != "Preempted"));
}

#[test]
fn people_look_at_queues_and_jobs() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.apply(&queue("science", json!({"weight": 1})));
    bed.apply(&queue("physics", json!({"parent": "science", "weight": 1})));
    bed.apply(&queue("lost", json!({"parent": "emea"})));
    bed.start_scheduler(&[]);
    submit(&bed, "quarks", "physics", 10, "1");
    bed.wait_until_running("quarks", 8);
    wait_for_status(&bed, "physics", "/use", &json!("cpu 8/8"));
    wait_for_condition(
        &bed,
        "lost",
        "Active",
        ("False", "ParentNotFound", "parent \"emea\" does not exist"),
    );

    // Permission to read queues is enough for the commands for queues.
    let user = bed.plane.kubeconfig_for_user("reader", &[]).expect("a kubeconfig");
    let refused = run(&user, &["queue", "tree"]);
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot read queues"));
    let role = "--clusterrole=kube-batch-queue-viewer";
    bed.kubectl(["create", "clusterrolebinding", "reader", role, "--user=reader"])
        .expect("a binding");
    bed.eventually("the user may read queues", || {
        let output = run(&user, &["queue", "list"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains("physics") { Ok(()) } else { Err(text) }
    });
    let tree = shown(&user, &["queue", "tree"]);
    let lines: Vec<&str> = tree.lines().map(str::trim_end).collect();
    let physics = lines.iter().find(|line| line.contains("physics")).expect("physics");
    assert!(physics.contains("└─ physics") && physics.contains("8/8"), "{tree}");
    let lost = lines.iter().find(|line| line.starts_with("lost")).expect("lost");
    assert!(lost.ends_with("  parent \"emea\" does not exist"), "{tree}");
    let list = shown(&user, &["queue", "list"]);
    assert!(list.contains("emea !"), "{list}");
    let described = shown(&user, &["queue", "describe", "physics"]);
    assert!(described.starts_with("Queue physics, in science\n"), "{described}");
    let names = json!(["default", "lost", "physics", "science"]);
    let data: Value =
        serde_json::from_str(&shown(&user, &["queue", "list", "-o", "json"])).expect("JSON");
    let found: Vec<&Value> = data["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|own| &own["metadata"]["name"])
        .collect();
    assert_eq!(json!(found), names);
    let unknown = run(&user, &["queue", "describe", "phisics"]);
    assert_eq!(unknown.status.code(), Some(1));
    let message = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        message.contains("queue \"phisics\" does not exist, did you mean \"physics\"?"),
        "{message}"
    );

    let admin = bed.plane.kubeconfig();
    bed.eventually("the job has a line", || {
        let jobs = shown(&admin, &["job", "list", "-n", NAMESPACE, "--queue", "science"]);
        let line = jobs.lines().find(|line| line.contains("quarks")).unwrap_or_default().to_owned();
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_met =
            words.get(..6) == Some(&["test/quarks", "physics", "Running", "1", "8", "2"][..]);
        if is_met && line.contains("Insufficient cpu") { Ok(()) } else { Err(jobs) }
    });
    let data: Value =
        serde_json::from_str(&shown(&admin, &["job", "list", "-A", "-o", "json"])).expect("JSON");
    assert_eq!(data[0]["name"], "test/quarks", "{data}");

    is_a_plugin_of_kubectl(&bed);
    is_shown_again_after_changes(&bed, &admin);
}

/// With the name `kubectl-batch`, the program is `kubectl batch`.
fn is_a_plugin_of_kubectl(bed: &Bed) {
    let directory = bed.plane.log_dir().join("plugin");
    fs::create_dir_all(&directory).expect("a directory");
    let plugin = directory.join("kubectl-batch");
    fs::copy(binary(), &plugin).expect("a copy");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = iter::once(directory).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(paths).expect("paths without colons");
    let kubectl = |args: &[&str]| {
        let mut command = bed.plane.kubectl_command();
        let output = command.args(args).env("PATH", &path).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let help = kubectl(&["batch", "queue", "--help"]);
    assert!(help.contains("Usage: kubectl batch queue <COMMAND>"), "{help}");
    // It uses the kubeconfig that kubectl uses.
    let tree = kubectl(&["batch", "queue", "tree"]);
    assert!(tree.contains("└─ physics"), "{tree}");
}

/// `--watch` draws the tree again after a change.
fn is_shown_again_after_changes(bed: &Bed, kubeconfig: &Path) {
    let mut watching = Command::new(binary())
        .args(["queue", "tree", "--watch", "--kubeconfig"])
        .arg(kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let (send, lines) = mpsc::channel();
    let output = watching.stdout.take().expect("a pipe");
    thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).for_each(|line| drop(send.send(line)));
    });
    let wait_for = |part: &str| loop {
        let line = lines.recv_timeout(Duration::from_secs(30)).expect("another line");
        if line.contains(part) {
            return;
        }
    };
    wait_for("physics");
    bed.apply(&queue("chemistry", json!({"parent": "science"})));
    wait_for("chemistry");
    watching.kill().expect("it runs until it is interrupted");
    watching.wait().expect("it has ended");
}

/// The replica that stands by completes what the leader had begun, and evicts no more than is needed.
#[test]
fn a_leader_is_killed_in_a_reclaim_between_teams() {
    let mut bed = Bed::new(&nodes(4, "4"));
    for (name, spec) in [
        ("science", json!({"weight": 1})),
        ("arts", json!({"weight": 1})),
        ("physics", json!({"parent": "science", "weight": 1})),
        ("biology", json!({"parent": "science", "weight": 1})),
        ("music", json!({"parent": "arts", "weight": 1})),
    ] {
        bed.apply(&queue(name, spec));
    }
    let namespace = format!("--lock-object-namespace={SYSTEM}");
    let flags = [
        "--leader-elect",
        &namespace,
        "--lease-duration=4s",
        "--renew-deadline=3s",
        "--retry-period=1s",
    ];
    bed.start_scheduler(&flags);
    bed.eventually("the first replica is the leader", || {
        if bed.scheduler(0).is_leader() { Ok(()) } else { Err("it is not".to_owned()) }
    });
    bed.start_scheduler(&flags);
    let mut lent = job("lent", 16, "1");
    // Victims terminate slowly, so that the leader is killed while they do.
    lent["spec"]["template"]["metadata"]["annotations"]["testbed.kube-batch/stop-after"] =
        json!("4s");
    // The Job controller counts evictions as failures.
    lent["spec"]["backoffLimit"] = json!(100);
    let mut of_music = group("lent", 1);
    of_music["spec"]["queue"] = json!("music");
    bed.apply(&of_music);
    bed.apply(&lent);
    bed.wait_until_running("lent", 16);
    submit(&bed, "quarks", "physics", 4, "1");
    submit(&bed, "cells", "biology", 4, "1");
    bed.eventually("pods are evicted", || {
        let terminates = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
        let n = bed.list("pods").iter().filter(|pod| terminates(pod)).count();
        if n > 0 { Ok(()) } else { Err("none terminates".to_owned()) }
    });
    bed.take_scheduler(0).kill();
    bed.wait_until_running("quarks", 4);
    bed.wait_until_running("cells", 4);
    bed.consistently("every team keeps its part", || {
        let running = ["quarks", "cells", "lent"].map(|job| bed.pods_in(job, "Running").len());
        if running == [4, 4, 8] { Ok(()) } else { Err(format!("{running:?} are running")) }
    });
    wait_for_status(&bed, "science", "/allocated/cpu", &json!("8"));
}

/// Permits a user to change all queues, and to use some.
fn let_change(bed: &Bed, user: &str, may_use: &[&str]) {
    let all = json!({
        "apiGroups": ["scheduling.sigs.dev"],
        "resources": ["queues"],
        "verbs": ["create", "get", "update", "patch", "delete"],
    });
    let some = json!({
        "apiGroups": ["scheduling.sigs.dev"],
        "resources": ["queues"],
        "resourceNames": may_use,
        "verbs": ["use"],
    });
    let mut rules = vec![all];
    rules.extend((!may_use.is_empty()).then_some(some));
    bed.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": user},
        "rules": rules,
    }));
    let (role, subject) = (format!("--clusterrole={user}"), format!("--user={user}"));
    bed.kubectl(["create", "clusterrolebinding", user, &role, &subject]).expect("a binding");
}

#[test]
fn policies_say_who_changes_queues() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.apply(&queue("science", json!({"weight": 1})));
    bed.apply(&queue("arts", json!({"weight": 1})));
    for component in ["queue-tree", "queue-promises", "queue-deletion"] {
        bed.install_component(component);
    }
    let_change(&bed, "lead", &["science"]);
    // The scheduler may create the default queue at the top.
    bed.start_scheduler(&[]);
    let lead = |verb: &str, args: &[&str]| {
        let args: Vec<&str> = [&[verb, "--as=lead"], args].concat();
        bed.plane.kubectl(args).map_err(|error| error.to_string())
    };
    let put = |name: &str, spec: Value| {
        let path = bed.plane.log_dir().join(format!("{name}.json"));
        fs::write(&path, queue(name, spec).to_string()).expect("a file");
        lead("apply", &["--filename", path.to_str().expect("a plain path")])
    };
    // Below the queue that the lead may use, and nowhere else. Policies take effect after some time.
    bed.eventually("the lead may not put queues at the top", || {
        match put("own", json!({"weight": 9})) {
            Err(why) if why.contains("may not change queues at the top") => Ok(()),
            other => {
                drop(bed.kubectl(["delete", QUEUES, "own", "--ignore-not-found"]));
                Err(format!("{other:?}"))
            }
        }
    });
    put("physics", json!({"parent": "science", "weight": 2})).expect("below science");
    put("physics", json!({"parent": "science", "weight": 3})).expect("below science");
    let refused = |result: Result<String, String>, part: &str| {
        let why = result.expect_err(part);
        assert!(why.contains(part), "{part} in {why}");
    };
    refused(
        put("music", json!({"parent": "arts"})),
        "user \"lead\" may not change queues below \"arts\": the verb use on it is missing",
    );
    refused(put("physics", json!({"parent": "arts", "weight": 3})), "below \"arts\"");
    refused(put("arts", json!({"weight": 0})), "at the top: the verb use on all queues is missing");
    refused(lead("delete", &[QUEUES, "arts"]), "at the top");

    // Promises are for one group.
    bed.eventually("the lead may not promise anything", || {
        match put("physics", json!({"parent": "science", "weight": 3, "guarantee": {"cpu": "1"}})) {
            Err(why) if why.contains("may not change guarantee of queues") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    refused(
        put("chemistry", json!({"parent": "science", "priority": 5, "reclaimable": false})),
        "may not change priority, reclaimable of queues: only members of the group \
         \"kube-batch:queue-promises\" may",
    );
    let promise = "{\"spec\":{\"deserved\":{\"cpu\":\"2\"}}}";
    let groups = ["--as-group=kube-batch:queue-promises", "--as-group=system:masters"];
    bed.kubectl([
        "patch",
        QUEUES,
        "physics",
        "--type=merge",
        "--patch",
        promise,
        "--as=root",
        groups[0],
        groups[1],
    ])
    .expect("a member of the group may");
    // What others have promised does not keep the lead from other changes.
    put("physics", json!({"parent": "science", "weight": 4, "deserved": {"cpu": "2"}}))
        .expect("the promise stays");

    // A queue is deleted last.
    wait_for_status(&bed, "science", "/children", &json!(1));
    submit(&bed, "quarks", "physics", 1, "1");
    bed.wait_until_running("quarks", 1);
    wait_for_status(&bed, "physics", "/running", &json!(1));
    refused(
        bed.kubectl(["delete", QUEUES, "science"]),
        "queue \"science\" has 1 queues below it and 1 jobs that run: move or delete these first",
    );
    refused(lead("delete", &[QUEUES, "physics"]), "0 queues below it and 1 jobs that run");
    bed.kubectl(["delete", "job", "quarks", "--namespace", NAMESPACE]).expect("deleted");
    wait_for_status(&bed, "physics", "/running", &json!(0));
    lead("delete", &[QUEUES, "physics"]).expect("nothing runs in it");
}
