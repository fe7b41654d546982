//! Plays a case.

use kube_batch_actions::action;
use kube_batch_api::name::{Name, ObjectKey};
use kube_batch_api::status::TaskStatus;
use kube_batch_cache::fold::SnapshotOptions;
use kube_batch_framework::{
    candidates::Search,
    conf::Conf,
    cycle::{Action, run_cycle},
};

use crate::{
    case::{Case, Step, Target},
    check::{LastCycle, Mismatch, check},
    controllers::ControllerKind,
    objects,
    world::{Environment, World},
};

/// A world and the scheduler that looks after it.
pub struct Simulation {
    /// The world.
    pub world: World,
    conf: Conf,
    actions: Vec<Box<dyn Action>>,
    search: Search,
    /// The last cycle.
    pub last: Option<LastCycle>,
}

impl Simulation {
    /// A scheduler of this configuration in a world.
    ///
    /// # Panics
    ///
    /// If the configuration names unknown actions or plugins: [`Conf`]s are checked when read.
    pub fn new(world: World, conf: Conf, search: Search) -> Self {
        let actions =
            conf.actions.iter().map(|name| action(name).expect("action names were checked"));
        Self { world, actions: actions.collect(), conf, search, last: None }
    }

    /// Runs one cycle and lets the world answer.
    pub fn cycle(&mut self) {
        self.world.tick();
        let cluster = self.world.snapshot().cluster;
        let dimensions = cluster.dimensions.clone();
        let policy = kube_batch_plugins::policy(&self.conf);
        let cycle = run_cycle(cluster, policy, &self.actions, self.search, &mut |_| {});
        self.world.answer(&cycle);
        self.last = Some(LastCycle { cycle, dimensions });
    }
}

/// Plays a case; returns what does not hold.
pub fn run(case: &Case, conf: Conf, search: Search) -> Result<Vec<Mismatch>, String> {
    let environment = Environment {
        start_cycles: case.environment.start_cycles.unwrap_or(0),
        termination_cycles: case.environment.termination_cycles.unwrap_or(0),
        kubelet: case.environment.kubelet.unwrap_or(true),
    };
    let options = SnapshotOptions {
        scheduler_name: Name::from(case.options.scheduler_name.as_deref().unwrap_or("kube-batch")),
        default_queue: Name::from(case.options.default_queue.as_deref().unwrap_or("default")),
        priority_class: case.options.priority_class.unwrap_or(true),
    };
    let mut world = World::new(environment, options);
    for object in &case.objects {
        objects::apply(&mut world, object.clone())?;
    }
    world.run_controllers();
    let mut simulation = Simulation::new(world, conf, search);
    let Some(steps) = &case.steps else {
        for _ in 0..case.cycles.unwrap_or(1) {
            simulation.cycle();
        }
        let expect = case.expect.clone().unwrap_or_default();
        return Ok(check(&expect, &simulation.world, simulation.last.as_ref()));
    };
    let mut found = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let mismatches = play(&mut simulation, step)?;
        found.extend(
            mismatches.into_iter().map(|mismatch| Mismatch {
                key: format!("steps[{at}].{}", mismatch.key),
                ..mismatch
            }),
        );
    }
    Ok(found)
}

fn play(simulation: &mut Simulation, step: &Step) -> Result<Vec<Mismatch>, String> {
    let changes = !step.apply.is_empty()
        || !step.update.is_empty()
        || !step.delete.is_empty()
        || !step.set_pod_phase.is_empty();
    if changes {
        simulation.world.tick();
    }
    for object in step.apply.iter().chain(&step.update) {
        objects::apply(&mut simulation.world, object.clone())?;
    }
    for target in &step.delete {
        delete(&mut simulation.world, target)?;
    }
    for (pod, phase) in &step.set_pod_phase {
        let status = match phase.as_str() {
            "Pending" => TaskStatus::Pending,
            "Running" => TaskStatus::Running,
            "Succeeded" => TaskStatus::Succeeded,
            "Failed" => TaskStatus::Failed,
            _ => TaskStatus::Unknown,
        };
        simulation.world.change_pod(&ObjectKey::parse(pod), |facts| {
            facts.status = match status {
                TaskStatus::Pending if facts.node.is_some() => TaskStatus::Bound,
                status => status,
            };
        });
    }
    simulation.world.run_controllers();
    for _ in 0..step.cycles {
        simulation.cycle();
    }
    let mut found = Vec::new();
    if let Some(eventually) = &step.eventually {
        for n in 0..=eventually.max_cycles {
            found = check(&eventually.expect, &simulation.world, simulation.last.as_ref());
            if found.is_empty() {
                break;
            }
            if n < eventually.max_cycles {
                simulation.cycle();
            }
        }
        for mismatch in &mut found {
            mismatch.key = format!("eventually.{}", mismatch.key);
        }
    }
    if let Some(expect) = &step.expect {
        found.extend(check(expect, &simulation.world, simulation.last.as_ref()));
        simulation.world.record = Default::default();
    }
    Ok(found)
}

fn delete(world: &mut World, target: &Target) -> Result<(), String> {
    let name = Name::from(target.name.as_str());
    let key = ObjectKey::new(target.namespace.as_deref().unwrap_or("default"), &*target.name);
    let known = match target.kind.as_str() {
        "Pod" => {
            let known = world.store.pods.get(&key).is_some();
            world.remove_pod(&key);
            known
        }
        "Node" => world.store.nodes.delete(&name),
        "PriorityClass" => world.store.priority_classes.delete(&name),
        "PodDisruptionBudget" => world.store.budgets.delete(&key),
        "Queue" => {
            let all = kube_batch_api::crd::ApiVersion::ALL;
            all.map(|v| world.store.queues.delete(&(name.clone(), v))).contains(&true)
        }
        "PodGroup" => {
            let all = kube_batch_api::crd::ApiVersion::ALL;
            all.map(|v| world.store.groups.delete(&(key.clone(), v))).contains(&true)
        }
        "Job" => world.controllers.delete(ControllerKind::Job, &key, &mut world.store),
        "ReplicaSet" => {
            world.controllers.delete(ControllerKind::ReplicaSet, &key, &mut world.store)
        }
        kind => return Err(format!("cannot delete kind {kind}")),
    };
    if known { Ok(()) } else { Err(format!("there is no {} {key}", target.kind)) }
}
