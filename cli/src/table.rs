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

/// Spaces before a paragraph below a row.
const INDENT: usize = 2;

/// The width of tables and paragraphs where there is no terminal.
pub(crate) const WIDTH: usize = 120;

/// A table under construction.
pub(crate) struct TextTable {
    columns: Vec<(String, Align)>,
    rows: Vec<Row>,
}

struct Row {
    cells: Vec<Cell>,
    /// A paragraph below the row.
    below: Option<String>,
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

    /// Adds a row. The last cell of one with fewer cells than there are columns may be wider than its column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(Row { cells: cells.into_iter().collect(), below: None });
    }

    /// Adds a row with a paragraph below it, which is broken into lines.
    pub(crate) fn row_above(&mut self, cells: impl IntoIterator<Item = Cell>, below: &str) {
        let below = Some(visible(below.to_owned()));
        self.rows.push(Row { cells: cells.into_iter().collect(), below });
    }

    /// Leaves out those of some columns that have the same text in every row.
    pub(crate) fn leave_out_equal(&mut self, names: &[&str]) {
        self.leave_out(names, |texts| texts.windows(2).all(|pair| pair[0] == pair[1]));
    }

    /// Leaves out those of some columns of whose texts this holds.
    pub(crate) fn leave_out(&mut self, names: &[&str], is_needless: impl Fn(&[&str]) -> bool) {
        for name in names {
            let Some(at) = self.columns.iter().position(|(own, _)| own == name) else { continue };
            let n_columns = self.columns.len();
            // The last cell of a short row is not of one column.
            let is_whole =
                |row: &&mut Row| row.cells.len() == n_columns || at + 1 < row.cells.len();
            let mut rows: Vec<&mut Row> = self.rows.iter_mut().filter(is_whole).collect();
            let texts: Vec<&str> = rows.iter().map(|row| &*row.cells[at].text).collect();
            if is_needless(&texts) {
                rows.iter_mut().for_each(|row| drop(row.cells.remove(at)));
                self.columns.remove(at);
            }
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Prints the table; rows wider than `width` are cut.
    pub(crate) fn print(&self, out: &mut dyn Write, width: Option<usize>) -> io::Result<()> {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| {
                let rows = self.rows.iter();
                let spans =
                    |row: &&Vec<Cell>| row.len() < self.columns.len() && at + 1 >= row.len();
                let cells = rows.map(|row| &row.cells).filter(|row| !spans(row));
                let cells = cells.map(|row| row[at].text.width());
                cells.chain([self.columns[at].0.width()]).max().unwrap_or(0)
            })
            .collect();
        let heading: Vec<Cell> =
            self.columns.iter().map(|(name, _)| Cell::styled(HEADING, name)).collect();
        writeln!(out, "{}", self.line(&heading, &widths, width.unwrap_or(usize::MAX)))?;
        for Row { cells, below } in &self.rows {
            writeln!(out, "{}", self.line(cells, &widths, width.unwrap_or(usize::MAX)))?;
            for line in below.iter().flat_map(|below| wrap(below, width.unwrap_or(WIDTH) - INDENT))
            {
                writeln!(out, "{}{line}", " ".repeat(INDENT))?;
            }
        }
        Ok(())
    }

    fn line(&self, row: &[Cell], widths: &[usize], mut left: usize) -> String {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let is_last = at + 1 == row.len();
            let pad = " ".repeat(widths[at].saturating_sub(cell.text.width()));
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

/// A bar of some width, of which a part is full; the last letter says that it is more than full.
pub(crate) fn bar(part: f64, width: usize) -> String {
    let full = (part * width as f64).round().clamp(0.0, width as f64) as usize;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(width - full));
    if part <= 1.0 {
        return bar;
    }
    let shortened: String = bar.chars().take(width - 1).collect();
    format!("{shortened}▶")
}

/// A time as kubectl shows an age: two units at most.
pub(crate) fn age(seconds: i64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let mut rest = seconds.max(0);
    let mut parts = Vec::new();
    for (unit, size) in units {
        if rest >= size && parts.len() < 2 {
            parts.push(format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.concat() }
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

/// The text in lines of at most this width, unless a word is longer.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
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
    fn the_last_cell_of_a_short_row_is_wider_than_its_column() {
        let mut table = TextTable::new(
            [("NAME", Align::Left), ("N", Align::Right)].into_iter().chain([("WHY", Align::Left)]),
        );
        table.row(["a".into(), "1".into(), "x".into()]);
        table.row(["b".into(), "something long".into()]);
        let mut out = Vec::new();
        table.print(&mut out, None).unwrap();
        let plain = anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string();
        assert_eq!(
            plain.lines().collect::<Vec<_>>(),
            ["NAME  N  WHY", "a     1  x", "b     something long"]
        );
    }

    #[test]
    fn a_paragraph_below_a_row_is_broken_into_lines() {
        let mut table = TextTable::new([("NAME", Align::Left), ("N", Align::Right)]);
        table.row_above(["a".into(), "1".into()], "one two three");
        table.row(["b".into(), "2".into()]);
        let mut out = Vec::new();
        table.print(&mut out, Some(10)).unwrap();
        let plain = anstream::adapter::strip_str(std::str::from_utf8(&out).unwrap()).to_string();
        assert_eq!(
            plain.lines().collect::<Vec<_>>(),
            ["NAME  N", "a     1", "  one two", "  three", "b     2"]
        );
    }

    #[test]
    fn columns_that_are_equal_everywhere_are_left_out() {
        let columns = ["NAME", "STATE", "N", "WHY"].map(|name| (name, Align::Left));
        let mut table = TextTable::new(columns);
        table.row(["a".into(), "Open".into(), "1".into(), "x".into()]);
        table.row(["b".into(), "lost".into()]);
        table.row(["c".into(), "Open".into(), "2".into(), "x".into()]);
        table.leave_out_equal(&["STATE", "N", "WHY", "OTHER"]);
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["NAME", "N"]);
        assert_eq!(table.rows[1].cells[1].text, "lost");
    }

    #[test]
    fn a_bar_shows_a_part_and_what_is_more() {
        assert_eq!(bar(0.5, 4), "██░░");
        assert_eq!(bar(1.0, 4), "████");
        assert_eq!(bar(1.2, 4), "███▶");
        assert_eq!(bar(f64::INFINITY, 4), "███▶");
    }

    #[test]
    fn ages_have_two_units_at_most() {
        for (time, shown) in [
            (-1, "0s"),
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (90, "1m30s"),
            (3_600, "1h"),
            (3_601, "1h1s"),
            (86_400 * 3 + 3_600 * 4 + 5, "3d4h"),
        ] {
            assert_eq!(age(time), shown);
        }
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
