//! Which values of `device` an answer can depend on.

use std::{collections::BTreeSet, sync::Arc};

use crate::{node::Node, value::Value};

/// A value of a device that an expression reads by a constant path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Read {
    /// `device.driver`
    Driver,
    /// `device.allowMultipleAllocations`
    AllowMultipleAllocations,
    /// `device.attributes[domain].name`: the value, or that there is none.
    Attribute {
        /// The domain.
        domain: Arc<str>,
        /// The name in the domain.
        name: Arc<str>,
    },
    /// `device.capacity[domain].name`: the amount, or that there is none.
    Capacity {
        /// The domain.
        domain: Arc<str>,
        /// The name in the domain.
        name: Arc<str>,
    },
}

/// The values that an expression reads.
///
/// Two devices that have the same values there, or have none in the same places, get the same
/// answer. The opposite is not said: an expression need not use all that it mentions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Only these.
    Only(BTreeSet<Read>),
    /// Possibly every value: the expression goes through the names of a device, or computes one.
    Everything,
}

/// Finds what a checked expression reads.
pub(crate) fn reads(node: &Node) -> Reads {
    let mut finder = Finder { found: BTreeSet::new(), scope: Vec::new() };
    match finder.visit(node) {
        Some(()) => Reads::Only(finder.found),
        None => Reads::Everything,
    }
}

/// The part of a device that an expression denotes.
#[derive(Clone, Debug)]
enum Part {
    Device,
    Attributes,
    Capacity,
    AttributesOf(Arc<str>),
    CapacityOf(Arc<str>),
    Value(Read),
}

impl Part {
    /// What the entry with this constant key denotes.
    fn entry(&self, key: &Arc<str>) -> Option<Self> {
        Some(match self {
            Self::Device => match &**key {
                "driver" => Self::Value(Read::Driver),
                "allowMultipleAllocations" => Self::Value(Read::AllowMultipleAllocations),
                "attributes" => Self::Attributes,
                "capacity" => Self::Capacity,
                _ => return None,
            },
            Self::Attributes => Self::AttributesOf(key.clone()),
            Self::Capacity => Self::CapacityOf(key.clone()),
            Self::AttributesOf(domain) => {
                Self::Value(Read::Attribute { domain: domain.clone(), name: key.clone() })
            }
            Self::CapacityOf(domain) => {
                Self::Value(Read::Capacity { domain: domain.clone(), name: key.clone() })
            }
            Self::Value(_) => return None,
        })
    }
}

struct Finder {
    found: BTreeSet<Read>,
    /// The part that each variable of a macro denotes, if it denotes one.
    scope: Vec<Option<Part>>,
}

impl Finder {
    /// The part of the device that a node denotes. `None` for other values.
    fn part(&self, node: &Node) -> Option<Part> {
        match node {
            Node::Device => Some(Part::Device),
            Node::Local(slot) => self.scope.get(*slot).cloned().flatten(),
            Node::Select { operand, field, .. } => self.part(operand)?.entry(field),
            Node::Index { operand, index, .. } => match index.constant() {
                Some(Value::String(key)) => self.part(operand)?.entry(key),
                _ => None,
            },
            _ => None,
        }
    }

    /// Records what a node reads; `None` if that cannot be said.
    fn visit(&mut self, node: &Node) -> Option<()> {
        match self.part(node) {
            Some(Part::Value(read)) => {
                self.found.insert(read);
                return Some(());
            }
            // A whole map of names is used as a value.
            Some(_) => return None,
            None => {}
        }
        match node {
            Node::Constant(_) | Node::Local(_) | Node::Device => Some(()),
            Node::Select { operand, .. } => self.visit(operand),
            Node::Index { operand, index, .. } => {
                self.visit(operand)?;
                self.visit(index)
            }
            Node::Call { overloads, arguments } => {
                let is_in = overloads.iter().any(|overload| &*overload.signature.name == "@in");
                if is_in && let Some(read) = self.name_in(arguments) {
                    self.found.insert(read);
                    return Some(());
                }
                self.all(arguments)
            }
            Node::Member { value, .. } => self.visit(value),
            Node::And(terms) | Node::Or(terms) => self.all(terms),
            Node::Conditional(parts) => self.all(&**parts),
            Node::List(elements) => elements.iter().try_for_each(|(node, _)| self.visit(node)),
            Node::Map(entries) => entries.iter().try_for_each(|(key, value, _)| {
                self.visit(key)?;
                self.visit(value)
            }),
            Node::Fold(fold) => {
                self.visit(&fold.range)?;
                let variables = if fold.has_two_variables { 2 } else { 1 };
                self.within(vec![None; variables], |this| {
                    this.all(&fold.filter)?;
                    this.visit(&fold.body)
                })
            }
            Node::Bind { value, body } => self.bind(value, body),
            Node::OptionalMap { value, body, .. } | Node::SortBy { value, body } => {
                self.visit(value)?;
                self.within(vec![None], |this| this.visit(body))
            }
            Node::OptionalOr { operand, other } | Node::OptionalOrValue { operand, other } => {
                self.visit(operand)?;
                self.visit(other)
            }
        }
    }

    fn all<'n>(&mut self, nodes: impl IntoIterator<Item = &'n Node>) -> Option<()> {
        nodes.into_iter().try_for_each(|node| self.visit(node))
    }

    fn within(
        &mut self,
        variables: Vec<Option<Part>>,
        visit: impl FnOnce(&mut Self) -> Option<()>,
    ) -> Option<()> {
        let n_outer = self.scope.len();
        self.scope.extend(variables);
        let outcome = visit(self);
        self.scope.truncate(n_outer);
        outcome
    }

    /// A variable for a part of the device reads nothing by itself. The value at the end of a path
    /// is read where it is bound: that may fail.
    fn bind(&mut self, value: &Node, body: &Node) -> Option<()> {
        let part = self.part(value).filter(|part| !matches!(part, Part::Value(_)));
        if part.is_none() {
            self.visit(value)?;
        }
        self.within(vec![part], |this| this.visit(body))
    }

    /// `"name" in device.attributes["domain"]`
    fn name_in(&self, arguments: &[Node]) -> Option<Read> {
        let [name, map] = arguments else { return None };
        let Some(Value::String(name)) = name.constant() else { return None };
        match (self.part(map)?, name) {
            (part @ (Part::AttributesOf(_) | Part::CapacityOf(_)), name) => {
                match part.entry(name) {
                    Some(Part::Value(read)) => Some(read),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
