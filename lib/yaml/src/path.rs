//! The path from a document to one of its values: `spec.containers[0].name`.

use std::fmt::Write;

/// Appends a key: `.name`, or `[example.com/name]` if the key contains a dot.
pub fn push_key(path: &mut String, key: &str) {
    let is_simple =
        !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    if is_simple && !key.bytes().all(|b| b.is_ascii_digit()) {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
    } else {
        path.push('[');
        path.push_str(key);
        path.push(']');
    }
}

/// Appends a position in a sequence: `[0]`.
pub fn push_index(path: &mut String, index: usize) {
    // Writing to a string cannot fail.
    let _ = write!(path, "[{index}]");
}

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step<'p> {
    /// `.name`.
    Key(&'p str),
    /// `[0]`, `[name]`: a position, a key, or the item of that name.
    Bracket(&'p str),
}

/// The steps of a path.
pub(crate) fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    let mut rest = path;
    std::iter::from_fn(move || {
        if let Some(inside) = rest.strip_prefix('[') {
            let end = inside.find(']').unwrap_or(inside.len());
            let step = Step::Bracket(&inside[..end]);
            rest = inside.get(end + 1..).unwrap_or_default();
            return Some(step);
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let step = Step::Key(&rest[..end]);
        rest = &rest[end..];
        Some(step)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_are_written_as_kubernetes_writes_them() {
        let mut path = String::new();
        push_key(&mut path, "spec");
        push_key(&mut path, "containers");
        push_index(&mut path, 0);
        push_key(&mut path, "limits");
        push_key(&mut path, "nvidia.com/gpu");
        assert_eq!(path, "spec.containers[0].limits[nvidia.com/gpu]");
    }

    #[test]
    fn a_written_path_is_read_back() {
        let all: Vec<_> = steps("spec.containers[0].limits[nvidia.com/gpu]").collect();
        let expected = [
            Step::Key("spec"),
            Step::Key("containers"),
            Step::Bracket("0"),
            Step::Key("limits"),
            Step::Bracket("nvidia.com/gpu"),
        ];
        assert_eq!(all, expected);
        assert_eq!(steps("").count(), 0);
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_its_end(text in ".{0,40}") {
            prop_assert!(steps(&text).count() <= 40);
        }
    }
}
