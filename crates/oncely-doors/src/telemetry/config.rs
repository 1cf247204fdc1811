//! `[otlp]` of `oncely.toml`: where traces and metrics go. Credentials are named, never written there.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use oncely::policy_file::PolicyFileError;
use oncely::policy_file::reading::{Read, Value, duration, fault, integer, text};
use toml::de::DeValue;

use crate::gateway::address::Address;
use crate::settings::{Reader, SecretSetting, member};

const FIELDS: [&str; 6] = ["endpoint", "headers_file", "headers_env", "service", "interval", "sample"];
/// Sent more often than this, more would be said of the sending than of anything else.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// What the table says.
#[derive(Debug, Clone, PartialEq)]
pub struct OtlpSettings {
    /// The collector.
    pub endpoint: Option<Address>,
    /// Where the headers for it are.
    pub headers: Option<SecretSetting>,
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

impl OtlpSettings {
    /// Reads the table of a whole configuration; what else stands in it is for others. `file_name` is what messages
    /// call it.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, PolicyFileError> {
        let (mut reader, root) = Reader::of(text, file_name);
        let mut settings = Self::default();
        if let Some(value) = member(&root, "otlp") {
            reader.fields(value, "otlp", &FIELDS, |field, value| settings.set(field, value));
            settings.headers = reader.secret(value, "otlp", ["headers_file", "headers_env"]);
        }
        reader.finish(settings)
    }

    fn set(&mut self, field: &str, value: &Value<'_>) -> Read<()> {
        match field {
            "endpoint" => {
                self.endpoint = Some(text(value)?.parse().or_else(|message| fault(value, message))?)
            }
            "service" => self.service = Some(text(value)?),
            "interval" => self.interval = interval(value)?,
            "sample" => self.sample = sample(value)?,
            // Where the headers are is read with its place.
            _ => drop(text(value)?),
        }
        Ok(())
    }
}

fn interval(value: &Value<'_>) -> Read<Duration> {
    let interval = Duration::from_millis(duration(value)?);
    if interval < INTERVAL_MIN { fault(value, "must be 100ms or longer") } else { Ok(interval) }
}

fn sample(value: &Value<'_>) -> Read<f64> {
    let number = match value.get_ref() {
        DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
        DeValue::Integer(number) => integer(number).map(|number| number as f64),
        _ => None,
    };
    match number.filter(|number| (0.0..=1.0).contains(number)) {
        Some(number) => Ok(number),
        None => fault(value, "must be a number from 0.0 to 1.0"),
    }
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
    fn the_table_is_read_and_left_out_fields_have_their_defaults() {
        assert_eq!(OtlpSettings::parse("[server]\nx = 1", "o.toml").unwrap(), OtlpSettings::default());
        let text = "[otlp]\nendpoint = \"https://collector/base\"\nheaders_env = \"H\"\ninterval = \"2s\"\nsample = 0.5\n";
        let settings = OtlpSettings::parse(text, "o.toml").unwrap();
        assert_eq!((settings.endpoint.unwrap().base.as_str(), settings.sample), ("/base", 0.5));
        assert_eq!(settings.interval.as_secs(), 2);
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
