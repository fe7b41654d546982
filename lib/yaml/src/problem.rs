//! Errors in a text, with their position.

use std::{
    cell::{Cell, RefCell},
    fmt,
};

/// An error in a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The path of the value; empty for the text as a whole.
    pub path: String,
    /// The error message.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Collects problems, so that a reader can continue and report all of them.
#[derive(Debug, Default)]
pub struct Problems {
    all: RefCell<Vec<Problem>>,
    n_dropped: Cell<usize>,
}

/// Maximum number of problems kept for one text. Guessed.
pub const MAX_PROBLEMS: usize = 1_000;

impl Problems {
    /// Records a problem.
    pub fn add(&self, problem: Problem) {
        let mut all = self.all.borrow_mut();
        if all.len() < MAX_PROBLEMS {
            all.push(problem);
        } else {
            self.n_dropped.set(self.n_dropped.get() + 1);
        }
    }

    /// Whether there are none so far.
    pub fn is_empty(&self) -> bool {
        self.all.borrow().is_empty()
    }

    /// All problems in the order of the text; if there were more than [`MAX_PROBLEMS`], the last one
    /// gives the number of omitted problems.
    pub fn into_sorted(self) -> Vec<Problem> {
        let mut all = self.all.into_inner();
        all.sort_by_key(|problem| (problem.line, problem.column));
        if let (Some(last), n_dropped @ 1..) = (all.last().cloned(), self.n_dropped.get()) {
            let message = format!("{n_dropped} more problems follow");
            all.push(Problem { path: String::new(), message, ..last });
        }
        all
    }
}

/// The known word closest to a misspelt `text`, if one is close enough.
///
/// Close enough is one error in three letters; letter case is ignored. The first word wins a tie.
pub fn suggest<'k>(text: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let lower: Vec<char> = text.to_lowercase().chars().take(MAX_SUGGESTED + 1).collect();
    if lower.len() > MAX_SUGGESTED {
        return None;
    }
    let candidates = known.into_iter().filter_map(|candidate| {
        let other: Vec<char> = candidate.to_lowercase().chars().collect();
        let slips = distance(&lower, &other);
        (slips <= lower.len().max(other.len()) / 3).then_some((slips, candidate))
    });
    candidates.min_by_key(|(slips, _)| *slips).map(|(_, candidate)| candidate)
}

/// Longer words are not searched; the cost is quadratic in the length.
const MAX_SUGGESTED: usize = 64;

/// Number of letters to insert, remove, change, or swap with a neighbour.
///
/// Source: the "optimal string alignment" distance.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, letter) in left.iter().enumerate() {
        let mut here = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let change = above[column] + usize::from(letter != other);
            let mut best = change.min(above[column + 1] + 1).min(here[column] + 1);
            let swapped =
                row > 0 && column > 0 && *letter == right[column - 1] && left[row - 1] == *other;
            if swapped {
                best = best.min(before[column - 1] + 1);
            }
            here.push(best);
        }
        before = std::mem::replace(&mut above, here);
    }
    above.last().copied().unwrap_or_default()
}

/// A text cut to a length that fits a message.
pub(crate) fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(left: &str, right: &str) -> usize {
        distance(&left.chars().collect::<Vec<_>>(), &right.chars().collect::<Vec<_>>())
    }

    #[test]
    fn distance_counts_errors() {
        assert_eq!(errors("", "abc"), 3);
        assert_eq!(errors("abc", ""), 3);
        assert_eq!(errors("minMember", "minMember"), 0);
        assert_eq!(errors("minMembers", "minMember"), 1);
        assert_eq!(errors("weihgt", "weight"), 1);
        assert_eq!(errors("kitten", "sitting"), 3);
    }

    #[test]
    fn only_what_is_close_is_suggested() {
        let known = ["minMember", "queue", "priorityClassName"];
        assert_eq!(suggest("minMembers", known), Some("minMember"));
        assert_eq!(suggest("MINMEMBER", known), Some("minMember"));
        assert_eq!(suggest("qeuue", known), Some("queue"));
        assert_eq!(suggest("replicas", known), None);
        assert_eq!(suggest("", known), None);
        assert_eq!(suggest(&"x".repeat(100_000), known), None);
    }

    #[test]
    fn problems_come_in_the_order_of_the_text() {
        let problems = Problems::default();
        let at = |line| Problem { line, column: 1, path: "a".into(), message: "is odd".into() };
        for line in [3, 1, 2] {
            problems.add(at(line));
        }
        let all = problems.into_sorted();
        assert_eq!(all.iter().map(|p| p.line).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(all[0].to_string(), "line 1, column 1: a: is odd");
    }

    #[test]
    fn too_many_problems_are_counted() {
        let problems = Problems::default();
        for line in 0..1_500 {
            problems.add(Problem { line, column: 1, path: "a".into(), message: "is odd".into() });
        }
        let all = problems.into_sorted();
        assert_eq!(all.len(), MAX_PROBLEMS + 1);
        assert_eq!(all[MAX_PROBLEMS].message, "500 more problems follow");
    }
}
