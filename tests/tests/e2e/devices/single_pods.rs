//! Single pods with a claim from a template.

use serde_json::{Value, json};

use super::{DELETE_PROTECTION, DRIVER, GPU, claim, class, pods_with_template, slice, template};
use crate::bed::{Bed, NAMESPACE, group, nodes, pods};

#[test]
fn a_device_is_given_to_the_next_pod_when_the_first_is_deleted() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.create_devices(&[slice("node-00000", 1)]);
    bed.start_scheduler(&[]);
    bed.create_gang("first", 1);
    bed.wait_until_running("first", 1);
    let claims = bed.list("resourceclaims");
    let [claim] = &claims[..] else { panic!("one claim was generated: {claims:?}") };
    assert_eq!(claim["metadata"]["finalizers"], json!([DELETE_PROTECTION]));
    let allocation = &claim["status"]["allocation"];
    let result = json!({"request": GPU, "driver": DRIVER, "pool": "node-00000", "device": "gpu-0"});
    assert_eq!(allocation["devices"]["results"], json!([result]));
    assert!(allocation["allocationTimestamp"].is_string(), "{allocation}");
    let uid = &bed.get("pods", "first-0")["metadata"]["uid"];
    let user = json!({"resource": "pods", "name": "first-0", "uid": uid});
    assert_eq!(claim["status"]["reservedFor"], json!([user]));

    bed.create_gang("second", 1);
    bed.wait_until_reported("second-0", "1 cannot allocate all claims");
    bed.kubectl(["delete", "pod", "first-0", "--namespace", NAMESPACE]).expect("deleted");
    bed.wait_until_running("second", 1);
    assert_eq!(bed.devices_of("second"), ["node-00000/gpu-0"]);
    bed.expect_no_conflicts();
}

#[test]
fn a_pod_reports_a_template_or_a_class_that_does_not_exist() {
    let mut bed = Bed::new(&nodes(1, "4"));
    bed.apply(&slice("node-00000", 2));
    bed.apply(&template("without-class", GPU));
    bed.start_scheduler(&[]);
    for (name, template) in [("no-template", "missing"), ("no-class", "without-class")] {
        bed.apply(&group(name, 1));
        bed.plane.create(&pods_with_template(name, 1, template)).expect("pods are created");
    }
    bed.wait_until_reported("no-class-0", "request gpu: device class gpu does not exist");
    let not_created = "pod \"test/no-template-0\": ResourceClaim not created yet";
    bed.wait_until_reported("no-template-0", not_created);
    bed.apply(&class());
    bed.wait_until_running("no-class", 1);
    bed.apply(&template("missing", GPU));
    bed.wait_until_running("no-template", 1);
    bed.expect_no_conflicts();
}

/// The condition of the device of a claim, as its driver sets it.
fn set_condition(bed: &Bed, claim: &str, condition: &str) {
    let conditions = json!([{
        "type": condition, "status": "True", "reason": "Done", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    let device = json!({
        "driver": DRIVER, "pool": "node-00000", "device": "gpu-0", "conditions": conditions,
    });
    bed.patch_status(claim, &json!({"devices": [device]}));
}

#[test]
fn a_pod_is_bound_when_its_device_is_attached() {
    let mut bed = Bed::new(&nodes(1, "4"));
    let mut attachable = slice("node-00000", 1);
    attachable["spec"]["devices"][0] = json!({
        "name": "gpu-0",
        "bindingConditions": ["Attached"],
        "bindingFailureConditions": ["AttachFailed"],
    });
    bed.create_devices(&[attachable]);
    bed.start_scheduler(&[]);
    bed.create_gang("attaching", 1);
    let wait_until_allocated = |after: &str| {
        bed.eventually("the claim has a device", || {
            let claims = bed.allocated();
            let is_new = claims.values().any(|claim| *claim.since > *after);
            if is_new { Ok(()) } else { Err(json!(bed.list("resourceclaims")).to_string()) }
        });
        bed.allocated().pop_first().expect("it is allocated")
    };
    let (claim, first) = wait_until_allocated("");
    assert_eq!(first.pods, ["attaching-0"]);
    let message = "waiting for binding conditions for device on node node-00000";
    bed.wait_for_event("attaching-0", "BindingConditionsPending", message);
    bed.consistently("the pod is not bound", || match bed.n_bound("attaching") {
        0 => Ok(()),
        n => Err(format!("{n} are")),
    });

    // After a failure the device is taken from the claim, and the pod is tried again.
    set_condition(&bed, &claim, "AttachFailed");
    let why = format!("device binding failed: claim={NAMESPACE}/{claim}");
    bed.wait_for_event("attaching-0", "FailedScheduling", &why);
    let (claim, _) = wait_until_allocated(&first.since);
    let devices: Value = bed.get("resourceclaims", &claim)["status"]["devices"].take();
    assert!(devices.is_null(), "the failure is gone: {devices}");
    assert_eq!(bed.n_bound("attaching"), 0);
    set_condition(&bed, &claim, "Attached");
    bed.wait_until_running("attaching", 1);
    bed.expect_no_conflicts();
}

#[test]
fn a_claim_whose_device_cannot_be_used_gets_another_one() {
    let mut bed = Bed::new(&nodes(2, "4"));
    bed.create_devices(&[slice("node-00000", 1), slice("node-00001", 1)]);
    bed.apply(&claim("c"));
    // As an earlier attempt has left it, whose node takes no pods any more.
    bed.kubectl(["cordon", "node-00000"]).expect("cordoned");
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["node-00000"]});
    let result = json!({"request": GPU, "driver": DRIVER, "pool": "node-00000", "device": "gpu-0"});
    bed.patch_status(
        "c",
        &json!({"allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }}),
    );
    bed.start_scheduler(&[]);
    bed.apply(&group("moved", 1));
    for mut pod in pods("moved", 1, "1") {
        pod["spec"]["resourceClaims"] = json!([{"name": GPU, "resourceClaimName": "c"}]);
        bed.apply(&pod);
    }
    bed.wait_until_running("moved", 1);
    assert_eq!(bed.devices_of("moved"), ["node-00001/gpu-0"]);
    bed.expect_no_conflicts();
}
