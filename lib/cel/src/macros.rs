//! Macros: calls whose arguments are not evaluated before the call.

use std::sync::Arc;

use crate::ast::{Access, Bind, Expression, Fold, FoldKind, Kind};

/// Where a macro is used wrongly (none: at the call), and what is wrong.
type Misuse = (Option<usize>, &'static str);

/// The macros that go through a list or a map: name, number of arguments, number of variables.
///
/// With one argument more than variables the last is the body; with two more, a filter is before it.
const FOLDS: [(&str, usize, usize, FoldKind); 15] = [
    ("all", 2, 1, FoldKind::All),
    ("all", 3, 2, FoldKind::All),
    ("exists", 2, 1, FoldKind::Exists),
    ("exists", 3, 2, FoldKind::Exists),
    ("exists_one", 2, 1, FoldKind::ExistsOne),
    ("exists_one", 3, 2, FoldKind::ExistsOne),
    ("existsOne", 3, 2, FoldKind::ExistsOne),
    ("map", 2, 1, FoldKind::List),
    ("map", 3, 1, FoldKind::List),
    ("transformList", 3, 2, FoldKind::List),
    ("transformList", 4, 2, FoldKind::List),
    ("transformMap", 3, 2, FoldKind::Map),
    ("transformMap", 4, 2, FoldKind::Map),
    ("transformMapEntry", 3, 2, FoldKind::MapEntry),
    ("transformMapEntry", 4, 2, FoldKind::MapEntry),
];

/// The expression that a call stands for: the call itself unless it is a macro.
///
/// # Errors
///
/// If an argument of a macro has not the form that it needs.
pub(crate) fn expand(
    receiver: Option<Expression>,
    function: &str,
    mut arguments: Vec<Expression>,
) -> Result<Kind, Misuse> {
    let Some(receiver) = receiver else {
        return match (function, arguments.len(), arguments.pop()) {
            ("has", 1, Some(argument)) => has(argument),
            (_, _, last) => {
                arguments.extend(last);
                Ok(Kind::Call { receiver: None, function: function.into(), arguments })
            }
        };
    };
    if let Some((_, _, n_variables, kind)) =
        FOLDS.iter().find(|(name, n, ..)| *name == function && *n == arguments.len())
    {
        return fold(*kind, *n_variables, receiver, arguments);
    }
    let mut arguments = match (function, <[Expression; 2]>::try_from(arguments)) {
        ("filter", Ok([variable, predicate])) => return filter(receiver, &variable, predicate),
        ("optMap", Ok([variable, body])) => {
            let bind = bind(receiver, &variable, body)?;
            return Ok(Kind::OptionalMap { bind, is_flat: false });
        }
        ("optFlatMap", Ok([variable, body])) => {
            let bind = bind(receiver, &variable, body)?;
            return Ok(Kind::OptionalMap { bind, is_flat: true });
        }
        ("sortBy", Ok([variable, body])) => {
            return Ok(Kind::SortBy(bind(receiver, &variable, body)?));
        }
        (_, Ok(two)) => Vec::from(two),
        (_, Err(other)) => other,
    };
    let is_cel = matches!(&receiver.kind, Kind::Identifier(name) if &**name == "cel");
    if is_cel && function == "bind" && arguments.len() == 3 {
        let (body, value) = (arguments.remove(2), arguments.remove(1));
        return Ok(Kind::Bind(bind(value, &arguments[0], body)?));
    }
    Ok(Kind::Call { receiver: Some(Box::new(receiver)), function: function.into(), arguments })
}

fn has(argument: Expression) -> Result<Kind, Misuse> {
    match argument.kind {
        Kind::Select { operand, field, access: Access::Required } => {
            Ok(Kind::Select { operand, field, access: Access::Presence })
        }
        _ => Err((Some(argument.offset), "invalid argument to has() macro")),
    }
}

fn variable(name: &Expression) -> Result<Arc<str>, Misuse> {
    match &name.kind {
        Kind::Identifier(text) if !text.starts_with('.') => Ok(text.clone()),
        _ => Err((Some(name.offset), "argument must be a simple name")),
    }
}

fn bind(value: Expression, name: &Expression, body: Expression) -> Result<Box<Bind>, Misuse> {
    Ok(Box::new(Bind { value, variable: variable(name)?, body }))
}

fn filter(range: Expression, name: &Expression, predicate: Expression) -> Result<Kind, Misuse> {
    let variables = vec![variable(name)?];
    Ok(Kind::Fold(Box::new(Fold {
        kind: FoldKind::List,
        range,
        variables,
        filter: Some(predicate),
        body: name.clone(),
    })))
}

fn fold(
    kind: FoldKind,
    n_variables: usize,
    range: Expression,
    mut arguments: Vec<Expression>,
) -> Result<Kind, Misuse> {
    let misuse = (None, "a macro has too few arguments");
    let body = arguments.pop().ok_or(misuse)?;
    let filter = if arguments.len() > n_variables { arguments.pop() } else { None };
    let variables = arguments.iter().map(variable).collect::<Result<Vec<_>, _>>()?;
    if let [first, second] = &variables[..]
        && first == second
    {
        return Err((None, "duplicate variable name"));
    }
    Ok(Kind::Fold(Box::new(Fold { kind, range, variables, filter, body })))
}
