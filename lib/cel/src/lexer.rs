//! Splits an expression into tokens.

use crate::{
    error::CompileError,
    literal,
    token::{Token, TokenKind},
};

/// Longer ones first, where one begins with another.
const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!",
    "?", ":", "+", "*", "/", "%",
];

const WORDS: [&str; 4] = ["in", "true", "false", "null"];

/// Splits an expression into tokens; the last one is [`TokenKind::End`].
///
/// # Errors
///
/// A [`CompileError`] at a character that starts no token, or at a malformed literal.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token>, CompileError> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let offset = lexer.at;
        let kind = lexer.next().map_err(|message| CompileError::at(source, offset, message))?;
        let is_last = kind == TokenKind::End;
        tokens.push(Token { offset, kind });
        if is_last {
            return Ok(tokens);
        }
    }
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = self.rest().trim_start_matches([' ', '\t', '\r', '\n', '\u{c}']);
            let rest = match rest.strip_prefix("//") {
                Some(comment) => &comment[comment.find('\n').unwrap_or(comment.len())..],
                None => rest,
            };
            let at = self.source.len() - rest.len();
            if at == self.at {
                return;
            }
            self.at = at;
        }
    }

    fn next(&mut self) -> Result<TokenKind, String> {
        let rest = self.rest();
        let mut bytes = rest.bytes();
        let Some(first) = bytes.next() else { return Ok(TokenKind::End) };
        let starts_number = first.is_ascii_digit()
            || (first == b'.' && bytes.next().is_some_and(|b| b.is_ascii_digit()));
        if starts_number {
            return self.number();
        }
        if let Some((text, end)) = literal::Quoted::find(rest)? {
            self.at += end;
            return text.value();
        }
        if first == b'_' || first.is_ascii_alphabetic() {
            return Ok(self.word());
        }
        let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
        let symbol = symbol.ok_or_else(|| {
            let character = rest.chars().next().unwrap_or_default();
            format!("Syntax error: token recognition error at: '{character}'")
        })?;
        self.at += symbol.len();
        Ok(TokenKind::Symbol(symbol))
    }

    fn word(&mut self) -> TokenKind {
        let rest = self.rest();
        let is_part = |b: u8| b == b'_' || b.is_ascii_alphanumeric();
        let end = rest.bytes().position(|b| !is_part(b)).unwrap_or(rest.len());
        self.at += end;
        let word = &rest[..end];
        match WORDS.iter().find(|known| **known == word) {
            Some(known) => TokenKind::Symbol(known),
            None => TokenKind::Identifier(word.into()),
        }
    }

    fn number(&mut self) -> Result<TokenKind, String> {
        let rest = self.rest();
        let (token, end) = literal::number(rest)?;
        self.at += end;
        Ok(token)
    }
}
