//! Agreement of types, and what the checker's type variables stand for.
//!
//! The rules are those of cel-go's `checker/types.go`. Every step counts against a budget, because
//! a type that mentions another twice doubles with each level of an expression. Once the budget is
//! used up, every method returns at once: the caller sees [`Unifier::is_exhausted`].

use crate::types::Type;

/// Steps for one expression: 2 ms at most. Real selectors need a few hundred, and a list of a
/// thousand constants needs a few thousand.
const MAX_STEPS: u32 = 100_000;

/// The bindings of type variables.
#[derive(Default)]
pub(crate) struct Unifier {
    bindings: Vec<Option<Type>>,
    /// Bindings in the order they were made, with what was there before: to undo them.
    trail: Vec<(u32, Option<Type>)>,
    steps: u32,
}

impl Unifier {
    pub(crate) fn fresh(&mut self) -> Type {
        Type::Param(self.fresh_block(1))
    }

    /// Reserves `n` variables with successive numbers.
    pub(crate) fn fresh_block(&mut self, n: u32) -> u32 {
        let first = self.bindings.len();
        self.bindings.resize(first + n as usize, None);
        u32::try_from(first).unwrap_or(u32::MAX)
    }

    /// Whether the types of the expression were too large to be compared.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.steps > MAX_STEPS
    }

    /// The steps so far.
    pub(crate) const fn steps(&self) -> u32 {
        self.steps
    }

    /// Whether a value of each type in `from` can be used as the type at the same place in `to`.
    /// Binds variables if so, and changes nothing otherwise.
    pub(crate) fn assignable<'t>(
        &mut self,
        mut pairs: impl Iterator<Item = (&'t Type, &'t Type)>,
    ) -> bool {
        let mark = self.trail.len();
        let agrees = pairs.all(|(from, to)| self.agree(from, to));
        if !agrees {
            while self.trail.len() > mark {
                if let Some((variable, before)) = self.trail.pop() {
                    self.bindings[variable as usize] = before;
                }
            }
        }
        agrees
    }

    const fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        self.steps <= MAX_STEPS
    }

    fn agree(&mut self, from: &Type, to: &Type) -> bool {
        if !self.step() {
            return true;
        }
        if let Type::Param(variable) = to {
            let (valid, bound) = self.substitutes(from, *variable);
            if valid || bound {
                return valid;
            }
        }
        if let Type::Param(variable) = from {
            return self.substitutes(to, *variable).0;
        }
        match (from, to) {
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Optional(_)
                    | Type::Opaque(_)
                    | Type::Device
                    | Type::Duration
                    | Type::Timestamp
            ),
            (Type::Meta(_), Type::Meta(_)) => true,
            (Type::List(left), Type::List(right))
            | (Type::Optional(left), Type::Optional(right)) => self.agree(left, right),
            (Type::Map(left), Type::Map(right)) => {
                self.agree(&left.0, &right.0) && self.agree(&left.1, &right.1)
            }
            (left, right) => self.equal(left, right),
        }
    }

    /// Whether `candidate` can stand for `variable`, and whether the variable was bound before.
    fn substitutes(&mut self, candidate: &Type, variable: u32) -> (bool, bool) {
        if matches!(candidate, Type::Param(own) if *own == variable) {
            return (true, true);
        }
        if let Some(bound) = self.bindings[variable as usize].clone() {
            if self.equal(candidate, &bound) {
                return (true, true);
            }
            if !self.agree(candidate, &bound) {
                return (false, true);
            }
            let general = self.most_general(candidate, &bound);
            if !self.occurs(variable, &general) {
                self.bind(variable, general);
            }
            return (true, true);
        }
        if self.occurs(variable, candidate) {
            return (false, false);
        }
        self.bind(variable, candidate.clone());
        (true, false)
    }

    fn bind(&mut self, variable: u32, to: Type) {
        let before = self.bindings[variable as usize].replace(to);
        self.trail.push((variable, before));
    }

    fn occurs(&mut self, variable: u32, within: &Type) -> bool {
        if !self.step() {
            return false;
        }
        match within {
            Type::Param(other) if *other == variable => true,
            Type::Param(other) => match self.bindings[*other as usize].clone() {
                Some(bound) => self.occurs(variable, &bound),
                None => false,
            },
            Type::Meta(inner) | Type::List(inner) | Type::Optional(inner) => {
                self.occurs(variable, inner)
            }
            Type::Map(pair) => self.occurs(variable, &pair.0) || self.occurs(variable, &pair.1),
            _ => false,
        }
    }

    /// `of` with every bound variable replaced.
    pub(crate) fn substitute(&mut self, of: &Type) -> Type {
        if !self.step() {
            return Type::Dyn;
        }
        match of {
            Type::Param(variable) => match self.bindings[*variable as usize].clone() {
                Some(bound) => self.substitute(&bound),
                None => of.clone(),
            },
            Type::Meta(inner) => Type::type_of(self.substitute(inner)),
            Type::List(inner) => Type::list(self.substitute(inner)),
            Type::Optional(inner) => Type::optional(self.substitute(inner)),
            Type::Map(pair) => {
                let key = self.substitute(&pair.0);
                Type::map(key, self.substitute(&pair.1))
            }
            other => other.clone(),
        }
    }

    /// Whether two types are written alike. Variables are not replaced.
    pub(crate) fn equal(&mut self, left: &Type, right: &Type) -> bool {
        if !self.step() {
            return false;
        }
        match (left, right) {
            (Type::Meta(left), Type::Meta(right))
            | (Type::List(left), Type::List(right))
            | (Type::Optional(left), Type::Optional(right)) => self.equal(left, right),
            (Type::Map(left), Type::Map(right)) => {
                self.equal(&left.0, &right.0) && self.equal(&left.1, &right.1)
            }
            (Type::Param(left), Type::Param(right)) => left == right,
            (Type::Opaque(left), Type::Opaque(right)) => left == right,
            (left, right) => std::mem::discriminant(left) == std::mem::discriminant(right),
        }
    }

    /// Whether two types are the same to cel-go's validator, which does not look for substitutions.
    pub(crate) fn is_same(&mut self, left: &Type, right: &Type) -> bool {
        if !self.step() {
            return false;
        }
        match (left, right) {
            (Type::Dyn | Type::Param(_), Type::Dyn | Type::Param(_)) => true,
            (Type::List(left), Type::List(right))
            | (Type::Optional(left), Type::Optional(right))
            | (Type::Meta(left), Type::Meta(right)) => self.is_same(left, right),
            (Type::Map(left), Type::Map(right)) => {
                self.is_same(&left.0, &right.0) && self.is_same(&left.1, &right.1)
            }
            (left, right) => self.equal(left, right),
        }
    }

    /// The one of two types that agree which says less.
    pub(crate) fn most_general(&mut self, left: &Type, right: &Type) -> Type {
        if self.is_equal_or_less_specific(left, right) { left.clone() } else { right.clone() }
    }

    fn is_equal_or_less_specific(&mut self, left: &Type, right: &Type) -> bool {
        if !self.step() {
            return false;
        }
        match (left, right) {
            (Type::Dyn | Type::Param(_), _) => true,
            (_, Type::Dyn | Type::Param(_)) => false,
            (Type::Meta(_), Type::Meta(_)) => true,
            (Type::List(left), Type::List(right))
            | (Type::Optional(left), Type::Optional(right)) => {
                self.is_equal_or_less_specific(left, right)
            }
            (Type::Map(left), Type::Map(right)) => {
                self.is_equal_or_less_specific(&left.0, &right.0)
                    && self.is_equal_or_less_specific(&left.1, &right.1)
            }
            (left, right) => self.equal(left, right),
        }
    }
}

/// `of` with its variables shifted by `offset`: a signature with variables of its own.
pub(crate) fn instantiate(of: &Type, offset: u32) -> Type {
    match of {
        Type::Param(variable) => Type::Param(variable + offset),
        Type::Meta(inner) => Type::type_of(instantiate(inner, offset)),
        Type::List(inner) => Type::list(instantiate(inner, offset)),
        Type::Optional(inner) => Type::optional(instantiate(inner, offset)),
        Type::Map(pair) => Type::map(instantiate(&pair.0, offset), instantiate(&pair.1, offset)),
        other => other.clone(),
    }
}
