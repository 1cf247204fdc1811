//! Sends one request over a connection of its own, once, and takes a limited answer.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{HeaderName, HeaderValue};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::request::Request;
use crate::Error;
use crate::limits::OUTPUT_BYTES_MAX;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// The status.
    pub(super) status: u16,
    /// The content type, in small letters.
    pub(super) content_type: String,
    /// Whether it says that it is a replay.
    pub(super) replayed: bool,
    /// The body, up to the limit.
    pub(super) body: Vec<u8>,
    /// The methods that are allowed, and the headers that a browser may send, as OPTIONS tells them.
    pub(super) allow: (String, String),
}

impl Answer {
    /// No answer came: that, too, is something that was seen.
    pub(super) fn none(why: &Error) -> Self {
        Self {
            status: 0,
            content_type: why.to_string(),
            replayed: false,
            body: Vec::new(),
            allow: (String::new(), String::new()),
        }
    }
}

/// Sends requests.
pub(super) struct Client {
    inner: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
    key_header: HeaderName,
}

impl Client {
    pub(super) fn new(timeout: Duration, key_header: &str) -> Result<Self, Error> {
        let key_header = HeaderName::from_bytes(key_header.as_bytes())
            .map_err(|_| Error::asked(format!("`{key_header}` is no name of a header; nothing was sent")))?;
        let connector = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(|e| Error::measuring(format!("the system's certificates cannot be read: {e}")))?
            .https_or_http()
            .enable_http1()
            .build();
        // One connection per request, and nothing sent twice behind our back: that would measure the client.
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .retry_canceled_requests(false)
            .build(connector);
        Ok(Self { inner, timeout, key_header })
    }

    /// Sends a request with these values of the key header.
    pub(super) async fn send(&self, request: &Request, keys: &[Vec<u8>]) -> Result<Answer, Error> {
        let mut builder = hyper::Request::builder().method(request.method.as_str()).uri(&request.target);
        for (name, value) in &request.headers {
            if !name.eq_ignore_ascii_case(self.key_header.as_str()) {
                builder = builder.header(name, value);
            }
        }
        for key in keys {
            let value = HeaderValue::from_bytes(key)
                .map_err(|e| Error::measuring(format!("a key cannot be sent in a header: {e}")))?;
            builder = builder.header(&self.key_header, value);
        }
        self.answer(builder, request.body.clone(), request).await
    }

    /// Asks what may be asked, as a browser would before sending the key.
    pub(super) async fn options(&self, request: &Request, key_header: &str) -> Result<Answer, Error> {
        let builder = hyper::Request::builder()
            .method("OPTIONS")
            .uri(&request.target)
            .header("Origin", "https://localhost")
            .header("Access-Control-Request-Method", &request.method)
            .header("Access-Control-Request-Headers", key_header);
        self.answer(builder, String::new(), request).await
    }

    async fn answer(
        &self,
        builder: hyper::http::request::Builder,
        body: String,
        request: &Request,
    ) -> Result<Answer, Error> {
        let message = builder
            .body(Full::new(Bytes::from(body)))
            .map_err(|e| Error::asked(format!("the request cannot be sent: {e}; nothing was sent")))?;
        let failed = |what: &dyn std::fmt::Display| {
            Error::measuring(format!("{} {}: {what}", request.method, request.shown_target()))
        };
        let exchange = async {
            let response = self.inner.request(message).await.map_err(|e| failed(&chain(&e)))?;
            let (head, body) = response.into_parts();
            let header = |name: &str| {
                head.headers
                    .get(name)
                    .and_then(|value| value.to_str().ok())
                    .unwrap_or_default()
                    .to_ascii_lowercase()
            };
            Ok(Answer {
                status: head.status.as_u16(),
                content_type: header("content-type"),
                replayed: header("idempotent-replayed") == "true",
                allow: (header("allow"), header("access-control-allow-headers")),
                body: limited(body).await.map_err(|e| failed(&chain(&e)))?,
            })
        };
        tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| failed(&format!("no answer within {} s", self.timeout.as_secs())))?
    }
}

async fn limited(mut body: hyper::body::Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut kept = Vec::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            kept.extend_from_slice(&data[..data.len().min(OUTPUT_BYTES_MAX - kept.len())]);
        }
    }
    Ok(kept)
}

/// An error with its causes: the outermost alone says only that something failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
