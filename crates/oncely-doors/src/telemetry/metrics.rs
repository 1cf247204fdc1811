//! What `/metrics` says, as OTLP has it. The text is the one description of our metrics; it is read back here, so that
//! both always say the same.

use std::collections::BTreeMap;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

use super::trace::attribute;

/// The metrics in a text of Prometheus. What is counted, is counted since `since`.
pub(super) fn metrics(text: &str, since: Duration, now: Duration) -> Vec<Metric> {
    let (mut found, mut lines) = (Vec::new(), text.lines().peekable());
    let mut help = String::new();
    while let Some(line) = lines.next() {
        if let Some(said) = line.strip_prefix("# HELP ") {
            help = said.split_once(' ').map_or("", |(_, help)| help).to_owned();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|said| said.split_once(' '))
        {
            let mut samples = Vec::new();
            while let Some(sample) = lines.next_if(|line| !line.starts_with('#')) {
                samples.extend(Sample::parse(sample));
            }
            let data = match kind {
                "counter" => Data::Sum(Sum {
                    data_points: samples.iter().map(|s| s.point(since, now)).collect(),
                    aggregation_temporality: AggregationTemporality::Cumulative.into(),
                    is_monotonic: true,
                }),
                "histogram" => Data::Histogram(Histogram {
                    data_points: histograms(name, &samples, since, now),
                    aggregation_temporality: AggregationTemporality::Cumulative.into(),
                }),
                _ => {
                    Data::Gauge(Gauge { data_points: samples.iter().map(|s| s.point(since, now)).collect() })
                }
            };
            let unit = if name.ends_with("_seconds") { "s" } else { "" };
            let metric = Metric {
                name: name.to_owned(),
                unit: unit.to_owned(),
                data: Some(data),
                ..Metric::default()
            };
            found.push(Metric { description: std::mem::take(&mut help), ..metric });
        }
    }
    found
}

/// One line: a name, labels and a value.
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (head, value) = line.rsplit_once(' ')?;
        let (name, labels) = match head.split_once('{') {
            Some((name, labels)) => (name, read_labels(labels.strip_suffix('}')?)?),
            None => (head, Vec::new()),
        };
        Some(Self { name: name.to_owned(), labels, value: value.parse().ok()? })
    }

    fn attributes(&self) -> Vec<KeyValue> {
        let labels = self.labels.iter().filter(|(name, _)| name != "le");
        labels.map(|(name, value)| attribute(name, Value::StringValue(value.clone()))).collect()
    }

    fn point(&self, since: Duration, now: Duration) -> NumberDataPoint {
        NumberDataPoint {
            attributes: self.attributes(),
            start_time_unix_nano: nanos(since),
            time_unix_nano: nanos(now),
            value: Some(Number::AsDouble(self.value)),
            ..NumberDataPoint::default()
        }
    }
}

/// `a="b",c="d"`, with `\\`, `\"` and `\n` in values.
fn read_labels(mut text: &str) -> Option<Vec<(String, String)>> {
    let mut labels = Vec::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.trim_start_matches(',').to_owned(), value));
        text = &rest[end + 1..];
    }
    Some(labels)
}

/// The points of a histogram: one for each set of labels.
fn histograms(name: &str, samples: &[Sample], since: Duration, now: Duration) -> Vec<HistogramDataPoint> {
    let mut points: BTreeMap<Vec<&(String, String)>, HistogramDataPoint> = BTreeMap::new();
    for sample in samples {
        let labels = sample.labels.iter().filter(|(name, _)| name != "le").collect();
        let point = points.entry(labels).or_insert_with(|| HistogramDataPoint {
            attributes: sample.attributes(),
            start_time_unix_nano: nanos(since),
            time_unix_nano: nanos(now),
            ..HistogramDataPoint::default()
        });
        match sample.name.strip_prefix(name) {
            Some("_sum") => point.sum = Some(sample.value),
            Some("_count") => point.count = sample.value as u64,
            Some("_bucket") => {
                // Counts of Prometheus include those of every smaller bucket.
                let below: u64 = point.bucket_counts.iter().sum();
                point.bucket_counts.push((sample.value as u64).saturating_sub(below));
                let bound =
                    sample.labels.iter().find(|(name, _)| name == "le").map(|(_, bound)| bound.as_str());
                point
                    .explicit_bounds
                    .extend(bound.filter(|b| *b != "+Inf").and_then(|b| b.parse::<f64>().ok()));
            }
            _ => {}
        }
    }
    points.into_values().collect()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use opentelemetry_proto::tonic::metrics::v1::metric::Data;

    use super::{metrics, read_labels};

    #[test]
    fn counters_gauges_and_histograms_are_read_back() {
        let text = "# HELP a Things.\n# TYPE a counter\na{tool=\"x\\\"y\"} 3\n# HELP g Now.\n# TYPE g gauge\ng 2\n\
                    # HELP h Time.\n# TYPE h histogram\nh_bucket{op=\"l\",le=\"0.1\"} 1\nh_bucket{op=\"l\",le=\"1\"} 3\n\
                    h_bucket{op=\"l\",le=\"+Inf\"} 4\nh_sum{op=\"l\"} 2.5\nh_count{op=\"l\"} 4\n";
        let found = metrics(text, Duration::from_secs(1), Duration::from_secs(2));
        assert_eq!(found.iter().map(|m| m.name.as_str()).collect::<Vec<_>>(), ["a", "g", "h"]);
        assert_eq!(found[0].description, "Things.");
        let Some(Data::Histogram(histogram)) = &found[2].data else { panic!("{found:?}") };
        let point = &histogram.data_points[0];
        assert_eq!(
            (point.bucket_counts.as_slice(), point.explicit_bounds.as_slice()),
            (&[1, 2, 1][..], &[0.1, 1.0][..])
        );
        assert_eq!((point.count, point.sum, point.attributes.len()), (4, Some(2.5), 1));
        let labels = read_labels("a=\"b\\\\\",c=\"d,e=\\\"f\\n\"").unwrap();
        assert_eq!(labels, [("a".into(), "b\\".into()), ("c".into(), "d,e=\"f\n".into())]);
        assert!(read_labels("a=\"b").is_none());
    }
}
