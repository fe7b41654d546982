//! What the scheduler is not permitted to do, and the rule that permits it.

/// What the API server answers when RBAC refuses a request, up to the user.
const FORBIDDEN: &str = "is forbidden: User ";

/// The rule of a ClusterRole that permits what the API server refused with this message; `None` if it
/// was not RBAC that refused, but an admission plugin for instance.
///
/// The message has the form `nodes is forbidden: User "u" cannot list resource "nodes" in API group ""
/// at the cluster scope`.
pub(crate) fn missing_rule(message: &str) -> Option<String> {
    let (_, request) = message.split_once(FORBIDDEN)?.1.split_once(" cannot ")?;
    let (verb, rest) = request.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once('"')?;
    let (_, rest) = rest.split_once("API group \"")?;
    let (group, _) = rest.split_once('"')?;
    // A watch lists first: who lacks the one permission lacks the other.
    let verbs = if matches!(verb, "list" | "watch") { "list, watch" } else { verb };
    Some(rule(group, resource, verbs))
}

/// A rule as it is written in a ClusterRole.
fn rule(group: &str, resource: &str, verbs: &str) -> String {
    let group = if group.is_empty() { "\"\"" } else { group };
    format!("{{apiGroups: [{group}], resources: [{resource}], verbs: [{verbs}]}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_taken_from_the_answer() {
        let user = "is forbidden: User \"system:serviceaccount:a:b\" cannot";
        for (answer, rule) in [
            (
                format!(
                    "nodes {user} watch resource \"nodes\" in API group \"\" at the cluster scope"
                ),
                Some("{apiGroups: [\"\"], resources: [nodes], verbs: [list, watch]}"),
            ),
            (
                format!(
                    "pods \"p\" {user} create resource \"pods/binding\" in API group \"\" in the namespace \"ns\""
                ),
                Some("{apiGroups: [\"\"], resources: [pods/binding], verbs: [create]}"),
            ),
            (
                format!(
                    "queues.scheduling.sigs.dev \"q\" {user} patch resource \"queues/status\" in API group \"scheduling.sigs.dev\" at the cluster scope"
                ),
                Some(
                    "{apiGroups: [scheduling.sigs.dev], resources: [queues/status], verbs: [patch]}",
                ),
            ),
            ("pods \"p\" is forbidden: exceeded quota: compute".to_owned(), None),
        ] {
            assert_eq!(missing_rule(&answer).as_deref(), rule, "{answer}");
        }
    }
}
