//! Claims that the scheduler makes: for extended resources that a class of devices stands for.

use serde_json::json;

use super::{DRIVER, class, slice, text};
use crate::bed::{Bed, NAMESPACE, group, nodes, pods};

const RESOURCE: &str = "example.com/gpu";

impl Bed {
    /// Creates a gang whose pods request one of the extended resource each.
    fn create_requesting_gang(&self, name: &str, n_pods: usize) {
        self.apply(&group(name, n_pods));
        let mut pods = pods(name, n_pods, "1");
        for pod in &mut pods {
            let resources = &mut pod["spec"]["containers"][0]["resources"];
            resources["requests"][RESOURCE] = json!("1");
            resources["limits"] = json!({RESOURCE: "1"});
        }
        self.plane.create(&pods).expect("pods are created");
    }
}

#[test]
fn an_extended_resource_is_met_by_a_claim_that_the_scheduler_makes() {
    let mut bed = Bed::new(&nodes(1, "8"));
    let mut class = class();
    class["spec"]["extendedResourceName"] = json!(RESOURCE);
    bed.apply(&class);
    bed.apply(&slice("node-00000", 2));
    bed.start_scheduler(&[]);
    bed.create_requesting_gang("first", 2);
    bed.wait_until_running("first", 2);
    assert_eq!(bed.devices_of("first"), ["node-00000/gpu-0", "node-00000/gpu-1"]);
    let pod = bed.get("pods", "first-0");
    let status = &pod["status"]["extendedResourceClaimStatus"];
    let name = status["resourceClaimName"].as_str().expect("the claim is named in the status");
    let container = &pod["spec"]["containers"][0]["name"];
    let mapping = &status["requestMappings"][0];
    assert_eq!(
        (&mapping["containerName"], &mapping["resourceName"]),
        (container, &json!(RESOURCE))
    );
    let claim = bed.get("resourceclaims", name);
    let owner = &claim["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], pod["metadata"]["uid"]);
    let result = &claim["status"]["allocation"]["devices"]["results"][0];
    assert_eq!((&result["driver"], &result["request"]), (&json!(DRIVER), &mapping["requestName"]));

    // The claim is deleted with its pod, and the device is given to the next pod.
    bed.create_requesting_gang("second", 1);
    bed.wait_until_reported("second-0", "1 cannot allocate all claims");
    bed.kubectl(["delete", "pod", "first-0", "--namespace", NAMESPACE]).expect("deleted");
    bed.wait_until_running("second", 1);
    bed.eventually("the claim of the deleted pod is gone", || {
        let claims = bed.list("resourceclaims");
        let is_there = claims.iter().any(|claim| claim["metadata"]["name"] == *name);
        if is_there { Err(json!(claims).to_string()) } else { Ok(()) }
    });
    bed.expect_no_conflicts();
}

#[test]
fn a_node_that_advertises_the_resource_counts_it_without_a_claim() {
    let mut bed = Bed::new(&nodes(2, "8"));
    let mut class = class();
    class["spec"]["extendedResourceName"] = json!(RESOURCE);
    bed.apply(&class);
    bed.apply(&slice("node-00001", 1));
    // The device plugin of the other node has registered.
    let resources = json!({RESOURCE: "2"});
    bed.patch_status_of(
        ["node", "node-00000"],
        &json!({"allocatable": resources, "capacity": resources}),
    );
    // An earlier attempt to bind the first pod has failed, and its claim was deleted.
    for gang in ["named", "plain"] {
        bed.create_requesting_gang(gang, 1);
    }
    let container = bed.get("pods", "named-0")["spec"]["containers"][0]["name"].take();
    let mapping = json!({"containerName": container, "resourceName": RESOURCE, "requestName": "r"});
    let named = json!({"resourceClaimName": "gone", "requestMappings": [mapping]});
    bed.patch_status_of(["pod", "named-0"], &json!({"extendedResourceClaimStatus": named}));
    // The API server keeps what the kubelet would wait for on the node without a claim.
    bed.patch_status_of(["pod", "named-0"], &json!({"extendedResourceClaimStatus": null}));
    let name_in_status = |bed: &Bed| {
        let status = bed.get("pods", "named-0")["status"]["extendedResourceClaimStatus"].take();
        text(&status["resourceClaimName"])
    };
    assert_eq!(name_in_status(&bed), "gone");
    bed.start_scheduler(&[]);
    for (gang, node) in [("plain", "node-00000"), ("named", "node-00001")] {
        bed.wait_until_running(gang, 1);
        assert_eq!(bed.get("pods", &format!("{gang}-0"))["spec"]["nodeName"], node);
    }
    let claims = bed.list("resourceclaims");
    assert_eq!(claims.len(), 1, "{claims:?}");
    assert_eq!(claims[0]["metadata"]["name"], name_in_status(&bed));
}
