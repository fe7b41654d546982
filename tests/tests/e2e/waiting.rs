//! Whether a user with the role `edit` reads why a job waits if others are the reason.

use std::time::{Duration, Instant};

use kube_batch_testbed::cluster::Server;
use serde_json::{Value, json};

use crate::{
    bed::{Bed, NAMESPACE, group, job, nodes, pods, priority_class, queue},
    devices,
    objects::claim,
    users::bind_in_namespace,
};

/// The namespace of the other team.
const OTHERS: &str = "team-t";

/// The user, who may do in [`NAMESPACE`] what the role `edit` allows, and nothing else.
const USER: &str = "dana";

/// How long a user has to wait for the reason at most.
const LONGEST: Duration = Duration::from_secs(15);

const GPU: &str = "nvidia.com/gpu";

/// Two nodes with 8 GPUs each.
fn gpu_bed() -> Bed {
    let bed = Bed::new(&nodes(2, "64"));
    for node in bed.list_all("nodes") {
        let name = node["metadata"]["name"].as_str().expect("a name").to_owned();
        let status = json!({"status": {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}}});
        let patch = format!("--patch={status}");
        bed.kubectl(["patch", "node", &name, "--subresource=status", &patch]).expect("a patch");
    }
    bed.create_namespace(OTHERS);
    bind_in_namespace(&bed, USER, "edit");
    bed
}

/// A PodGroup of some pods that start together, in a queue, with this number of GPUs each.
struct Gang {
    namespace: &'static str,
    name: &'static str,
    queue: &'static str,
    n_pods: usize,
    n_gpus: u32,
}

impl Gang {
    fn objects(&self) -> (Value, Vec<Value>) {
        let Self { namespace, name, queue, n_pods, n_gpus } = self;
        let mut group = group(name, *n_pods);
        group["metadata"]["namespace"] = json!(namespace);
        group["spec"]["queue"] = json!(queue);
        let mut pods = pods(name, *n_pods, "1");
        for pod in &mut pods {
            pod["metadata"]["namespace"] = json!(namespace);
            let resources = &mut pod["spec"]["containers"][0]["resources"];
            *resources = json!({"requests": {"cpu": "1", GPU: n_gpus.to_string()}, "limits": {GPU: n_gpus.to_string()}});
        }
        (group, pods)
    }

    /// Creates it, with further fields in the specs of its pods.
    fn submit(&self, bed: &Bed, fields: &Value) {
        let (group, mut pods) = self.objects();
        for pod in &mut pods {
            for (field, value) in fields.as_object().into_iter().flatten() {
                pod["spec"][field] = value.clone();
            }
        }
        bed.apply(&group);
        bed.plane.create(&pods).expect("pods are created");
    }

    fn wait_until_running(&self, bed: &Bed) {
        bed.eventually(&format!("{} runs", self.name), || {
            let args =
                ["get", "pods", "--namespace", self.namespace, "-l", &format!("of={}", self.name)];
            let args = args.into_iter().chain(["-o", "jsonpath={.items[*].status.phase}"]);
            let phases = bed.plane.kubectl(args).map_err(|error| error.to_string())?;
            let n_running = phases.split_whitespace().filter(|phase| *phase == "Running").count();
            if n_running == self.n_pods { Ok(()) } else { Err(phases) }
        });
    }

    fn delete(&self, bed: &Bed) {
        let Self { namespace, name, .. } = self;
        let label = format!("of={name}");
        bed.kubectl(["delete", "pods", "--namespace", namespace, "-l", &label]).expect("deleted");
        bed.kubectl(["delete", GROUP, name, "--namespace", namespace]).expect("deleted");
    }
}

const GROUP: &str = "podgroups.scheduling.sigs.dev";

/// What the user reads about a PodGroup and one of its pods.
fn described(bed: &Bed, name: &str) -> Result<String, String> {
    let as_user = |kind: &str, name: &str| {
        let args = ["describe", kind, name, "--namespace", NAMESPACE, "--as", USER];
        bed.plane.kubectl(args).map_err(|error| error.to_string())
    };
    let text = as_user(GROUP, name)? + &as_user("pod", &format!("{name}-0"))?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Waits until the user reads all the words about a PodGroup and about its first pod, and prints how long that took.
fn explains(bed: &Bed, cause: &str, name: &str, words: &str) {
    let started = Instant::now();
    bed.eventually(&format!("{cause} is explained"), || {
        let text = described(bed, name)?;
        if text.matches(words).count() >= 2 { Ok(()) } else { Err(text) }
    });
    let took = started.elapsed();
    println!("{cause}: {:.1} s: {words}", took.as_secs_f64());
    let text = described(bed, name).expect("a text");
    assert!(!text.contains(OTHERS), "it names jobs of another namespace: {text}");
    assert!(took < LONGEST, "{cause}: {took:?}");
}

const fn mine(name: &'static str, n_pods: usize, n_gpus: u32) -> Gang {
    Gang { namespace: NAMESPACE, name, queue: "research", n_pods, n_gpus }
}

const fn theirs(name: &'static str, n_pods: usize, n_gpus: u32) -> Gang {
    Gang { namespace: OTHERS, name, queue: "training", n_pods, n_gpus }
}

#[test]
fn a_user_reads_which_others_keep_a_job_waiting() {
    let mut bed = gpu_bed();
    bed.apply(&queue("research", 1));
    let mut training = queue("training", 1);
    training["spec"]["minRuntime"] = json!("1h");
    bed.apply(&training);
    bed.apply(&priority_class("high", 1000));
    bed.start_scheduler(&[]);

    let llm = theirs("llm", 2, 8);
    llm.submit(&bed, &json!({}));
    llm.wait_until_running(&bed);
    let waits = mine("waits", 1, 8);
    waits.submit(&bed, &json!({}));
    explains(
        &bed,
        "another team holds my share",
        "waits",
        "queue \"research\" uses 0 of the 8 GPUs that it deserves; queue \"training\" uses 8 GPUs more than it \
         deserves, minRuntime protects its pods with 16 GPUs, the first until 20",
    );
    mistakes(&bed);
    llm.delete(&bed);
    waits.wait_until_running(&bed);
    waits.delete(&bed);

    let notebook = theirs("notebook", 1, 1);
    notebook.submit(&bed, &json!({}));
    notebook.wait_until_running(&bed);
    let six = mine("six", 2, 8);
    six.submit(&bed, &json!({}));
    explains(
        &bed,
        "one GPU short",
        "six",
        "has 7 GPUs free (1 used by a job of queue \"training\")",
    );
    let words = "1 of 2 pods can be placed; missing: 1 pod with 8 GPUs: ";
    assert!(described(&bed, "six").expect("a text").contains(words));
    notebook.delete(&bed);
    six.wait_until_running(&bed);

    let next = mine("next", 1, 8);
    next.submit(&bed, &json!({}));
    let words = "queue \"research\" uses 16 of the 16 GPUs that it deserves";
    explains(&bed, "my colleagues hold our share", "next", words);
    next.delete(&bed);

    six.delete(&bed);

    let old = mine("old", 1, 8);
    old.submit(&bed, &json!({}));
    old.wait_until_running(&bed);
    // The kubelets stop, so that the victim stays.
    bed.plane.stop(Server::Kwok).expect("the kubelets stop");
    let urgent = mine("urgent", 2, 8);
    urgent.submit(&bed, &json!({"priorityClassName": "high"}));
    let words =
        "2 pods have places on node-00000 and node-00001; waits for 1 pod that is being terminated";
    explains(&bed, "victims still end", "urgent", words);
    mine("small", 1, 4).submit(&bed, &json!({}));
    let words = "is kept for job test/urgent";
    explains(&bed, "behind a nominated job", "small", words);
    bed.plane.restart(Server::Kwok).expect("the kubelets start");
    urgent.wait_until_running(&bed);
}

/// Mistakes of the user for which kube-batch knows what was meant, or what is missing.
fn mistakes(bed: &Bed) {
    let misspelt = Gang { queue: "reserach", ..mine("misspelt", 1, 1) };
    misspelt.submit(bed, &json!({}));
    let words = "queue \"reserach\" does not exist; did you mean \"research\"?";
    explains(bed, "queue misspelt", "misspelt", words);
    misspelt.delete(bed);

    let labelled = mine("labelled", 1, 0);
    labelled.submit(bed, &json!({"nodeSelector": {"gpu": "h100"}}));
    explains(bed, "node label", "labelled", "no node matches its selector gpu=h100");
    labelled.delete(bed);

    bed.apply(&claim("data", "fast"));
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let stored = mine("stored", 1, 0);
    stored.submit(bed, &json!({"volumes": volumes}));
    let words = "claim \"data\" is of StorageClass fast, which does not exist";
    explains(bed, "volume class", "stored", words);
    stored.delete(bed);

    bed.apply(&devices::class());
    bed.apply(&devices::claim("board"));
    let claims = json!([{"name": "board", "resourceClaimName": "board"}]);
    let boards = mine("boards", 1, 0);
    boards.submit(bed, &json!({"resourceClaims": claims}));
    let words =
        "claim \"board\", request \"gpu\", needs 1 device of DeviceClass gpu: no node has any";
    explains(bed, "device claim", "boards", words);
    boards.delete(bed);
    no_gang(bed);
}

/// Pods of one Job that need each other, and name no PodGroup.
fn no_gang(bed: &Bed) {
    bed.apply(&queue("default", 1));
    let mut job = job("alone", 2, "64");
    job["spec"]["template"]["metadata"]["annotations"].take();
    bed.apply(&job);
    let started = Instant::now();
    let words = "its pods name no PodGroup, so each starts by itself; it fits on no node";
    bed.eventually("no gang is explained", || {
        let args = ["get", "pods", "--namespace", NAMESPACE, "-l", "job-name=alone", "--as", USER];
        let args = args.into_iter().chain(["-o", "jsonpath={.items[*].status.conditions}"]);
        let text = bed.plane.kubectl(args).map_err(|error| error.to_string())?;
        if text.matches(words).count() >= 2 { Ok(()) } else { Err(text) }
    });
    println!("no gang: {:.1} s: {words}", started.elapsed().as_secs_f64());
    bed.kubectl(["delete", "job", "alone", "--namespace", NAMESPACE]).expect("it is deleted");
    bed.kubectl(["delete", "queues.scheduling.sigs.dev", "default"]).expect("it is deleted");
}
