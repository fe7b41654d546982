//! How much text is kept of an object.
//!
//! Names are bounded by the API server, but many other texts are not: the name of a claim in a pod, the kind of an
//! owner, most annotations, every field of a custom resource without a schema of its length. Whatever is kept of an
//! object is measured as the JSON that it would be, so a field that is added later is bounded too.
// Parity: new, see docs/parity.md#j11.

use std::{fmt, io};

use serde::Serialize;
use serde_json::{
    Serializer, Value,
    ser::{CharEscape, CompactFormatter, Formatter},
};

use super::FactError;
use crate::text::shortened;

/// The most that is kept of an object, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of one text.
    pub text: usize,
    /// In all, as JSON.
    pub total: usize,
}

impl Bounds {
    /// Of the objects of users.
    pub const USERS: Self = Self { text: 1 << 10, total: 32 << 10 };
    /// Of what may contain expressions and parameters for drivers, which the API server accepts up to 10 KiB.
    pub const WITH_PARAMETERS: Self = Self { text: 11 << 10, total: 128 << 10 };
    /// Of what only administrators, nodes and drivers write: more than the API server accepts in practice.
    pub const ADMINISTRATORS: Self = Self { text: 11 << 10, total: 2 << 20 };

    /// Why an object is not read: what is kept of it is above the bounds. `object` has the fields as its author knows
    /// them.
    pub fn excess(self, kept: &impl Serialize, object: &impl Serialize) -> Option<Oversize> {
        let (mut texts, mut bytes) = (Texts::default(), Bytes::default());
        let mut measure = Serializer::with_formatter(&mut bytes, &mut texts);
        kept.serialize(&mut measure).expect("facts are JSON");
        let Texts { longest, .. } = texts;
        if longest > self.text {
            let (field, n_bytes) = field_with_longest_text(kept, object).unzip();
            // What is kept may be longer than the field: a name with its namespace.
            let n_bytes = n_bytes.filter(|n_bytes| *n_bytes > self.text).unwrap_or(longest);
            let found = format!("a text of {n_bytes} bytes");
            return Some(Oversize { field, found, most: self.text });
        }
        let (Bytes(found), most) = (bytes, self.total);
        let found_bytes = || format!("{found} bytes in fields that are read");
        (found > most).then(|| Oversize { field: None, found: found_bytes(), most })
    }
}

/// What is too large in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oversize {
    /// The path of the field; `None` if it is not one field.
    pub field: Option<String>,
    /// What was found, as in `the pod has a text of 2000 bytes`.
    pub found: String,
    /// How many bytes are allowed.
    pub most: usize,
}

impl fmt::Display for Oversize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.found)?;
        if let Some(field) = &self.field {
            write!(f, " in {field}")?;
        }
        write!(f, ", kube-batch reads at most {}", self.most)
    }
}

impl Oversize {
    /// The error of an object, named by its kind and key.
    pub fn into_error(self, object: impl fmt::Display) -> FactError {
        let Self { field, found, most } = self;
        let problem = format!("has {found}, kube-batch reads at most {most}");
        FactError::new(
            object,
            field.unwrap_or_else(|| "metadata, spec and status".to_owned()),
            problem,
        )
    }
}

/// What is kept may have a namespace and a separator before the text, in bytes.
const MAX_NAMESPACE: usize = 63 + 1;

/// Measures texts on their way to a writer.
#[derive(Debug, Default)]
struct Texts {
    current: usize,
    longest: usize,
}

impl Formatter for &mut Texts {
    fn begin_string<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.current = 0;
        CompactFormatter.begin_string(writer)
    }

    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        self.current += fragment.len();
        CompactFormatter.write_string_fragment(writer, fragment)
    }

    fn write_char_escape<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        self.current += 1;
        CompactFormatter.write_char_escape(writer, escape)
    }

    fn end_string<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.longest = self.longest.max(self.current);
        CompactFormatter.end_string(writer)
    }
}

/// Counts bytes.
#[derive(Debug, Default)]
struct Bytes(usize);

impl io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The path of the field from which the longest of the texts comes that are kept, and its length in bytes.
fn field_with_longest_text(
    kept: &impl Serialize,
    object: &impl Serialize,
) -> Option<(String, usize)> {
    let (kept, object) = (serde_json::to_value(kept).ok()?, serde_json::to_value(object).ok()?);
    let mut longest = String::new();
    each_text(&kept, "", &mut |_, text| {
        if text.len() > longest.len() {
            text.clone_into(&mut longest);
        }
    });
    let mut found: Option<(String, usize)> = None;
    each_text(&object, "", &mut |path, text| {
        let is_longer = found.as_ref().is_none_or(|(_, n_bytes)| text.len() > *n_bytes);
        // Only for texts of about its length, so that an object with very many takes no longer to search than to read.
        let is_alike = text.len() + MAX_NAMESPACE >= longest.len();
        if is_longer && is_alike && (text.contains(&*longest) || longest.contains(text)) {
            found = Some((path.to_owned(), text.len()));
        }
    });
    found
}

/// Calls `visit` with every text in a value, keys too, and its path.
fn each_text(value: &Value, path: &str, visit: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => visit(path, text),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                each_text(item, &format!("{path}[{at}]"), visit);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                visit(path, key);
                let dot = if path.is_empty() { "" } else { "." };
                each_text(value, &format!("{path}{dot}{}", shortened(key)), visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_is_measured_and_named_as_in_the_object() {
        let bounds = Bounds { text: 10, total: 100 };
        let kept = |text: &str, n: usize| json!({"claims": vec![text; n]});
        let object = json!({"args": ["x".repeat(99)], "spec": {"volumes": [{"claimName": "y\"".repeat(6)}]}});
        assert_eq!(bounds.excess(&kept("y\"y\"y\"y\"y\"", 1), &object), None);
        let long = bounds.excess(&kept(&format!("ns/{}", "y\"".repeat(6)), 1), &object);
        let long = long.expect("too long");
        assert_eq!(
            long.to_string(),
            "a text of 12 bytes in spec.volumes[0].claimName, kube-batch reads at most 10"
        );
        assert_eq!(bounds.excess(&kept("12345", 10), &object), None);
        let large = bounds.excess(&kept("12345", 12), &object).expect("too large");
        assert_eq!(
            large.to_string(),
            "108 bytes in fields that are read, kube-batch reads at most 100"
        );
    }
}
