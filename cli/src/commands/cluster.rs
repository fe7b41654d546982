//! The commands that look at a cluster, and their arguments.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kube_batch_cache::snapshot::{SchedulerNames, SnapshotOptions};
use kube_batch_model::name::Name;

use super::values::{Format, scheduler_name};
use crate::live::{ClusterTarget, Namespaces};

/// A command that looks at a cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show the queues of a cluster, and open or close them.
    #[command(subcommand, after_help = QUEUE_EXAMPLES)]
    Queue(QueueCommand),
    /// Show the jobs of a cluster, and why they wait.
    #[command(subcommand, after_help = JOB_EXAMPLES)]
    Job(JobCommand),
}

const QUEUE_EXAMPLES: &str = "\
Examples:
  kube-batch queue tree
  kube-batch queue tree --watch --resource nvidia.com/gpu
  kube-batch queue describe physics
  kube-batch queue close physics

tree, list and describe only read queues, with the kubeconfig that kubectl would use. open and close
change spec.state. A copy of the program, or a link to it, that is called
kubectl-batch is a plugin of kubectl: kubectl batch queue tree.

Exit codes:
  0  shown, or changed
  1  there is no such queue, or its own controller has to change it
  2  invalid command line, or a cluster that cannot be reached or denies access";

const JOB_EXAMPLES: &str = "\
Examples:
  kube-batch job list
  kube-batch job list -n team-a --queue physics
  kube-batch job list -A --watch
  kube-batch job list -A -o json | jq '.[] | select(.pending > 0)'

Jobs are what the scheduler makes of pods: those of a PodGroup, of a controller, or a single pod.

Exit codes:
  0  shown
  2  invalid command line, or a cluster that cannot be reached or denies access";

/// What is shown or changed.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Show the tree of queues, with what each holds of what it deserves.
    Tree {
        /// Resource to show (default: the first extended resource, such as nvidia.com/gpu, and CPU;
        /// without one, CPU and memory). May be repeated.
        #[arg(long = "resource", value_name = "NAME", value_parser = resource_name)]
        resources: Vec<Name>,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Show the queues as a table.
    List {
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Show one queue, and how its deserved share is computed.
    Describe {
        /// Name of the queue.
        #[arg(value_name = "QUEUE")]
        name: String,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Let a queue start jobs: set spec.state to Open.
    Open {
        /// Name of the queue.
        #[arg(value_name = "QUEUE")]
        name: String,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Start no more jobs in a queue and those below it; running pods stay: set spec.state to Closed.
    Close {
        /// Name of the queue.
        #[arg(value_name = "QUEUE")]
        name: String,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
}

/// What is shown.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// List jobs, waiting jobs first.
    List(JobListArgs),
}

/// Which cluster.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Kubeconfig file (default: those that kubectl would use).
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig (default: its current context).
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl ClusterArgs {
    pub(crate) fn target(&self, namespaces: Namespaces) -> ClusterTarget {
        let Self { kubeconfig, context } = self;
        ClusterTarget { kubeconfig: kubeconfig.clone(), context: context.clone(), namespaces }
    }
}

/// How it is shown.
#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Output format; json and yaml print the objects.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Show it again after each change, until it is interrupted.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub struct JobListArgs {
    /// Namespace (default: that of the context).
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Only jobs of this queue and those below it.
    #[arg(long, value_name = "QUEUE")]
    pub(crate) queue: Option<String>,
    /// Scheduler name; only jobs with this spec.schedulerName are shown. To name several, repeat the
    /// flag or separate the names with commas.
    #[arg(long = "scheduler-name", default_values_t = SchedulerNames::default().iter(), value_name = "NAME",
        value_delimiter = ',', value_parser = scheduler_name)]
    pub(crate) scheduler_names: Vec<Name>,
    /// Queue for PodGroups that name none and for pods without a PodGroup, as the scheduler has it.
    #[arg(long, default_value_t = SnapshotOptions::default().default_queue, value_name = "QUEUE")]
    pub(crate) default_queue: Name,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

impl JobListArgs {
    pub(crate) fn target(&self) -> ClusterTarget {
        let namespaces = match &self.namespace {
            _ if self.all_namespaces => Namespaces::All,
            Some(namespace) => Namespaces::Only(namespace.clone()),
            None => Namespaces::OfContext,
        };
        self.show.cluster.target(namespaces)
    }
}

fn resource_name(text: &str) -> Result<Name, String> {
    if text.is_empty() { Err("expected a name".to_owned()) } else { Ok(Name::from(text)) }
}
