//! The grammar of CEL: from tokens to a syntax tree.
//!
//! Nesting and the depth of the tree are bounded, so that neither this parser nor what goes through
//! the tree later can exhaust the stack, whatever the text is.

use std::sync::Arc;

use crate::{
    ast::{Access, Element, Entry, Expression, Kind, Literal},
    error::CompileError,
    lexer::tokens,
    macros,
    token::{Token, TokenKind},
};

/// Brackets and operators within each other, as in cel-go.
pub(crate) const MAX_NESTING: usize = 250;
/// Levels of the tree: more than the nesting, as `a + b + c` has two levels.
pub(crate) const MAX_DEPTH: usize = 400;

/// Lists, maps, macros, optionals and function calls in one expression: no value can be nested deeper
/// than there are of them, so that this bounds what goes through values, too.
const MAX_WRAPPERS: usize = 1000;

/// Names that CEL keeps for later.
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The binary operators below `&&`, loosest first, and the functions that they call.
const OPERATORS: [&[(&str, &str)]; 3] = [
    &[
        ("<", "_<_"),
        ("<=", "_<=_"),
        (">=", "_>=_"),
        (">", "_>_"),
        ("==", "_==_"),
        ("!=", "_!=_"),
        ("in", "@in"),
    ],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

/// Parses an expression and expands its macros.
///
/// # Errors
///
/// The first syntax error, or the place where the expression is nested too deeply.
pub(crate) fn parse(source: &str) -> Result<Expression, CompileError> {
    let mut parser = Parser { source, tokens: tokens(source)?, at: 0, nesting: 0, n_wrappers: 0 };
    let expression = parser.expression()?;
    if parser.peek() != &TokenKind::End {
        return Err(parser.unexpected("<EOF>"));
    }
    Ok(expression)
}

struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Token>,
    at: usize,
    nesting: usize,
    n_wrappers: usize,
}

type Parsed = Result<Expression, CompileError>;

impl Parser<'_> {
    fn token(&self) -> &Token {
        // The last token is the end, which is never passed.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn peek(&self) -> &TokenKind {
        &self.token().kind
    }

    fn offset(&self) -> usize {
        self.token().offset
    }

    fn is_at(&self, symbol: &str) -> bool {
        matches!(self.peek(), TokenKind::Symbol(found) if *found == symbol)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let is_there = self.is_at(symbol);
        self.at += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, symbol: &str) -> Result<(), CompileError> {
        if self.accept(symbol) { Ok(()) } else { Err(self.unexpected(symbol)) }
    }

    fn fail(&self, offset: usize, message: impl Into<String>) -> CompileError {
        CompileError::at(self.source, offset, message.into())
    }

    fn unexpected(&self, expected: &str) -> CompileError {
        let found = match self.peek() {
            TokenKind::End => "<EOF>".to_owned(),
            TokenKind::Identifier(name) => name.to_string(),
            TokenKind::Symbol(symbol) => (*symbol).to_owned(),
            _ => "literal".to_owned(),
        };
        let message = format!("Syntax error: mismatched input '{found}' expecting {expected}");
        self.fail(self.offset(), message)
    }

    fn node(&mut self, offset: usize, kind: Kind) -> Parsed {
        self.n_wrappers += usize::from(kind.may_wrap());
        if self.n_wrappers > MAX_WRAPPERS {
            return Err(self.fail(offset, "expression is too complex"));
        }
        let expression = Expression::new(offset, kind);
        if expression.depth > MAX_DEPTH {
            return Err(self.fail(offset, "expression is nested too deeply"));
        }
        Ok(expression)
    }

    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, CompileError>,
    ) -> Result<T, CompileError> {
        if self.nesting == MAX_NESTING {
            return Err(self.fail(self.offset(), "expression recursion limit exceeded: 250"));
        }
        self.nesting += 1;
        let parsed = parse(self);
        self.nesting -= 1;
        parsed
    }

    fn expression(&mut self) -> Parsed {
        self.nested(|parser| {
            let condition = parser.disjunction()?;
            let offset = parser.offset();
            if !parser.accept("?") {
                return Ok(condition);
            }
            let then = parser.disjunction()?;
            parser.expect(":")?;
            let otherwise = parser.expression()?;
            parser.node(offset, Kind::Conditional(Box::new([condition, then, otherwise])))
        })
    }

    fn disjunction(&mut self) -> Parsed {
        let first = self.conjunction()?;
        let offset = self.offset();
        let mut terms = vec![first];
        while self.accept("||") {
            terms.push(self.conjunction()?);
        }
        self.terms(offset, terms, Kind::Or)
    }

    fn conjunction(&mut self) -> Parsed {
        let first = self.binary(0)?;
        let offset = self.offset();
        let mut terms = vec![first];
        while self.accept("&&") {
            terms.push(self.binary(0)?);
        }
        self.terms(offset, terms, Kind::And)
    }

    fn terms(
        &mut self,
        offset: usize,
        mut terms: Vec<Expression>,
        join: fn(Vec<Expression>) -> Kind,
    ) -> Parsed {
        match (terms.len(), terms.pop()) {
            (1, Some(only)) => Ok(only),
            (_, last) => {
                terms.extend(last);
                self.node(offset, join(terms))
            }
        }
    }

    /// Left-associative operators, from the given level of precedence.
    fn binary(&mut self, level: usize) -> Parsed {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let offset = self.offset();
            let TokenKind::Symbol(symbol) = *self.peek() else { return Ok(left) };
            let Some((_, function)) = operators.iter().find(|(known, _)| *known == symbol) else {
                return Ok(left);
            };
            self.at += 1;
            let right = self.binary(level + 1)?;
            left = self.call(offset, None, function, vec![left, right])?;
        }
    }

    /// `!` and `-`. Two of a kind cancel each other, as in cel-go.
    fn unary(&mut self) -> Parsed {
        let offset = self.offset();
        if self.is_negative_number() {
            return self.member();
        }
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            let mut n = 0_usize;
            while self.accept(symbol) {
                n += 1;
            }
            if n > 0 {
                let operand = self.member()?;
                return match n % 2 {
                    0 => Ok(operand),
                    _ => self.call(offset, None, function, vec![operand]),
                };
            }
        }
        self.member()
    }

    /// Whether a minus is here, and a number after it: that is one literal.
    fn is_negative_number(&self) -> bool {
        self.is_at("-")
            && self
                .tokens
                .get(self.at + 1)
                .is_some_and(|token| matches!(token.kind, TokenKind::Int(_) | TokenKind::Double(_)))
    }

    fn member(&mut self) -> Parsed {
        let mut operand = self.primary()?;
        loop {
            let offset = self.offset();
            if self.accept(".") {
                operand = self.selection(offset, operand)?;
            } else if self.accept("[") {
                let access = self.access();
                let index = self.expression()?;
                self.expect("]")?;
                let (operand_box, index) = (Box::new(operand), Box::new(index));
                operand = self.node(offset, Kind::Index { operand: operand_box, index, access })?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn access(&mut self) -> Access {
        if self.accept("?") { Access::Optional } else { Access::Required }
    }

    /// What follows `operand.`: a field, or a method and its arguments.
    fn selection(&mut self, offset: usize, operand: Expression) -> Parsed {
        let access = self.access();
        let field = self.identifier()?;
        let call_offset = self.offset();
        if access == Access::Required && self.accept("(") {
            let arguments = self.arguments()?;
            return self.call(call_offset, Some(operand), &field, arguments);
        }
        let operand = Box::new(operand);
        self.node(offset, Kind::Select { operand, field, access })
    }

    fn identifier(&mut self) -> Result<Arc<str>, CompileError> {
        let TokenKind::Identifier(name) = self.peek() else {
            return Err(self.unexpected("IDENTIFIER"));
        };
        let name = name.clone();
        self.at += 1;
        Ok(name)
    }

    /// A call, with macros expanded.
    fn call(
        &mut self,
        offset: usize,
        receiver: Option<Expression>,
        function: &str,
        arguments: Vec<Expression>,
    ) -> Parsed {
        let kind = macros::expand(receiver, function, arguments)
            .map_err(|(at, message)| self.fail(at.unwrap_or(offset), message))?;
        self.node(offset, kind)
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, CompileError> {
        let mut arguments = Vec::new();
        if self.accept(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if !self.accept(",") {
                self.expect(")")?;
                return Ok(arguments);
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let offset = self.offset();
        if self.accept("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.accept("[") {
            return self.list(offset);
        }
        if self.accept("{") {
            return self.map(offset);
        }
        let is_global = self.accept(".");
        if is_global || matches!(self.peek(), TokenKind::Identifier(_)) {
            return self.name(offset, is_global);
        }
        self.literal(offset)
    }

    fn name(&mut self, offset: usize, is_global: bool) -> Parsed {
        let name = self.identifier()?;
        let call_offset = self.offset();
        if self.accept("(") {
            let arguments = self.arguments()?;
            return self.call(call_offset, None, &name, arguments);
        }
        if RESERVED.contains(&&*name) {
            return Err(self.fail(offset, format!("reserved identifier: {name}")));
        }
        let name = if is_global { format!(".{name}").into() } else { name };
        self.node(offset, Kind::Identifier(name))
    }

    fn list(&mut self, offset: usize) -> Parsed {
        let mut elements = Vec::new();
        while !self.is_at("]") && !self.is_at(",") {
            let is_optional = self.accept("?");
            elements.push(Element { value: self.expression()?, is_optional });
            if !self.accept(",") {
                break;
            }
        }
        if elements.is_empty() {
            self.accept(",");
        }
        self.expect("]")?;
        self.node(offset, Kind::List(elements))
    }

    fn map(&mut self, offset: usize) -> Parsed {
        let mut entries = Vec::new();
        while !self.is_at("}") && !self.is_at(",") {
            let is_optional = self.accept("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push(Entry { key, value: self.expression()?, is_optional });
            if !self.accept(",") {
                break;
            }
        }
        if entries.is_empty() {
            self.accept(",");
        }
        self.expect("}")?;
        self.node(offset, Kind::Map(entries))
    }

    fn literal(&mut self, offset: usize) -> Parsed {
        let is_negative = self.is_negative_number();
        self.at += usize::from(is_negative);
        let literal = match self.peek().clone() {
            TokenKind::Int(digits) => Literal::Int(self.signed(offset, digits, is_negative)?),
            TokenKind::Double(number) => {
                Literal::Double(if is_negative { -number } else { number })
            }
            TokenKind::UInt(number) => Literal::UInt(number),
            TokenKind::String(text) => Literal::String(text),
            TokenKind::Bytes(bytes) => Literal::Bytes(bytes),
            TokenKind::Symbol("true") => Literal::Bool(true),
            TokenKind::Symbol("false") => Literal::Bool(false),
            TokenKind::Symbol("null") => Literal::Null,
            TokenKind::Symbol(_) | TokenKind::Identifier(_) | TokenKind::End => {
                return Err(self.unexpected("an expression"));
            }
        };
        self.at += 1;
        self.node(offset, Kind::Literal(literal))
    }

    fn signed(&self, offset: usize, digits: u64, is_negative: bool) -> Result<i64, CompileError> {
        let magnitude = i128::from(digits);
        i64::try_from(if is_negative { -magnitude } else { magnitude })
            .map_err(|_| self.fail(offset, "invalid int literal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(source: &str) -> String {
        parse(source).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn errors_show_the_line_and_the_column() {
        assert_eq!(
            message("true &&\n  )"),
            "ERROR: <input>:2:3: Syntax error: mismatched input ')' expecting an expression"
        );
        assert_eq!(message("'é' + if"), "ERROR: <input>:1:7: reserved identifier: if");
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
        assert!(parse(&nested(MAX_NESTING - 1)).is_ok());
        assert!(message(&nested(MAX_NESTING)).contains("recursion limit"));
    }

    #[test]
    fn chains_of_operators_are_bounded() {
        let chain = |n: usize| vec!["1"; n].join(" + ");
        assert!(parse(&chain(MAX_DEPTH)).is_ok());
        assert!(message(&chain(MAX_DEPTH + 1)).contains("nested too deeply"));
        assert!(parse(&vec!["true"; 2000].join(" && ")).is_ok());
    }

    #[test]
    fn a_macro_needs_simple_names() {
        assert!(message("[1].all(a.b, true)").contains("argument must be a simple name"));
        assert!(message("has(a)").contains("invalid argument to has() macro"));
    }
}
