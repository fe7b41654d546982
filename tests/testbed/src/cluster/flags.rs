//! The flags of each server.

use std::process::Command;

use super::{ControlPlane, Server};
use crate::{assets::Binary, directory::Part};

/// The gates of Kubernetes 1.37 for its own PodGroups: that they exist, that they may ask for a topology
/// domain, a preemption policy and devices, that they may be part of composite ones, and that the Job
/// controller creates them.
const POD_GROUP_GATES: &str = "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,\
                               PodGroupPreemptionPolicy=true,CompositePodGroup=true,\
                               WorkloadWithJob=true,DRAWorkloadResourceClaims=true";

impl ControlPlane {
    pub(super) fn command(&self, server: Server) -> Command {
        let mut command = Command::new(self.assets.path(server.binary()));
        match server {
            Server::Etcd => self.etcd_flags(&mut command),
            Server::ApiServer => self.api_server_flags(&mut command),
            Server::Controllers => self.controllers_flags(&mut command),
            Server::Kwok => self.kwok_flags(&mut command),
            Server::Scheduler => self.scheduler_flags(&mut command),
        }
        command
    }

    fn etcd_flags(&self, command: &mut Command) {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        command
            .args(["--name", "testbed", "--unsafe-no-fsync"])
            .arg("--data-dir")
            .arg(self.directory.part(Part::Data))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("testbed={peer}")])
            // 8 GiB, the most etcd recommends: benchmarks write more than the default of 2 GiB holds.
            .args(["--quota-backend-bytes", "8589934592"]);
    }

    fn api_server_flags(&self, command: &mut Command) {
        // TaintNodesByCondition would make every new node unschedulable until the node lifecycle controller
        // has observed that it is ready, which takes another second.
        let mut disabled = vec!["TaintNodesByCondition"];
        if !self.options.controllers {
            // It requires a service account that only the controllers create.
            disabled.push("ServiceAccount");
        }
        command
            .args(["--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"])
            .args(["--secure-port", &self.ports.api_server.to_string()])
            .args(["--etcd-servers", &format!("http://127.0.0.1:{}", self.ports.etcd)])
            .args(["--authorization-mode", "RBAC"])
            .args(["--disable-admission-plugins", &disabled.join(",")])
            .args(["--endpoint-reconciler-type", "none"])
            .args(["--service-cluster-ip-range", "10.0.0.0/24"])
            .args(["--service-account-issuer", "https://kubernetes.default.svc"]);
        let files = [
            ("--client-ca-file", &self.authority.certificate()),
            ("--tls-cert-file", &self.serving.certificate),
            ("--tls-private-key-file", &self.serving.key),
            ("--service-account-signing-key-file", &self.service_account_keys.private),
            ("--service-account-key-file", &self.service_account_keys.public),
        ];
        for (flag, path) in files {
            command.arg(flag).arg(path);
        }
        if self.options.audit {
            command
                .arg("--audit-policy-file")
                .arg(self.directory.part(Part::Certificates).join("audit-policy.yaml"))
                .arg("--audit-log-path")
                .arg(self.audit_log())
                // No rotation: the audit log is read as one file.
                .args(["--audit-log-maxsize", "100000"]);
        }
        if self.options.load {
            command
                .args(["--max-requests-inflight", "0", "--max-mutating-requests-inflight", "0"])
                .arg("--enable-priority-and-fairness=false");
        }
        if self.options.pod_groups {
            command.args(["--feature-gates", POD_GROUP_GATES]);
            command.args([
                "--runtime-config",
                "scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
            ]);
        }
        command.args(&self.options.api_server_flags);
    }

    fn controllers_flags(&self, command: &mut Command) {
        command
            .arg("--kubeconfig")
            .arg(self.user_kubeconfig(Binary::ControllerManager.name()))
            .arg("--service-account-private-key-file")
            .arg(&self.service_account_keys.private)
            .arg("--root-ca-file")
            .arg(self.authority.certificate())
            .args(["--leader-elect=false", "--bind-address", "127.0.0.1", "--secure-port", "0"])
            .args(["--kube-api-qps", "500", "--kube-api-burst", "1000"]);
        if self.options.pod_groups {
            command.args(["--feature-gates", POD_GROUP_GATES]);
        }
        if !self.options.has_heartbeats() {
            // Without heartbeats this controller would mark every node as unreachable.
            command.args(["--controllers", "*,-node-lifecycle-controller"]);
        }
    }

    fn kwok_flags(&self, command: &mut Command) {
        command
            .arg("--kubeconfig")
            .arg(self.user_kubeconfig(Binary::Kwok.name()))
            .arg("--config")
            .arg(self.directory.part(Part::Certificates).join("kwok.yaml"))
            // With leases KWOK 0.8.0 ignores the pods that are bound to a new node until its cache
            // shows the lease, and never looks at them again.
            .args(["--manage-all-nodes", "--node-lease-duration-seconds", "0"])
            // No client calls the kubelets, so they need no port.
            .args(["--server-address", "", "--node-port", "0"]);
    }

    fn scheduler_flags(&self, command: &mut Command) {
        command.arg("--kubeconfig").arg(self.user_kubeconfig(Binary::Scheduler.name())).args([
            "--leader-elect=false",
            "--bind-address",
            "127.0.0.1",
            "--secure-port",
            "0",
        ]);
        if self.options.pod_groups {
            command.args(["--feature-gates", POD_GROUP_GATES]);
        }
        if self.options.load {
            command.args(["--kube-api-qps", "100000", "--kube-api-burst", "100000"]);
        }
    }
}
