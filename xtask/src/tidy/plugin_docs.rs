//! Whether docs/plugins.md lists the methods of `Plugin` with their defaults, what plugins provide, and the kinds of
//! arguments.

use std::fs;

use xtask_launcher::build::root;

const DOCS: &str = "docs/plugins.md";

pub(super) fn violations() -> anyhow::Result<Vec<String>> {
    let read = |path: &str| fs::read_to_string(root().join(path));
    let docs = read(DOCS)?;
    let section = |heading: &str| {
        let after = docs.split_once(&format!("\n{heading}\n")).map_or("", |(_, after)| after);
        after.split_once("\n#").map_or(after, |(section, _)| section)
    };
    let plugin = read("framework/src/plugin.rs")?;
    let provided = read("framework/src/plugin/provided.rs")?;
    let arguments = read("framework/src/arguments.rs")?;
    let methods = methods(item(&plugin, "pub trait Plugin"));
    let mut violations = differences(&methods, &rows(section("## What a plugin is asked")));
    let traits = provided.lines().filter_map(|line| line.strip_prefix("pub trait "));
    let traits: Vec<&str> = traits.map(first_word).collect();
    violations.extend(other_names(&traits, section("### What only one plugin provides")));
    let kinds: Vec<&str> = variants(item(&arguments, "pub enum ArgumentKind"));
    violations.extend(other_names(&kinds, section("## The spec")));
    Ok(violations)
}

/// A method of a trait, and its default as the table shows it.
#[derive(Debug, PartialEq, Eq)]
struct Method<'s> {
    name: &'s str,
    default: Default<'s>,
}

#[derive(Debug, PartialEq, Eq)]
enum Default<'s> {
    /// There is none.
    Required,
    /// It does nothing.
    Empty,
    /// An expression.
    Expression(&'s str),
    /// More than that: it calls other methods.
    Longer,
}

impl Default<'_> {
    /// Whether the cell of a table describes it.
    fn is_shown_by(&self, cell: &str) -> bool {
        match self {
            Self::Required => cell.is_empty(),
            Self::Empty => cell == "nothing",
            Self::Expression(text) => {
                let shown = cell.strip_suffix(", slow").unwrap_or(cell);
                shown == format!("`{text}`")
            }
            Self::Longer => cell.starts_with("calls "),
        }
    }
}

/// The text of an item of a source file, up to its last brace.
fn item<'s>(source: &'s str, start: &str) -> &'s str {
    let from = source.find(start).map_or("", |at| &source[at..]);
    from.find("\n}\n").map_or(from, |end| &from[..end])
}

/// The methods of a trait, in order.
fn methods(of_trait: &str) -> Vec<Method<'_>> {
    let mut methods = Vec::new();
    let mut lines = of_trait.lines();
    while let Some(line) = lines.next() {
        let Some(signature) = line.strip_prefix("    fn ") else { continue };
        let name = first_word(signature);
        let mut end = line;
        while !end.ends_with(['{', '}', ';']) {
            end = lines.next().unwrap_or(";");
        }
        let default = if end.ends_with(';') {
            Default::Required
        } else if end.ends_with('}') {
            Default::Empty
        } else {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "    }").collect();
            match body[..] {
                [] => Default::Empty,
                [expression] if !expression.contains("self.") => {
                    Default::Expression(expression.trim())
                }
                [..] => Default::Longer,
            }
        };
        methods.push(Method { name, default });
    }
    methods
}

/// The variants of an enum, in order.
fn variants(of_enum: &str) -> Vec<&str> {
    let lines = of_enum.lines().filter_map(|line| line.strip_prefix("    "));
    lines.filter(|line| line.starts_with(char::is_uppercase)).map(first_word).collect()
}

fn first_word(text: &str) -> &str {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.find(|letter| !is_part(letter)).map_or(text, |end| &text[..end])
}

/// The rows of tables whose first cell begins with a name in backquotes: that name, and the last cell.
fn rows(markdown: &str) -> Vec<(&str, &str)> {
    let row = |line: &'_ str| -> Option<(usize, usize)> {
        let cells = line.strip_prefix("| `")?;
        Some((cells.find('`')?, cells.trim_end().strip_suffix('|')?.rfind('|')?))
    };
    let lines = markdown.lines().filter_map(|line| {
        let (name, last) = row(line)?;
        let cells = &line["| `".len()..];
        Some((&cells[..name], cells[last..].trim_matches(['|', ' '])))
    });
    lines.collect()
}

fn differences(methods: &[Method<'_>], rows: &[(&str, &str)]) -> Vec<String> {
    let own: Vec<&str> = methods.iter().map(|method| method.name).collect();
    let listed: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    if own != listed {
        return vec![format!("{DOCS} lists the methods {listed:?}; the trait Plugin has {own:?}")];
    }
    let wrong =
        methods.iter().zip(rows).filter(|(method, (_, cell))| !method.default.is_shown_by(cell));
    let message = |(method, (name, cell)): (&Method<'_>, &(&str, &str))| {
        format!("{DOCS}: the default of {name} is {:?}, and \"{cell}\" is listed", method.default)
    };
    wrong.map(message).collect()
}

/// What a section lists other than these names.
fn other_names(own: &[&str], section: &str) -> Option<String> {
    let listed: Vec<&str> = rows(section).iter().map(|(name, _)| *name).collect();
    (own != listed).then(|| format!("{DOCS} lists {listed:?}; the source has {own:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIT: &str = "pub trait Plugin: Send {
    /// Its name.
    fn name(&self) -> &'static str;

    fn on_placement(&mut self, _: &Change) {}

    fn work(&self) -> u64 {
        0
    }

    fn scores(
        &self,
        scores: &mut [i64],
    ) {
        for score in scores {
            *score = 1;
        }
    }
}
";

    #[test]
    fn a_table_lists_every_method_with_its_default() {
        let methods = methods(item(TRAIT, "pub trait Plugin"));
        let table = "| a | b | c |\n|---|---|---|\n| `name` | x | |\n| `on_placement` | y | nothing |\n| `work` | z | `0`, slow |\n| `scores` | z | calls `score` |\n";
        assert_eq!(differences(&methods, &rows(table)), [""; 0]);
        let other = table.replace("`0`", "`1`");
        assert!(differences(&methods, &rows(&other))[0].contains("the default of work"));
        let fewer = table.replace("| `work` | z | `0`, slow |\n", "");
        assert!(differences(&methods, &rows(&fewer))[0].contains("lists the methods"));
    }

    #[test]
    fn variants_are_found_without_their_fields() {
        assert_eq!(
            variants(
                "pub enum Kind {\n    /// On.\n    Bool {\n        default: bool,\n    },\n    Text,\n"
            ),
            ["Bool", "Text"]
        );
    }
}
