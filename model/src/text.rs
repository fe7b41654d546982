//! Texts for users and programs: how long they are at most.

use std::borrow::Cow;

/// The longest message of a condition or an event, and the longest label of a metric, in bytes.
pub const MAX_MESSAGE: usize = 1024;

/// The longest reason that a job waits for, in bytes: the message of a condition may have more words before it.
pub const MAX_REASON: usize = MAX_MESSAGE - 128;

/// A text without what is beyond this number of bytes, cut between characters.
pub fn cut(text: &str, n_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(n_bytes)]
}

/// A text of at most [`MAX_MESSAGE`] bytes, with an ellipsis if something was cut off.
pub fn shortened(text: &str) -> Cow<'_, str> {
    shortened_to(MAX_MESSAGE, text)
}

/// A reason of at most [`MAX_REASON`] bytes, with an ellipsis if something was cut off.
pub fn short_reason(text: String) -> String {
    if text.len() <= MAX_REASON { text } else { shortened_to(MAX_REASON, &text).into_owned() }
}

/// A text of at most this number of bytes, with an ellipsis if something was cut off.
fn shortened_to(n_bytes: usize, text: &str) -> Cow<'_, str> {
    const ELLIPSIS: &str = "…";
    if text.len() <= n_bytes {
        return text.into();
    }
    format!("{}{ELLIPSIS}", cut(text, n_bytes - ELLIPSIS.len())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"é".repeat(512)).len(), MAX_MESSAGE);
        let long = "é".repeat(513);
        let cut_off = shortened(&long);
        assert!(cut_off.len() <= MAX_MESSAGE && cut_off.ends_with("é…"), "{}", cut_off.len());
        assert_eq!(cut("é", 1), "");
    }
}
