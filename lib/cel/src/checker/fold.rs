//! Macros.

use crate::{
    ast::{Bind, Expression, Fold, FoldKind},
    checker::{Checker, Typed},
    node::{self, Node},
    types::Type,
};

impl Checker<'_> {
    pub(super) fn fold(&mut self, fold: &Fold) -> Typed {
        let has_two_variables = fold.variables.len() == 2;
        let (of_range, range) = self.check(&fold.range)?;
        let variables = self.range_variables(&fold.range, &of_range, has_two_variables)?;
        let key = variables.first().cloned().unwrap_or(Type::Dyn);
        let n_outer = self.scope.len();
        self.scope.extend(fold.variables.iter().cloned().zip(variables));
        let checked = self.fold_body(fold, key);
        self.scope.truncate(n_outer);
        let (result, filter, body) = checked?;
        let kind = fold.kind;
        Ok((
            result,
            Node::Fold(Box::new(node::Fold { kind, range, has_two_variables, filter, body })),
        ))
    }

    /// The types of the variables that go through a range.
    fn range_variables(
        &mut self,
        range: &Expression,
        of_range: &Type,
        has_two: bool,
    ) -> Result<Vec<Type>, crate::error::CompileError> {
        let of_range = self.unifier.substitute(of_range);
        Ok(match &of_range {
            Type::List(element) if has_two => vec![Type::Int, (**element).clone()],
            Type::List(element) => vec![(**element).clone()],
            Type::Map(pair) if has_two => vec![pair.0.clone(), pair.1.clone()],
            Type::Map(pair) => vec![pair.0.clone()],
            Type::Dyn | Type::Param(_) => {
                self.assignable(&Type::Dyn, &of_range);
                vec![Type::Dyn; if has_two { 2 } else { 1 }]
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be \
                     list, map, or dynamic)"
                );
                return Err(self.fail(range.offset, message));
            }
        })
    }

    fn fold_body(
        &mut self,
        fold: &Fold,
        key: Type,
    ) -> Result<(Type, Option<Node>, Node), crate::error::CompileError> {
        let filter = fold.filter.as_ref().map(|filter| self.condition(filter)).transpose()?;
        if matches!(fold.kind, FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne) {
            return Ok((Type::Bool, filter, self.condition(&fold.body)?));
        }
        let (of_body, body) = self.check(&fold.body)?;
        let result = match fold.kind {
            FoldKind::Map => Type::map(key, of_body),
            FoldKind::MapEntry => {
                let result = Type::map(self.unifier.fresh(), self.unifier.fresh());
                if !self.assignable(&of_body, &result) {
                    return Err(self.mismatch(fold.body.offset, &result, &of_body));
                }
                self.unifier.substitute(&result)
            }
            FoldKind::List | FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => {
                Type::list(of_body)
            }
        };
        Ok((result, filter, body))
    }

    pub(super) fn optional_map(&mut self, offset: usize, bind: &Bind, is_flat: bool) -> Typed {
        let (of_value, value) = self.check(&bind.value)?;
        let (inner, _) = self.resolve(offset, "value", true, std::slice::from_ref(&of_value))?;
        let (of_body, body) = self.check_with(&bind.variable, inner, &bind.body)?;
        let result = if is_flat { of_body } else { Type::optional(of_body) };
        // The other branch of the conditional that the macro stands for is `optional.none()`.
        let none = Type::optional(self.unifier.fresh());
        let (result, _) = self.resolve(offset, "_?_:_", false, &[Type::Bool, result, none])?;
        let node = Node::OptionalMap { value: value.into(), body: body.into(), is_flat };
        Ok((result, node))
    }

    pub(super) fn sort_by(&mut self, offset: usize, bind: &Bind) -> Typed {
        let (of_value, value) = self.check(&bind.value)?;
        let variables = self.range_variables(&bind.value, &of_value, false)?;
        let element = variables.into_iter().next().unwrap_or(Type::Dyn);
        let (of_key, body) = self.check_with(&bind.variable, element, &bind.body)?;
        let arguments = [of_value, Type::list(of_key)];
        let (result, _) = self.resolve(offset, "@sortByAssociatedKeys", true, &arguments)?;
        Ok((result, Node::SortBy { value: value.into(), body: body.into() }))
    }
}
