//! Functions about URLs: Kubernetes' library `url`.

use crate::{
    error::EvaluationError,
    meter::Meter,
    overload::{Row, mistyped, one, read_first},
    url::Url,
    value::{Entries, Key, Outcome, Value},
};

pub(crate) const ROWS: &[Row] = &[
    ("url(string) -> URL", read_first, url),
    ("isURL(string) -> bool", one, is_url),
    ("getScheme(self URL) -> string", one, scheme),
    ("getHost(self URL) -> string", one, host),
    ("getHostname(self URL) -> string", one, hostname),
    ("getPort(self URL) -> string", one, port),
    ("getEscapedPath(self URL) -> string", one, escaped_path),
    ("getQuery(self URL) -> map<string, list<string>>", one, query),
];

/// A byte of a URL is read, decoded and copied: as much work as reading so many bytes.
const BYTES_FOR_EACH: usize = 8;

fn url<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = arguments else { return mistyped() };
    meter.work_on_bytes(text.len().saturating_mul(BYTES_FOR_EACH))?;
    let url = Url::parse(text).ok_or_else(|| {
        EvaluationError::invalid(format!(
            "URL parse error during conversion from string: \"{text}\""
        ))
    })?;
    Ok(Value::Url(url.into()))
}

fn is_url<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = arguments else { return mistyped() };
    meter.work_on_bytes(text.len().saturating_mul(BYTES_FOR_EACH))?;
    Ok(Value::Bool(Url::parse(text).is_some()))
}

/// A part of a URL: a copy of it.
fn text<'a>(meter: &mut Meter, arguments: &[Value<'a>], of: fn(&Url) -> &str) -> Outcome<'a> {
    let [Value::Url(url)] = arguments else { return mistyped() };
    let part = of(url);
    meter.work_on_bytes(part.len())?;
    Ok(Value::string(part))
}

fn scheme<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    text(meter, arguments, |url| &url.scheme)
}

fn host<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    text(meter, arguments, |url| &url.host)
}

fn hostname<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    text(meter, arguments, Url::hostname)
}

fn port<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    text(meter, arguments, Url::port)
}

fn escaped_path<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Url(url)] = arguments else { return mistyped() };
    meter.work_on_bytes(url.path.len().saturating_mul(BYTES_FOR_EACH))?;
    Ok(Value::String(url.escaped_path().into()))
}

fn query<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Url(url)] = arguments else { return mistyped() };
    // A pair is an entry of a map, a key, a list and a value.
    let n_pairs = url.query.split('&').count();
    meter.work(url.query.len().saturating_add(n_pairs.saturating_mul(20)))?;
    let entries: Entries<'a> = url
        .queries()
        .into_iter()
        .map(|(key, values)| (Key::String(key.into()), Value::strings(values)))
        .collect();
    Ok(Value::map(entries))
}
