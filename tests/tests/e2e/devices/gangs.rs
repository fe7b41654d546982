//! Gangs with claims for devices.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{DRIVER, GPU, claim, object, slice, text};
use crate::{
    bed::{Bed, NAMESPACE, group, nodes, pods, priority_class},
    other_groups::bed_with_own_groups,
};

#[test]
fn a_gang_gets_all_its_devices_or_none() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.create_devices(&[slice("node-00000", 2)]);
    bed.start_scheduler(&[]);
    bed.create_gang("gang", 3);
    bed.eventually("the condition of the gang gives the reason", || {
        let status = bed.get("podgroups.scheduling.sigs.dev", "gang")["status"].to_string();
        if status.contains("cannot allocate all claims") { Ok(()) } else { Err(status) }
    });
    bed.consistently("no claim has a device, and no pod a node", || {
        let (claims, n_bound) = (bed.allocated(), bed.n_bound("gang"));
        if claims.is_empty() && n_bound == 0 {
            Ok(())
        } else {
            Err(format!("{n_bound}, {claims:?}"))
        }
    });
    assert_eq!(bed.list("resourceclaims").len(), 3, "each pod has a claim");
    bed.apply(&slice("node-00001", 1));
    bed.wait_until_running("gang", 3);
    let devices = ["node-00000/gpu-0", "node-00000/gpu-1", "node-00001/gpu-0"];
    assert_eq!(bed.devices_of("gang"), devices);
    bed.expect_devices_beside_pods("gang");
    bed.expect_no_conflicts();
}

#[test]
fn a_claim_that_a_gang_shares_is_allocated_once() {
    // Zone 0 has the first node and the last one.
    let mut bed = Bed::new(&nodes(4, "2"));
    let zone = json!({
        "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-0"],
    });
    let terms = json!([{"matchExpressions": [zone]}]);
    let slice = object(
        "ResourceSlice",
        json!({"name": "zone-0"}),
        json!({
            "driver": DRIVER,
            "nodeSelector": {"nodeSelectorTerms": terms},
            "pool": {"name": "zone-0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
        }),
    );
    bed.create_devices(&[slice]);
    bed.apply(&claim("shared"));
    bed.start_scheduler(&[]);
    bed.apply(&group("gang", 4));
    let mut gang = pods("gang", 4, "1");
    for pod in &mut gang {
        pod["spec"]["resourceClaims"] = json!([{"name": GPU, "resourceClaimName": "shared"}]);
    }
    bed.plane.create(&gang).expect("pods are created");
    bed.wait_until_running("gang", 4);
    let nodes: BTreeSet<String> =
        bed.pods_in("gang", "Running").iter().map(|pod| text(&pod["spec"]["nodeName"])).collect();
    assert_eq!(nodes, ["node-00000", "node-00003"].map(str::to_owned).into());
    let claims = bed.allocated();
    let shared = &claims["shared"];
    assert_eq!(shared.devices.len(), 1, "{shared:?}");
    let users: BTreeSet<&String> = shared.pods.iter().collect();
    assert_eq!(
        (users.len(), shared.pods.len()),
        (4, 4),
        "one reservation for each pod: {shared:?}"
    );
    let status: Value = bed.get("resourceclaims", "shared")["status"].take();
    assert_eq!(status["allocation"]["nodeSelector"]["nodeSelectorTerms"], terms);
}

#[test]
fn a_gang_preempts_another_for_its_devices() {
    let mut bed = Bed::new(&nodes(2, "8"));
    bed.create_devices(&[slice("node-00000", 1), slice("node-00001", 1)]);
    bed.apply(&priority_class("high", 1000));
    bed.start_scheduler(&[]);
    bed.apply(&group("low", 2));
    let mut low = super::pods_with_template("low", 2, GPU);
    for pod in &mut low {
        // Victims terminate slowly, and hold their devices until then.
        pod["metadata"]["annotations"]["testbed.kube-batch/stop-after"] = json!("2s");
    }
    bed.plane.create(&low).expect("pods are created");
    bed.wait_until_running("low", 2);
    let devices = ["node-00000/gpu-0", "node-00001/gpu-0"];
    assert_eq!(bed.devices_of("low"), devices);

    let mut high = group("high", 2);
    high["spec"]["priorityClassName"] = json!("high");
    bed.apply(&high);
    bed.plane.create(&super::pods_with_template("high", 2, GPU)).expect("pods are created");
    bed.wait_until_running("high", 2);
    assert_eq!(bed.devices_of("high"), devices);
    bed.expect_devices_beside_pods("high");
    let events = bed.list("events");
    let n_victims = events.iter().filter(|event| event["reason"] == "Preempted").count();
    assert_eq!(n_victims, 2);
    bed.expect_no_conflicts();
}

#[test]
fn a_claim_of_a_group_is_reserved_for_the_group() {
    let mut bed = bed_with_own_groups(false, &nodes(2, "4"));
    bed.create_devices(&[slice("node-00001", 1)]);
    bed.start_scheduler(&[]);
    let entry = json!({"name": GPU, "resourceClaimTemplateName": GPU});
    bed.apply(&json!({
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "sharing", "namespace": NAMESPACE},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "resourceClaims": [entry]},
    }));
    for mut pod in pods("sharing", 3, "1") {
        pod["metadata"]["annotations"].take();
        pod["spec"]["schedulingGroup"] = json!({"podGroupName": "sharing"});
        pod["spec"]["resourceClaims"] = json!([entry]);
        bed.apply(&pod);
    }
    bed.eventually("all pods of the gang are bound", || match bed.n_bound("sharing") {
        3 => Ok(()),
        n => Err(format!("{n} of 3 are; {}", json!(bed.list("resourceclaims")))),
    });
    let claims = bed.list("resourceclaims");
    let [claim] = &claims[..] else { panic!("the group has one claim: {claims:?}") };
    let users = claim["status"]["reservedFor"].as_array().expect("users");
    let [user] = &users[..] else { panic!("the group is the only user: {users:?}") };
    assert_eq!((&user["resource"], &user["name"]), (&json!("podgroups"), &json!("sharing")));
    bed.expect_no_conflicts();
}
