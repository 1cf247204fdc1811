//! `[otlp]` of `oncely.toml`: where traces and metrics go. Credentials are named, never written there.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use oncely::policy_file::parse_duration;
use serde::Deserialize;

use crate::admin::Secret;
use crate::gateway::address::Address;

/// What the table says.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpSettings {
    /// The collector.
    pub endpoint: Option<Address>,
    /// Where the headers for it are.
    pub headers: Option<Secret>,
    /// The name of this service.
    pub service: Option<String>,
    /// How often something is sent.
    pub interval: Duration,
    /// The share of traces that begin here and are recorded.
    pub sample: f64,
}

impl Default for OtlpSettings {
    fn default() -> Self {
        Self { endpoint: None, headers: None, service: None, interval: Duration::from_secs(10), sample: 1.0 }
    }
}

#[derive(Deserialize)]
struct Written {
    otlp: Option<Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    endpoint: Option<String>,
    headers_file: Option<PathBuf>,
    headers_env: Option<String>,
    service: Option<String>,
    interval: Option<String>,
    sample: Option<f64>,
}

/// What is wrong and where, without the line itself: it may hold what should not be there.
fn shown(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| text.get(..span.start).unwrap_or_default().lines().count().max(1));
    let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
    format!("{place}{}", error.message())
}

impl OtlpSettings {
    /// Reads the table of a whole configuration; what else stands in it is for others.
    pub fn parse(text: &str) -> Result<Self, String> {
        let written: Written = toml::from_str(text).map_err(|error| shown(text, &error))?;
        let mut settings = Self::default();
        let Some(table) = written.otlp else { return Ok(settings) };
        let place = |field: &str, message: String| format!("otlp.{field}: {message}");
        settings.endpoint = table.endpoint.map(|text| endpoint(&text)).transpose()?;
        settings.headers = match (table.headers_file, table.headers_env) {
            (Some(_), Some(_)) => {
                return Err(place(
                    "headers_file",
                    "say where they are once: headers_file or headers_env".into(),
                ));
            }
            (Some(file), None) => Some(Secret::File(file)),
            (None, name) => name.map(Secret::Environment),
        };
        settings.service = table.service;
        if let Some(text) = table.interval {
            let ms = parse_duration(&text).map_err(|message| place("interval", message))?;
            settings.interval = Duration::from_millis(ms);
        }
        if settings.interval < Duration::from_millis(100) {
            return Err(place("interval", "must be 100ms or longer".into()));
        }
        settings.sample = table.sample.unwrap_or(settings.sample);
        if !(0.0..=1.0).contains(&settings.sample) {
            return Err(place("sample", "must be between 0.0 and 1.0".into()));
        }
        Ok(settings)
    }
}

/// The address of a collector.
pub fn endpoint(text: &str) -> Result<Address, String> {
    text.parse::<Address>().map_err(|message| format!("otlp.endpoint: {message}"))
}

/// Headers as `name=value`, one in a line or parted by commas. What is wrong is said without the values.
pub fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let pairs = text.split([',', '\n']).map(str::trim).filter(|pair| !pair.is_empty());
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        Some((name.trim().parse::<HeaderName>().ok()?, value))
    };
    pairs.enumerate().map(|(at, pair)| header(pair).ok_or_else(|| bad_header(at))).collect()
}

fn bad_header(at: usize) -> String {
    format!("the headers for the collector: number {} is not of the form name=value", at + 1)
}

#[cfg(test)]
mod tests {
    use super::{OtlpSettings, headers};

    #[test]
    fn the_table_is_read_and_wrong_ones_are_named() {
        assert_eq!(OtlpSettings::parse("[server]\nx = 1").unwrap(), OtlpSettings::default());
        let text = "[otlp]\nendpoint = \"https://collector/base\"\nheaders_env = \"H\"\ninterval = \"2s\"\nsample = 0.5\n";
        let settings = OtlpSettings::parse(text).unwrap();
        assert_eq!((settings.endpoint.unwrap().base.as_str(), settings.sample), ("/base", 0.5));
        for (text, part) in [
            ("[otlp]\nendpoint = \"collector:4318\"", "otlp.endpoint"),
            ("[otlp]\ninterval = \"soon\"", "otlp.interval"),
            ("[otlp]\ninterval = \"1ms\"", "otlp.interval"),
            ("[otlp]\nsample = 2.0", "otlp.sample"),
            ("[otlp]\nheaders_env = \"A\"\nheaders_file = \"b\"", "headers_file"),
            ("[otlp]\nheaders = \"a=b\"", "headers"),
        ] {
            let error = OtlpSettings::parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("a=b"), "a line of the file may hold a secret: {error}");
        }
    }

    #[test]
    fn headers_are_read_and_their_values_are_never_shown() {
        let read = headers("authorization=Bearer secret=1, x-tenant = a\nx-b=c\n").unwrap();
        assert_eq!(read[0].1, "Bearer secret=1");
        assert_eq!(read.len(), 3);
        assert!(!format!("{read:?}").contains("secret"));
        let error = headers("a=b,very secret").unwrap_err();
        assert!(error.contains("number 2") && !error.contains("secret"), "{error}");
    }
}
