//! The formats of `/metrics`: OpenMetrics, and the older text format of Prometheus.
//!
//! Prometheus prefers OpenMetrics. Other collectors read only the text format, and ask for it with
//! the header `Accept`.

use axum::http::{HeaderMap, header::ACCEPT};

/// The media type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A format of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Format {
    /// The format that a request prefers; OpenMetrics if it accepts both equally, or neither.
    pub(crate) fn preferred(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let accept = values.collect::<Vec<_>>().join(",");
        let is_text =
            quality(&accept, "text/plain") > quality(&accept, "application/openmetrics-text");
        if is_text { Self::Text } else { Self::OpenMetrics }
    }

    /// Its media type.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => OPENMETRICS,
            Self::Text => TEXT,
        }
    }

    /// Metrics in this format, from those in OpenMetrics.
    pub(crate) fn write(self, openmetrics: String) -> String {
        match self {
            Self::OpenMetrics => openmetrics,
            Self::Text => to_text(&openmetrics),
        }
    }
}

/// The weight, in thousandths, that an `Accept` header gives a media type: that of the most specific
/// range, and of several equal ones the largest. Source: RFC 9110, section 12.5.1.
fn quality(accept: &str, media_type: &str) -> u32 {
    let (main, _) = media_type.split_once('/').unwrap_or_default();
    let ranges = accept.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let range = parts.next().unwrap_or_default().to_ascii_lowercase();
        let specific = match range.strip_suffix("/*") {
            Some("*") => 0,
            Some(range) if range == main => 1,
            None if range == media_type => 2,
            Some(_) | None => return None,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
        let weight: f64 = weight.map_or(Some(1.0), |weight| weight.parse().ok())?;
        Some((specific, (weight.clamp(0.0, 1.0) * 1000.0) as u32))
    });
    ranges.max().map_or(0, |(_, weight)| weight)
}

/// Rewrites OpenMetrics to the text format: there, names in the metadata have the suffix of their
/// samples, and there are neither units nor an end mark.
fn to_text(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = "";
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            // It is written with the type, which decides the name.
            (Some("#"), Some("HELP"), Some(_), Some(words)) => help = words,
            (Some("#"), Some("TYPE"), Some(name), Some(type_)) => {
                let (suffix, type_) = match type_ {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    type_ => ("", type_),
                };
                text.push_str(&format!("# HELP {name}{suffix} {help}\n"));
                text.push_str(&format!("# TYPE {name}{suffix} {type_}\n"));
            }
            (Some("#"), ..) => {}
            _ => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::run::metrics::{Ended, Metrics};

    fn preferred(accept: &[&'static str]) -> Format {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, HeaderValue::from_static(value));
        }
        Format::preferred(&headers)
    }

    #[test]
    fn the_text_format_is_used_only_if_it_is_preferred() {
        for accept in [
            &[][..],
            &["*/*"],
            &["text/html"],
            &["text/plain;q=0.3, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.2"],
            &["text/plain, application/openmetrics-text"],
            &["text/plain;q=0, */*;q=0.1"],
            &["text/plain;q=high"],
        ] {
            assert_eq!(preferred(accept), Format::OpenMetrics, "{accept:?}");
        }
        for accept in [
            &["text/plain"][..],
            &["text/plain; version=0.0.4"],
            &["Text/Plain;version=0.0.4;q=0.5,*/*;q=0.1"],
            &["text/*"],
            &["application/openmetrics-text;q=0.2", "text/plain;q=0.4"],
            &["*/*, application/openmetrics-text;q=0"],
        ] {
            assert_eq!(preferred(accept), Format::Text, "{accept:?}");
        }
    }

    #[test]
    fn metadata_has_the_names_of_the_samples() {
        let metrics = Metrics::new();
        metrics.cycles.get_or_create(&Ended { result: "done" }).inc();
        metrics.e2e_latency.observe(3.0);
        metrics.observe_phase("fold", std::time::Duration::from_millis(1));
        let openmetrics = metrics.text();
        assert!(openmetrics.contains("# UNIT ") && openmetrics.ends_with("# EOF\n"));
        assert_eq!(Format::OpenMetrics.write(openmetrics.clone()), openmetrics);
        let text = Format::Text.write(openmetrics.clone());
        for expected in [
            "# HELP kube_batch_cycles_total Cycles by result: done, abandoned.\n\
             # TYPE kube_batch_cycles_total counter\n\
             kube_batch_cycles_total{result=\"done\"} 1\n",
            "# TYPE kube_batch_build_info gauge\nkube_batch_build_info{",
            "# TYPE kube_batch_leader gauge\nkube_batch_leader 0\n",
            "# TYPE kube_batch_cycle_phase_seconds histogram\n",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(samples(&text), samples(&openmetrics));
        // Every sample follows the type of its metric.
        let mut metric = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                rest.split(' ').next().unwrap_or_default().clone_into(&mut metric);
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap_or_default();
                let suffix = name.strip_prefix(&metric);
                assert!(
                    suffix.is_some_and(|s| ["", "_bucket", "_sum", "_count"].contains(&s)),
                    "{line} is not a sample of {metric}"
                );
            }
        }
    }
}
