//! Durations as Go and Kubernetes write them: `300ms`, `1.5s`, `1m30s`, `2h45m`.

use std::time::Duration;

use jiff::fmt::friendly::SpanParser;

/// Parses a duration: decimal numbers, each with a unit from `ns` to `h`, or `0`.
///
/// # Errors
///
/// A message for people, if the text is not a duration, is negative, or exceeds 64 bits of seconds.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let is_go = text.chars().all(|c| c == '.' || c.is_ascii_digit() || "hmsnuµμ".contains(c));
    let parsed = is_go.then(|| SpanParser::new().parse_unsigned_duration(text).ok());
    parsed.flatten().ok_or_else(|| "expected a duration such as 100ms, 1.5s or 1m30s".to_owned())
}

/// Parses a duration, or a bare number of seconds such as `90`.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_or_seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => parse(text).map_err(|error| format!("{error}, or a number of seconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_in_go() {
        for (text, millis) in [
            ("100ms", 100),
            ("1s", 1_000),
            ("1m30s", 90_000),
            ("1.5s", 1_500),
            ("2h45m", 9_900_000),
            ("1000us", 1),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_seconds_where_that_is_accepted() {
        for (text, seconds) in [("90", 90), ("0", 0), ("1m30s", 90)] {
            assert_eq!(parse_or_seconds(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "1.5", "-1", "1d"] {
            assert!(parse_or_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn anything_else_is_rejected() {
        for text in
            ["", "5", "s", "1d", "1..5s", "-1s", "1 s", "1 hour", "PT1S", "99999999999999999999h"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
