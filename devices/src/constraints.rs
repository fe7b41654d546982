//! What the devices of a claim must have in common.

use kube_batch_model::{
    facts::device::{
        request::{Constraint, ConstraintRule},
        slice::AttributeValue,
    },
    name::Name,
};

use crate::inventory::Device;

/// The value that a constraint compares; `None` if the device has no such attribute.
///
/// A driver may leave out its own name as the domain.
pub(crate) fn attribute<'a>(device: &'a Device, name: &Name) -> Option<&'a AttributeValue> {
    let attributes = &device.facts().attributes;
    attributes.get(name).or_else(|| {
        let (domain, rest) = name.split_once('/')?;
        attributes.get(rest).filter(|_| *domain == *device.id.driver)
    })
}

/// Whether a device can join those that a constraint is about and that are chosen already.
///
/// A list is only ever the first value, as long as the gate for lists is off.
pub(crate) fn permits<'a>(
    constraint: &Constraint,
    device: &Device,
    mut chosen: impl Iterator<Item = &'a Device>,
) -> bool {
    let (name, is_match) = match &constraint.rule {
        ConstraintRule::Match(name) => (name, true),
        ConstraintRule::Distinct(name) => (name, false),
        ConstraintRule::Unknown => return false,
    };
    let Some(value) = attribute(device, name) else { return false };
    let is_list = |value: &AttributeValue| matches!(value, AttributeValue::List(_));
    if is_match {
        // All that are chosen have the value of the first.
        let first = chosen.next().and_then(|first| attribute(first, name));
        return first.is_none_or(|first| first == value && !is_list(value));
    }
    chosen.all(|other| attribute(other, name) != Some(value) || is_list(value))
}
