//! `kube-batch queue`: shows the queues of a cluster, and opens and closes them.

mod describe;
mod explain;
mod list;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub(crate) mod view;

use std::{collections::BTreeMap, io::Write, sync::Arc};

use anyhow::{Context, bail};
use jiff::Timestamp;
use kube_batch_api::{
    dialect::{self, RawObject},
    kind::Kind,
};
use kube_batch_model::{facts::queue::QueueFacts, group_version::GroupVersion};
use kube_batch_yaml::suggest;
use serde_json::{Value, json};

use self::view::QueueViews;
use crate::{
    commands::{QueueCommand, ShowArgs},
    exit::Exit,
    live::{ClusterAccess, ClusterTarget, Lists, Namespaces, QueueRef},
    show::{Shown, show},
    terminal,
};

/// Runs a command.
pub(crate) fn run(command: &QueueCommand, cluster: &dyn ClusterAccess) -> anyhow::Result<Exit> {
    match command {
        QueueCommand::Tree { resources, show } => all(show, cluster, &|out, queues| {
            let width = terminal::width();
            tree::table(queues, resources, width).print(out, width)
        }),
        QueueCommand::List { show } => {
            all(show, cluster, &|out, queues| list::print(out, queues, terminal::width()))
        }
        QueueCommand::Describe { name, show } => describe(name, show, cluster),
        QueueCommand::Open { name, cluster: args } => {
            set_state(name, "Open", &args.target(Namespaces::All), cluster)
        }
        QueueCommand::Close { name, cluster: args } => {
            set_state(name, "Closed", &args.target(Namespaces::All), cluster)
        }
    }
}

/// The queues of a cluster that count: of several with one name, that of the last API.
struct Found {
    objects: BTreeMap<String, (GroupVersion, Value)>,
}

impl Found {
    fn new(lists: &Lists) -> anyhow::Result<Self> {
        let mut problems = lists.problems.iter();
        if let Some(problem) = problems.next().filter(|_| lists.lists.is_empty()) {
            bail!("{problem}");
        }
        lists.problems.iter().for_each(|problem| terminal::warning(&problem.to_string()));
        let mut objects: BTreeMap<String, (GroupVersion, Value)> = BTreeMap::new();
        for (resource, page) in &lists.lists {
            let version = Kind::Queue.versions().find(|version| {
                resource.split_once('.').is_some_and(|(_, group)| group == version.group())
            });
            let Some(version) = version else { continue };
            let page: Value =
                serde_json::from_str(page).with_context(|| format!("the list of {resource}"))?;
            for item in page["items"].as_array().into_iter().flatten() {
                let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let known = objects.get(&name).map(|(known, _)| *known);
                if known.is_none_or(|known| known < version) {
                    objects.insert(name, (version, typed(item, version)));
                }
            }
        }
        Ok(Self { objects })
    }

    fn facts(&self) -> Vec<Arc<QueueFacts>> {
        let read = |(version, object): &(GroupVersion, Value)| {
            let object: RawObject = serde_json::from_value(object.clone()).ok()?;
            match dialect::of(*version).read_queue(&object) {
                Ok(facts) => Some(Arc::new(facts)),
                Err(problem) => {
                    terminal::warning(&problem.to_string());
                    None
                }
            }
        };
        self.objects.values().filter_map(read).collect()
    }

    fn queues(&self) -> QueueViews {
        QueueViews::new(self.facts().into_iter().map(|facts| {
            let status = facts.status.clone();
            (facts, status)
        }))
    }
}

/// An item of a list, which may lack its type.
fn typed(item: &Value, version: GroupVersion) -> Value {
    let mut object = item.clone();
    object["apiVersion"] = json!(version.to_string());
    object["kind"] = json!("Queue");
    object
}

type Print<'a> = &'a dyn Fn(&mut dyn Write, &QueueViews) -> std::io::Result<()>;

fn all(args: &ShowArgs, cluster: &dyn ClusterAccess, print: Print<'_>) -> anyhow::Result<Exit> {
    let target = args.cluster.target(Namespaces::All);
    show(args, &target, &[Kind::Queue], cluster, &mut |out, lists| {
        let found = Found::new(&lists)?;
        let objects: Vec<&Value> = found.objects.values().map(|(_, object)| object).collect();
        if objects.is_empty() {
            terminal::note("there are no queues");
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        Shown { exit: Exit::Ok, data: &list, print: &|out| print(out, &found.queues()) }
            .write(out, args.output)
    })
}

fn describe(name: &str, args: &ShowArgs, cluster: &dyn ClusterAccess) -> anyhow::Result<Exit> {
    let target = args.cluster.target(Namespaces::All);
    show(args, &target, &[Kind::Queue], cluster, &mut |out, lists| {
        let found = Found::new(&lists)?;
        let Some((_, object)) = found.objects.get(name) else {
            return Ok(no_such_queue(name, &found));
        };
        let queues = found.queues();
        let Some(row) = queues.row(name) else { return Ok(Exit::Failed) };
        Shown {
            exit: Exit::Ok,
            data: object,
            print: &|out| describe::print(out, &queues, row, Timestamp::now()),
        }
        .write(out, args.output)
    })
}

fn no_such_queue(name: &str, found: &Found) -> Exit {
    let meant = suggest(name, found.objects.keys().map(|name| &**name));
    let hint = meant.map(|meant| format!(", did you mean \"{meant}\"?")).unwrap_or_default();
    terminal::error(&format!("queue \"{name}\" does not exist{hint}"));
    Exit::Failed
}

fn set_state(
    name: &str,
    state: &str,
    target: &ClusterTarget,
    cluster: &dyn ClusterAccess,
) -> anyhow::Result<Exit> {
    let found = Found::new(&cluster.read(target, &[Kind::Queue])?)?;
    let Some((version, object)) = found.objects.get(name) else {
        return Ok(no_such_queue(name, &found));
    };
    if *version == GroupVersion::Volcano {
        let action = if state == "Open" { "open" } else { "close" };
        terminal::error(&format!(
            "queue \"{name}\" is one of Volcano, whose controller keeps its state: \
             vcctl queue operate --name {name} --action {action}"
        ));
        return Ok(Exit::Failed);
    }
    let shown = if state == "Open" { "open" } else { "closed" };
    if object["spec"]["state"].as_str().unwrap_or("Open") == state {
        println!("queue \"{name}\" is {shown} already");
        return Ok(Exit::Ok);
    }
    let queue = QueueRef { version: *version, name: name.to_owned() };
    cluster.patch_queue(target, &queue, &json!({"spec": {"state": state}}))?;
    println!("queue \"{name}\" is {shown} now");
    Ok(Exit::Ok)
}
