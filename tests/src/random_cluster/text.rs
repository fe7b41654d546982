//! Manifests as texts, to change them.

/// The part of a text between two others.
pub(super) fn between<'t>(text: &'t str, start: &str, end: &str) -> Option<&'t str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}
