//! Traces and metrics over OTLP: off unless `[otlp]` or the usual environment variable names a collector.

use std::sync::Arc;

use oncely_doors::gateway::address::{Address, Speech};
use oncely_doors::gateway::connector;
use oncely_doors::telemetry::{Exporter, MetricsText, OtlpSettings, Telemetry, TelemetryConfig, headers};

use crate::context::{Context, variable};
use crate::exit::Failure;

/// The variables that programs with OpenTelemetry share. What `[otlp]` says counts more.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// Where traces and metrics go; nowhere if nobody says so.
pub(crate) fn configured(
    context: &Context,
    settings: OtlpSettings,
) -> Result<Option<TelemetryConfig>, Failure> {
    let bad = |message: String| Failure::usage(format!("{message}; nothing ran"));
    let from_variable = || {
        let named = variable(ENDPOINT).map(|text| text.trim().parse::<Address>());
        named.transpose().map_err(|message| bad(format!("{ENDPOINT}: {message}")))
    };
    let Some(endpoint) = settings.endpoint.map_or_else(from_variable, |address| Ok(Some(address)))? else {
        return Ok(None);
    };
    let (secret, from) = match &settings.headers {
        Some(place) => (Some(context.secret(place)?), place.said_at.as_str()),
        None => (variable(HEADERS), HEADERS),
    };
    let named = secret.map(|text| headers(&text)).transpose();
    let service = settings.service.or_else(|| variable(SERVICE)).unwrap_or_else(|| "oncely".to_owned());
    Ok(Some(TelemetryConfig {
        endpoint,
        headers: named.map_err(|message| bad(format!("{from}: {message}")))?.unwrap_or_default(),
        service,
        interval: settings.interval,
        sample: settings.sample,
    }))
}

/// What takes spans, and what sends them.
pub(crate) fn start(
    config: TelemetryConfig,
    roots: Option<&std::path::Path>,
    metrics: MetricsText,
) -> Result<(Arc<Telemetry>, Exporter), Failure> {
    let tls = (config.endpoint.speech == Speech::Tls).then(|| connector(roots)).transpose();
    let tls = tls.map_err(|e| Failure::usage(format!("{e}; nothing ran")))?;
    Ok(Telemetry::new(config, tls, metrics))
}
