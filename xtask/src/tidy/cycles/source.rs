//! The modules a source file declares, and the paths it uses inside its crate.

/// What one file declares and uses. All paths start at the root of the crate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Modules in files of their own, `mod x;`, with the value of `#[path]` if there is one.
    pub(super) file_modules: Vec<(Vec<String>, Option<String>)>,
    /// Modules in this file: `mod x { .. }`.
    pub(super) inline_modules: Vec<Vec<String>>,
    /// Paths into the crate, in `use` declarations and elsewhere.
    pub(super) paths: Vec<Vec<String>>,
}

/// Reads the source text of the module at the path `module`, without its `#[cfg(test)]` items.
pub(super) fn read(text: &str, module: &[String]) -> Found {
    let tokens = without_tests(&tokens(text));
    let mut found = Found::default();
    let mut at = 0;
    read_module(&tokens, &mut at, module, &mut found);
    found
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'s> {
    Word(&'s str),
    /// A string literal without escapes, as `#[path]` has.
    Text(&'s str),
    /// `::`
    Separator,
    Symbol(char),
}

use Token::{Separator, Symbol, Text, Word};

/// The tokens of a text, without comments, characters, and strings of special notation.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if let Some(length) = ignored(rest) {
            if first == '"' {
                tokens.push(Text(rest[1..length].trim_end_matches('"')));
            }
            length
        } else if is_word(first) {
            let length = rest.find(|letter| !is_word(letter)).unwrap_or(rest.len());
            tokens.push(Word(&rest[..length]));
            length
        } else if rest.starts_with("::") {
            tokens.push(Separator);
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(Symbol(first));
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of the comment, string or character that `text` starts with.
fn ignored(text: &str) -> Option<usize> {
    let up_to = |start: usize, end: &str| {
        let found = text.get(start..)?.find(end)?;
        Some(start + found + end.len())
    };
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return up_to(2, "*/");
    }
    if let Some(raw) = text.strip_prefix("br").or_else(|| text.strip_prefix('r')) {
        let n_hashes = raw.chars().take_while(|letter| *letter == '#').count();
        if raw[n_hashes..].starts_with('"') {
            let start = text.len() - raw.len() + n_hashes + 1;
            return up_to(start, &format!("\"{}", "#".repeat(n_hashes)));
        }
    }
    let quoted = text.strip_prefix('b').unwrap_or(text);
    let start = text.len() - quoted.len() + 1;
    if quoted.starts_with('"') {
        return Some(start + escaped_length(&text[start..], '"'));
    }
    // A lifetime has no closing quote after its first letter.
    let mut letters = quoted.strip_prefix('\'')?.chars();
    let (first, second) = (letters.next()?, letters.next()?);
    let is_character = first == '\\' || second == '\'';
    is_character.then(|| start + escaped_length(&text[start..], '\''))
}

/// The length of `text` up to and with the first `quote` that has no backslash before it.
fn escaped_length(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        if letter == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    text.len()
}

/// The tokens without items that are marked `#[cfg(test)]`.
fn without_tests<'s>(tokens: &[Token<'s>]) -> Vec<Token<'s>> {
    let marker = [
        Symbol('#'),
        Symbol('['),
        Word("cfg"),
        Symbol('('),
        Word("test"),
        Symbol(')'),
        Symbol(']'),
    ];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].starts_with(&marker) {
            at += marker.len();
            at += item_length(&tokens[at..]);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// The number of tokens of the item at the start, attributes included.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Symbol('{' | '(' | '[') => depth += 1,
            Symbol('}' | ')' | ']') => depth = depth.saturating_sub(1),
            Word(_) | Text(_) | Separator | Symbol(_) => {}
        }
        let is_last = *token == Symbol(';')
            || (*token == Symbol('}') && tokens.get(at + 1) != Some(&Symbol(';')));
        if depth == 0 && is_last {
            return at + 1;
        }
    }
    tokens.len()
}

/// Reads tokens up to the brace that closes the module.
fn read_module(tokens: &[Token<'_>], at: &mut usize, module: &[String], found: &mut Found) {
    let mut children: Vec<&str> = Vec::new();
    for pair in tokens[*at..].windows(2) {
        if let [Word("mod"), Word(name)] = pair {
            children.push(name);
        }
    }
    let mut depth = 0_usize;
    let mut file = None;
    while let Some(token) = tokens.get(*at) {
        let next = tokens.get(*at + 1);
        match (token, next) {
            (Word("mod"), Some(Word(name))) => {
                let path = child(module, name);
                *at += 3;
                if tokens.get(*at - 1) == Some(&Symbol('{')) {
                    found.inline_modules.push(path.clone());
                    read_module(tokens, at, &path, found);
                } else {
                    found.file_modules.push((path, file.take()));
                }
            }
            (Word("path"), Some(Symbol('='))) => {
                *at += 2;
                if let Some(Text(path)) = tokens.get(*at) {
                    file = Some((*path).to_owned());
                }
            }
            (Word(first), Some(Separator)) if !is_continued(tokens, *at) => {
                let start = match *first {
                    "crate" => Some(Vec::new()),
                    "self" => Some(module.to_vec()),
                    "super" => Some(parent(module)),
                    name if children.contains(&name) => Some(child(module, name)),
                    _ => None,
                };
                *at += 2;
                if let Some(start) = start {
                    read_tree(tokens, at, start, &mut found.paths);
                }
            }
            (Symbol('{'), _) => {
                depth += 1;
                *at += 1;
            }
            (Symbol('}'), _) => {
                *at += 1;
                if depth == 0 {
                    return;
                }
                depth -= 1;
            }
            _ => *at += 1,
        }
    }
}

/// Whether the word is the middle of a path.
fn is_continued(tokens: &[Token<'_>], at: usize) -> bool {
    at.checked_sub(1).is_some_and(|before| tokens[before] == Separator)
}

fn child(module: &[String], name: &str) -> Vec<String> {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}

fn parent(module: &[String]) -> Vec<String> {
    module[..module.len().saturating_sub(1)].to_vec()
}

/// Reads what follows `prefix::`, a name, `*`, or several in braces, into full paths.
fn read_tree(
    tokens: &[Token<'_>],
    at: &mut usize,
    prefix: Vec<String>,
    paths: &mut Vec<Vec<String>>,
) {
    match tokens.get(*at) {
        Some(Symbol('{')) => {
            *at += 1;
            while !matches!(tokens.get(*at), None | Some(Symbol('}'))) {
                let before = *at;
                read_tree(tokens, at, prefix.clone(), paths);
                if let (Some(Word("as")), Some(Word(_))) = (tokens.get(*at), tokens.get(*at + 1)) {
                    *at += 2;
                }
                if tokens.get(*at) == Some(&Symbol(',')) || *at == before {
                    *at += 1;
                }
            }
            *at += 1;
        }
        Some(Word(name)) => {
            let path = match *name {
                "self" => prefix,
                "super" => parent(&prefix),
                name => child(&prefix, name),
            };
            *at += 1;
            if tokens.get(*at) == Some(&Separator) {
                *at += 1;
                read_tree(tokens, at, path, paths);
            } else {
                paths.push(path);
            }
        }
        Some(Symbol('*')) => {
            *at += 1;
            paths.push(prefix);
        }
        // The type parameters of a call.
        _ => paths.push(prefix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(paths: &[Vec<String>]) -> Vec<String> {
        paths.iter().map(|path| path.join("::")).collect()
    }

    fn paths(text: &str, module: &str) -> Vec<String> {
        let module: Vec<String> = module.split("::").map(str::to_owned).collect();
        joined(&read(text, &module).paths)
    }

    #[test]
    fn use_trees_are_expanded() {
        let text = "use crate::{a::{self, B}, c::*, d as e};\nuse super::f;\nuse std::fmt;\n\
                    pub use self::g::{H, super::I};";
        assert_eq!(paths(text, "m::n"), ["a", "a::B", "c", "d", "m::f", "m::n::g::H", "m::n::I"]);
    }

    #[test]
    fn paths_in_expressions_count() {
        let text = "mod child;\nfn f() { child::g(); crate::a::b::<u8>(); self.x(); T::y(); }";
        assert_eq!(paths(text, "m"), ["m::child::g", "a::b"]);
    }

    #[test]
    fn tests_comments_and_literals_do_not_count() {
        let text = "// crate::a\n/* crate::b */ const T: &str = \"crate::c \\\" crate::d\";\n\
                    const R: &str = r#\"crate::e \" \"#; const C: char = '\"'; fn f<'a>(_: &'a u8) {}\n\
                    #[cfg(test)]\nuse crate::{f, g};\n#[cfg(test)]\nmod tests { use crate::h; }\n\
                    #[cfg(test)]\nmod fake;\nuse crate::i;";
        let found = read(text, &[]);
        assert_eq!(joined(&found.paths), ["i"]);
        assert!(found.file_modules.is_empty());
    }

    #[test]
    fn modules_are_found_in_files_and_inline() {
        let text = "pub(crate) mod a;\n#[path = \"c/d.rs\"]\nmod e;\nmod b { mod c; use super::d; fn f() {} }\nuse self::e;";
        let found = read(text, &["m".to_owned()]);
        let (modules, files): (Vec<_>, Vec<_>) = found.file_modules.into_iter().unzip();
        assert_eq!(joined(&modules), ["m::a", "m::e", "m::b::c"]);
        assert_eq!(files, [None, Some("c/d.rs".to_owned()), None]);
        assert_eq!(joined(&found.inline_modules), ["m::b"]);
        assert_eq!(joined(&found.paths), ["m::d", "m::e"]);
    }
}
