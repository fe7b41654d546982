//! URLs, on the rules of Go's `net/url`.
//!
//! Go keeps a URL as it was written, where the standard of browsers would change case, ports and
//! dots; so this is a parser of its own.

use std::collections::BTreeMap;

/// The parts of a URL, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) fragment: String,
}

impl Url {
    /// Parses an absolute URL or an absolute path, as `url.ParseRequestURI`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.bytes().any(|b| b < b' ' || b == 0x7f) {
            return None;
        }
        let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
        let (scheme, rest) = split_scheme(whole)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            query: query.to_owned(),
            fragment: fragment.to_owned(),
            ..Self::default()
        };
        if !rest.starts_with('/') {
            return (!scheme.is_empty() || rest == "*").then_some(url);
        }
        let path = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                url.set_authority(authority)?;
                path
            }
            _ => rest,
        };
        unescaped(path)?;
        path.clone_into(&mut url.path);
        Some(url)
    }

    pub(crate) fn set_authority(&mut self, authority: &str) -> Option<()> {
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let is_valid_user = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
        unescaped(user)?;
        (user.bytes().all(is_valid_user) && is_valid_host(host)).then_some(())?;
        user.clone_into(&mut self.user);
        host.clone_into(&mut self.host);
        Some(())
    }

    /// The bytes of all parts.
    pub(crate) fn len(&self) -> usize {
        let parts = [&self.scheme, &self.user, &self.host, &self.path, &self.query, &self.fragment];
        parts.into_iter().map(String::len).sum()
    }

    pub(crate) fn hostname(&self) -> &str {
        if let Some((inner, _)) = self.host.split_once(']') {
            return inner.trim_start_matches('[');
        }
        self.host.split_once(':').map_or(&self.host, |(name, _)| name)
    }

    pub(crate) fn port(&self) -> &str {
        let after_bracket = self.host.rsplit_once(']').map_or(&*self.host, |(_, rest)| rest);
        after_bracket.split_once(':').map_or("", |(_, port)| port)
    }

    pub(crate) fn escaped_path(&self) -> String {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b);
        if self.path.bytes().all(|b| is_plain(b) || b"!'()*[]%".contains(&b)) {
            return self.path.clone();
        }
        let bytes = unescaped(&self.path).unwrap_or_default();
        let mut escaped = String::with_capacity(bytes.len());
        for byte in bytes {
            if is_plain(byte) {
                escaped.push(char::from(byte));
            } else {
                let digit = |digit: u8| char::from(b"0123456789ABCDEF"[usize::from(digit)]);
                escaped.extend(['%', digit(byte >> 4), digit(byte & 15)]);
            }
        }
        escaped
    }

    pub(crate) fn queries(&self) -> BTreeMap<String, Vec<String>> {
        let mut queries = BTreeMap::<String, Vec<String>>::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| {
                let bytes = unescaped(&text.replace('+', " "))?;
                Some(String::from_utf8_lossy(&bytes).into_owned())
            };
            if let (Some(key), Some(value)) = (decoded(key), decoded(value)) {
                queries.entry(key).or_default().push(value);
            }
        }
        queries
    }
}

/// The scheme, or none, and what follows. `None` if there is a colon but nothing before it.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at > 0 => return Some((&text[..at], &text[at + 1..])),
            b':' => return None,
            _ => break,
        }
    }
    Some(("", text))
}

fn is_valid_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(inner) => match inner.rsplit_once(']') {
            Some((address, port)) => (address, port),
            None => return false,
        },
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let is_port = |port: &str| {
        port.is_empty()
            || port
                .strip_prefix(':')
                .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_valid =
        |b: u8| b.is_ascii_alphanumeric() || b >= 0x80 || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&b);
    let percents_are_escapes = name.match_indices('%').all(|(at, _)| {
        let code = name.get(at + 1..at + 3).and_then(|code| u8::from_str_radix(code, 16).ok());
        code.is_some_and(|code| code >= 0x80 || code == 0x25)
    });
    is_port(port) && name.bytes().all(is_valid) && percents_are_escapes
}

/// The bytes of a text with `%XX` resolved.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &after[2..];
    }
    Some(bytes)
}
