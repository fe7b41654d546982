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

fn url<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text)] = arguments else { return mistyped() };
    let url = Url::parse(text).ok_or_else(|| {
        EvaluationError::invalid(format!(
            "URL parse error during conversion from string: \"{text}\""
        ))
    })?;
    Ok(Value::Url(url.into()))
}

fn is_url<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => Ok(Value::Bool(Url::parse(text).is_some())),
        _ => mistyped(),
    }
}

fn text<'a>(arguments: &[Value<'a>], of: fn(&Url) -> String) -> Outcome<'a> {
    match arguments {
        [Value::Url(url)] => Ok(Value::String(of(url).into())),
        _ => mistyped(),
    }
}

fn scheme<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    text(arguments, |url| url.scheme.clone())
}

fn host<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    text(arguments, |url| url.host.clone())
}

fn hostname<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    text(arguments, |url| url.hostname().to_owned())
}

fn port<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    text(arguments, |url| url.port().to_owned())
}

fn escaped_path<'a>(_: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    text(arguments, Url::escaped_path)
}

fn query<'a>(meter: &mut Meter, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::Url(url)] = arguments else { return mistyped() };
    meter.work(url.query.len())?;
    let entries: Entries<'a> = url
        .queries()
        .into_iter()
        .map(|(key, values)| (Key::String(key.into()), Value::strings(values)))
        .collect();
    Ok(Value::map(entries))
}
