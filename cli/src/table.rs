//! Aligned tables, cut to the width of the terminal.

use std::{
    fmt::Display,
    io::{self, Write},
};

use anstyle::Style;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::terminal::{HEADING, styled};

/// Spaces between columns.
const GAP: usize = 2;

/// A table under construction.
pub(crate) struct TextTable {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<Cell>>,
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Text with a style.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(Style::new(), text)
    }
}

impl Cell {
    pub(crate) fn styled(style: Style, text: impl Into<String>) -> Self {
        Self { text: visible(text.into()), style }
    }
}

impl TextTable {
    pub(crate) fn new<N: Into<String>>(columns: impl IntoIterator<Item = (N, Align)>) -> Self {
        let columns = columns.into_iter().map(|(name, align)| (name.into(), align)).collect();
        Self { columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Prints the table; rows wider than `width` are cut.
    pub(crate) fn print(&self, out: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().map(|row| row[at].text.width());
                cells.chain([self.columns[at].0.width()]).max().unwrap_or(0)
            })
            .collect();
        let heading: Vec<Cell> =
            self.columns.iter().map(|(name, _)| Cell::styled(HEADING, name)).collect();
        for row in std::iter::once(&heading).chain(&self.rows) {
            writeln!(out, "{}", self.line(row, &widths, width.unwrap_or(usize::MAX)))?;
        }
        Ok(())
    }

    fn line(&self, row: &[Cell], widths: &[usize], mut left: usize) -> String {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let is_last = at + 1 == row.len();
            let pad = " ".repeat(widths[at] - cell.text.width());
            let text = match self.columns[at].1 {
                Align::Right => format!("{pad}{}", cell.text),
                Align::Left if is_last => cell.text.clone(),
                Align::Left => format!("{}{pad}", cell.text),
            };
            let text = cut(&text, left);
            left = left.saturating_sub(text.width() + GAP);
            // Blanks have no style, so that those at the end of a line can be removed.
            let shown = text.trim();
            let (before, after) = text.split_once(shown).unwrap_or_default();
            line.push_str(before);
            line.push_str(&styled(cell.style, shown));
            line.push_str(after);
            if is_last || left == 0 {
                break;
            }
            line.push_str(&" ".repeat(GAP));
        }
        line.trim_end().to_owned()
    }
}

/// A number of things: `1 pod`, `2 pods`.
pub(crate) fn plural(count: impl Display + PartialEq + From<u8>, noun: &str) -> String {
    let ending = if count == 1.into() { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// The text with control characters escaped: names can contain any character.
fn visible(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// The text, or as much of it as fits with an ellipsis.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for letter in text.chars() {
        used += letter.width().unwrap_or(0);
        if used > width {
            break;
        }
        kept.push(letter);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(width: Option<usize>) -> Vec<String> {
        let mut table =
            TextTable::new([("NAME", Align::Left), ("N", Align::Right), ("WHY", Align::Left)]);
        table.row(["a".into(), "1".into(), "short".into()]);
        table.row(["longer".into(), "1000".into(), "a longer reason".into()]);
        let mut out = Vec::new();
        table.print(&mut out, width).unwrap();
        let plain = anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string();
        plain.lines().map(str::to_owned).collect()
    }

    #[test]
    fn columns_are_aligned() {
        assert_eq!(
            printed(None),
            ["NAME       N  WHY", "a          1  short", "longer  1000  a longer reason"]
        );
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let cell = Cell::from("a\u{1b}[31mb\nc");
        assert_eq!(cell.text, r"a\u{1b}[31mb\nc");
    }

    #[test]
    fn wide_rows_are_cut_to_the_terminal() {
        let lines = printed(Some(20));
        assert_eq!(lines[2], "longer  1000  a lon…");
        assert!(lines.iter().all(|line| line.width() <= 20));
    }
}
