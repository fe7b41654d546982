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
    if text.len() > MAX_SUGGESTED {
        return None;
    }
    let lower = text.to_lowercase();
    let candidates = known.into_iter().filter_map(|candidate| {
        let other = candidate.to_lowercase();
        let slips = strsim::osa_distance(&lower, &other);
        let n_letters = lower.chars().count().max(other.chars().count());
        (slips <= n_letters / 3).then_some((slips, candidate))
    });
    candidates.min_by_key(|(slips, _)| *slips).map(|(_, candidate)| candidate)
}

/// Words of more bytes are not searched; the cost is quadratic in the length.
const MAX_SUGGESTED: usize = 64;

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
