//! Devices of random clusters: what nodes have, and what pods request or have got.

use super::{rng::Rng, text::between};

/// What templates request, by number.
const DEVICE_REQUESTS: [&str; 4] = [
    "requests: [{name: r, exactly: {deviceClassName: gpu, count: 1}}]",
    "requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}], constraints: [{requests: [r], matchAttribute: gpu.example.com/model}]",
    "requests: [{name: r, exactly: {deviceClassName: gpu, count: 1, selectors: [{cel: {expression: 'device.attributes[\"gpu.example.com\"].model == \"a\"'}}]}}]",
    "requests: [{name: r, firstAvailable: [{name: two, deviceClassName: gpu, count: 2}, {name: one, deviceClassName: gpu, count: 1}]}]",
];

/// How many claims of users there are, for several pods.
const N_SHARED_CLAIMS: u64 = 2;

/// In some clusters nodes have devices, and pods request them.
pub(super) fn with_devices(seed: u64, objects: &mut Vec<String>, changes: &mut [Vec<String>]) {
    let mut rng = Rng::new(seed.rotate_left(8));
    if rng.percent(60) {
        return;
    }
    let share_of_pods = 20 + rng.below(60);
    let mut free: Vec<(String, u64)> = Vec::new();
    for list in [&mut *objects].into_iter().chain(changes.iter_mut()) {
        let mut new = Vec::new();
        for object in list.iter_mut() {
            if object.contains("kind: Node,") {
                new.extend(devices_of(&mut rng, object, &mut free));
                continue;
            }
            let is_pod = object.contains("kind: Pod,") || object.contains("kind: Job,");
            if !is_pod || !rng.percent(share_of_pods) {
                continue;
            }
            if object.contains("nodeName") || object.contains("kind: Pod,") && rng.percent(15) {
                new.extend(give_device(&mut rng, object, &mut free));
            } else {
                request_devices(&mut rng, object);
            }
        }
        list.extend(new);
    }
    objects.push("{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {extendedResourceName: example.com/gpu}}".to_owned());
    for (n, requests) in DEVICE_REQUESTS.iter().enumerate() {
        objects.push(format!("{{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {{name: t{n}, namespace: ns}}, spec: {{spec: {{devices: {{{requests}}}}}}}}}"));
    }
    for n in 0..N_SHARED_CLAIMS {
        objects.push(format!("{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: s{n}, namespace: ns}}, spec: {{devices: {{{}}}}}}}", DEVICE_REQUESTS[0]));
    }
}

/// The slice of a node; or nothing, if it gets a device plugin or has no devices.
fn devices_of(rng: &mut Rng, node: &mut String, free: &mut Vec<(String, u64)>) -> Option<String> {
    let name = between(node, "name: ", ",").expect("a node has a name").to_owned();
    match rng.below(10) {
        0 | 1 => return None,
        2 => {
            let with_plugin = format!("allocatable: {{example.com/gpu: '{}', ", 1 + rng.below(3));
            *node = node.replacen("allocatable: {", &with_plugin, 1);
            return None;
        }
        _ => {}
    }
    let n_devices = 1 + rng.below(4);
    let device = |n: u64| {
        let (model, taint) = (rng.pick(&["a", "b"]), rng.percent(10));
        let taint = if taint { ", taints: [{key: k, effect: NoSchedule}]" } else { "" };
        format!("{{name: gpu-{n}, attributes: {{model: {{string: {model}}}}}{taint}}}")
    };
    let devices: Vec<String> = (0..n_devices).map(device).collect();
    free.extend((0..n_devices).map(|n| (name.clone(), n)));
    Some(format!(
        "{{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {{name: {name}}}, spec: {{driver: gpu.example.com, nodeName: {name}, pool: {{name: {name}, generation: 1, resourceSliceCount: 1}}, devices: [{}]}}}}",
        devices.join(", ")
    ))
}

/// Gives a pod a claim that has a device: of its node, or of any if it waits because an earlier attempt to bind it
/// has failed. Returns the claim, which is reserved for the pod.
fn give_device(rng: &mut Rng, pod: &mut String, free: &mut Vec<(String, u64)>) -> Option<String> {
    let name = between(pod, "name: ", ",").expect("a pod has a name").to_owned();
    let node = between(pod, "nodeName: ", "}").map(str::to_owned);
    let is_here = |(of, _): &(String, u64)| node.as_ref().is_none_or(|node| of == node);
    let at = free.iter().position(is_here)?;
    let (node, device) = free.swap_remove(at);
    let with_uid = format!("metadata: {{uid: {name}, name: {name}, ");
    *pod = pod.replacen(&format!("metadata: {{name: {name}, "), &with_uid, 1);
    let with_claim = format!("{SPEC} resourceClaims: [{{name: c, resourceClaimName: r-{name}}}],");
    *pod = pod.replacen(SPEC, &with_claim, 1);
    // The claim controller frees the devices of claims with the finalizer only.
    let finalizers = match rng.percent(80) {
        true => ", finalizers: [resource.kubernetes.io/delete-protection]",
        false => "",
    };
    let terms =
        format!("[{{matchFields: [{{key: metadata.name, operator: In, values: [{node}]}}]}}]");
    let result =
        format!("{{request: r, driver: gpu.example.com, pool: {node}, device: gpu-{device}}}");
    Some(format!(
        "{{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {{name: r-{name}, namespace: ns{finalizers}}}, spec: {{devices: {{{}}}}}, status: {{allocation: {{devices: {{results: [{result}]}}, nodeSelector: {{nodeSelectorTerms: {terms}}}}}, reservedFor: [{{resource: pods, name: {name}, uid: {name}}}]}}}}",
        DEVICE_REQUESTS[0]
    ))
}

/// Where the spec of a pod gets its claims.
const SPEC: &str = "schedulerName: kube-batch,";

/// Lets a pod, or those of a Job, request devices.
fn request_devices(rng: &mut Rng, object: &mut String) {
    let source = match rng.below(10) {
        0..6 => format!("resourceClaimTemplateName: t{}", rng.below(DEVICE_REQUESTS.len() as u64)),
        6..8 => format!("resourceClaimName: s{}", rng.below(N_SHARED_CLAIMS)),
        _ => {
            let resources =
                "resources: {limits: {example.com/gpu: '1'}, requests: {example.com/gpu: '1', ";
            *object = object.replacen("resources: {requests: {", resources, 1);
            return;
        }
    };
    let with_claim = format!("{SPEC} resourceClaims: [{{name: c, {source}}}],");
    *object = object.replacen(SPEC, &with_claim, 1);
}
