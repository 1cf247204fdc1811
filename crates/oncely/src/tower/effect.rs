//! Runs the service for one attempt: hands the answer on, and says what it proves.

use std::borrow::Cow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body::Frame;
use oncely_core::limits::RESULT_BYTES_MAX;
use oncely_core::{Doubt, DoubtCause, Failure, Outcome};
use tokio::sync::{mpsc, oneshot};
use tower_service::Service;

use super::body::{Body, BoxError, Collected, Collecting, Next, Piece, next_frame};
use super::classify::{Class, IDEMPOTENCY_EFFECT, Said, effect_of};
use super::gate::Place;
use super::grpc::{self, Speech};
use super::kept::Kept;
use super::reply::IDEMPOTENCY_OUTCOME;
use super::settings::Settings;

/// Frames of a stream on their way to the client.
const RELAYED_FRAMES: usize = 16;
/// What is kept of the body of an answer that proves nothing.
const EVIDENCE_BYTES: usize = 16 * 1024;

/// How the code of a failure begins that the service itself has told, with its status.
pub(super) const OF_THE_SERVICE: &str = "HTTP_";
/// The code of a failure before anything reached the service.
pub(super) const NOT_SENT: &str = "NOT_SENT";

/// What the effect hands to the caller who waits for it.
pub(super) enum Handed<R, E> {
    /// The whole answer.
    Whole(Response<Body<R>>),
    /// The head of an answer whose body follows while the effect goes on.
    Streaming(Response<Body<R>>),
    /// The service failed instead of answering.
    Failed(E),
    /// The answer broke off.
    Broken,
    /// The answer did not come to an end in time.
    Stalled,
}

/// Calls the service and sees its answer through to the end, whether or not the caller is still there. Until then the
/// place is taken. A call that speaks gRPC is answered in it.
pub(super) async fn perform<S, B, R>(
    mut inner: S,
    request: Request<Body<B>>,
    settings: Arc<Settings>,
    hand: oneshot::Sender<Handed<R, S::Error>>,
    mut place: Place,
    speech: Option<Speech>,
) -> Outcome
where
    S: Service<Request<Body<B>>, Response = Response<R>>,
    R: http_body::Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    let method = request.method().clone();
    let (mut parts, body) = match inner.call(request).await {
        Ok(response) => response.into_parts(),
        Err(error) => {
            // Nobody waits any more if this fails; the outcome is recorded all the same.
            let _ = hand.send(Handed::Failed(error));
            return Outcome::unknown("the service failed without an answer");
        }
    };
    if speech.is_some() {
        grpc::distrust(&mut parts);
    }
    // The request is with the service; what follows may take hours, and holds nothing of it. The place itself is kept, and
    // what is held of the answer is set aside in it.
    place.set_aside(0);
    let mut body = pin!(body);
    let mut answer = Held { place, collected: Collected::default(), is_kept: true };
    if !is_event_stream(&parts.headers) {
        match answer.fill(body.as_mut(), settings.stall).await {
            // It goes on to the client as it comes.
            Collecting::TooLong | Collecting::NoRoom => answer.is_kept = false,
            Collecting::Complete => {
                let (whole, trailers) = (answer.collected.take_bytes(), answer.collected.trailers.take());
                let outcome = outcome_of(&settings, &method, &parts, Some(&whole), trailers.clone());
                let mut response = Response::from_parts(parts, Body::with_trailers(whole, trailers));
                // The body that is there says how long it is.
                response.headers_mut().remove(CONTENT_LENGTH);
                let _ = hand.send(Handed::Whole(response));
                return outcome;
            }
            Collecting::Broken(error) => {
                let _ = hand.send(Handed::Broken);
                return broken(&parts, &error);
            }
            Collecting::Stalled => {
                let _ = hand.send(Handed::Stalled);
                return stalled(&parts, settings.stall);
            }
        }
    }
    let (sender, frames) = mpsc::channel(RELAYED_FRAMES);
    let mut head = Response::from_parts(parts.clone(), Body::relayed(frames));
    foretell(&settings, &method, &parts, head.headers_mut());
    let _ = hand.send(Handed::Streaming(head));
    let mut relay = Relay { client: Some(sender), patience: settings.stall };
    relay_rest(&mut relay, &parts, body.as_mut(), answer, &settings, &method).await
}

/// What is held of an answer while it comes, and the memory that is set aside for it.
struct Held {
    place: Place,
    collected: Collected,
    /// Whether all of it is there so far, to be remembered.
    is_kept: bool,
}

impl Held {
    async fn fill<R>(&mut self, body: Pin<&mut R>, stall: Duration) -> Collecting
    where
        R: http_body::Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let Self { place, collected, .. } = self;
        collected.fill(body, RESULT_BYTES_MAX, stall, |bytes| place.keep(bytes)).await
    }

    /// Adds what the client gets anyway; lets go of all of it when that is more than may be held.
    fn add(&mut self, data: Bytes) {
        if !self.is_kept {
            return;
        }
        self.collected.add(Frame::data(data));
        self.is_kept = self.collected.len() <= RESULT_BYTES_MAX && self.place.keep(self.collected.held());
        if !self.is_kept {
            self.collected.take_chunks();
            self.place.keep(0);
        }
    }
}

/// Says on the head of a stream what is certain by then: what will have changed if it comes to its end, and that nothing will
/// be proved if its head proves nothing. That it succeeded, or was rejected, nobody knows before its end.
fn foretell(settings: &Settings, method: &Method, parts: &Parts, headers: &mut HeaderMap) {
    headers.remove(IDEMPOTENCY_OUTCOME);
    let class = settings.rules.class(parts, Some(&[]), None, settings.dialect);
    if !settings.rules.is_settled_by_head(parts) {
        return;
    }
    match class {
        Class::Succeeded | Class::Final => {
            let effect = effect_of(class, &parts.headers, parts.status, method, &settings.policy);
            headers.insert(IDEMPOTENCY_EFFECT, HeaderValue::from_static(effect.as_str()));
        }
        Class::Unknown => {
            headers.insert(IDEMPOTENCY_OUTCOME, HeaderValue::from_static("unknown"));
        }
        Class::Rejected | Class::NotStarted => {}
    }
}

/// Passes a stream on while it comes, and keeps it where it is small enough.
async fn relay_rest<R>(
    relay: &mut Relay,
    parts: &Parts,
    mut body: Pin<&mut R>,
    mut answer: Held,
    settings: &Settings,
    method: &Method,
) -> Outcome
where
    R: http_body::Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    if !answer.is_kept {
        for chunk in answer.collected.take_chunks() {
            relay.send(Piece::Frame(Frame::data(chunk))).await;
        }
        answer.place.keep(0);
    }
    loop {
        let frame = match next_frame(body.as_mut(), settings.stall).await {
            Next::Frame(frame) => frame,
            Next::End => break,
            Next::Broken(error) => {
                let outcome = broken(parts, &error);
                relay.send(Piece::Broken(error)).await;
                return outcome;
            }
            Next::Stalled => {
                relay.send(Piece::Broken("the answer did not come to an end in time".into())).await;
                return stalled(parts, settings.stall);
            }
        };
        if answer.collected.trailers.is_some() {
            // They were the end.
            continue;
        }
        match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => answer.add(data.clone()),
            (_, Some(trailers)) => answer.collected.add(Frame::trailers(trailers.clone())),
            _ => {}
        }
        relay.send(Piece::Frame(frame)).await;
    }
    relay.send(Piece::End).await;
    let whole = answer.is_kept.then(|| answer.collected.take_bytes());
    outcome_of(settings, method, parts, whole.as_ref(), answer.collected.trailers.take())
}

/// The way to a client that may go away, or read too slowly to be waited for.
struct Relay {
    client: Option<mpsc::Sender<Piece>>,
    patience: Duration,
}

impl Relay {
    async fn send(&mut self, piece: Piece) {
        let Some(client) = &self.client else { return };
        if !matches!(tokio::time::timeout(self.patience, client.send(piece)).await, Ok(Ok(()))) {
            self.client = None;
        }
    }
}

/// The outcome that an answer stands for. Without its body (it was not held) it is remembered without a result.
fn outcome_of(
    settings: &Settings,
    method: &Method,
    parts: &Parts,
    body: Option<&Bytes>,
    trailers: Option<HeaderMap>,
) -> Outcome {
    let seen = body.map(|body| &body[..]);
    let class = settings.rules.class(parts, seen, trailers.as_ref(), settings.dialect);
    let body = body.and_then(|body| redacted(settings, &parts.headers, body));
    let keep = |body: Bytes| keep(settings, parts, body, trailers.clone());
    let end = || grpc::End::of(&parts.headers, seen, trailers.as_ref());
    let why = |default: &str| match (parts.extensions.get::<Said>().and_then(|s| s.why.clone()), end()) {
        (Some(why), _) => why,
        (None, Some(end)) => format!("the service answered {end}, which {default}"),
        (None, None) => format!("the service answered {}, which {default}", parts.status.as_u16()),
    };
    match class {
        Class::Succeeded | Class::Final => {
            let effect = effect_of(class, &parts.headers, parts.status, method, &settings.policy);
            match body {
                Some(body) => Outcome::succeeded(effect, keep(body)),
                None => Outcome::Succeeded { effect, result: None },
            }
        }
        Class::NotStarted => Outcome::not_started(NOT_SENT, why("means that nothing was begun")),
        Class::Rejected => {
            let code = match end().and_then(|end| end.name()) {
                Some(name) => format!("{}{name}", grpc::OF_GRPC),
                None => format!("{OF_THE_SERVICE}{}", parts.status.as_u16()),
            };
            let failure = Failure::new(code, why("means that nothing happened"));
            let detail = body.map(keep).filter(|kept| kept.len() <= RESULT_BYTES_MAX);
            Outcome::Rejected(match detail {
                Some(detail) => failure.with_detail(detail),
                None => failure,
            })
        }
        Class::Unknown => {
            let start = |body: Bytes| body.slice(..body.len().min(EVIDENCE_BYTES));
            let evidence = keep(body.map_or_else(Bytes::new, start));
            let doubt = Doubt::new(DoubtCause::Reported, why("does not prove that nothing happened"));
            Outcome::Unknown(doubt.with_evidence(evidence))
        }
    }
}

/// An answer as it is kept. What the rules name is gone from the body already.
fn keep(settings: &Settings, parts: &Parts, body: Bytes, trailers: Option<HeaderMap>) -> Vec<u8> {
    let headers = without_redacted(settings, &parts.headers);
    let trailers = trailers.map(|trailers| without_redacted(settings, &trailers).into_owned());
    Kept::of(parts.status, &headers, &settings.replayed, body, trailers).encode()
}

/// An answer as it is kept; nothing if it cannot be.
pub(super) fn kept_of(settings: &Settings, parts: &Parts, body: &Bytes) -> Option<Vec<u8>> {
    redacted(settings, &parts.headers, body).map(|body| keep(settings, parts, body, None))
}

/// A body without what the rules name; nothing if it cannot be read for that.
fn redacted(settings: &Settings, headers: &HeaderMap, body: &Bytes) -> Option<Bytes> {
    let rules = &settings.redaction;
    // A message of gRPC holds its fields without their names. In gRPC-Web the trailers, which are headers, are in the body too.
    let speech = grpc::speech_of(headers).filter(|_| !body.is_empty());
    let cannot_be_read = match speech {
        Some(Speech::Plain) => rules.is_about_bodies(),
        Some(Speech::Web | Speech::WebText) => !rules.is_empty(),
        None => false,
    };
    if cannot_be_read {
        return None;
    }
    if !rules.is_about_bodies() {
        return Some(body.clone());
    }
    if headers.contains_key(CONTENT_ENCODING) {
        return None;
    }
    let kind = headers.get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    match rules.body(kind.as_deref(), body)? {
        Cow::Borrowed(_) => Some(body.clone()),
        Cow::Owned(body) => Some(body.into()),
    }
}

fn without_redacted<'h>(settings: &Settings, headers: &'h HeaderMap) -> Cow<'h, HeaderMap> {
    let rules = &settings.redaction;
    if rules.is_empty() || headers.keys().all(|name| rules.keeps_header(name.as_str())) {
        return Cow::Borrowed(headers);
    }
    let kept = headers.iter().filter(|(name, _)| rules.keeps_header(name.as_str()));
    let mut left = HeaderMap::new();
    kept.for_each(|(name, value)| {
        left.append(name.clone(), value.clone());
    });
    Cow::Owned(left)
}

fn broken(parts: &Parts, error: &BoxError) -> Outcome {
    Outcome::unknown(format!(
        "the service answered {}, and the answer broke off: {error}",
        parts.status.as_u16()
    ))
}

fn stalled(parts: &Parts, stall: Duration) -> Outcome {
    let message =
        format!("the service answered {}, and then nothing for {} s", parts.status.as_u16(), stall.as_secs());
    Outcome::Unknown(Doubt::new(DoubtCause::TimedOut, message))
}

/// Events are handed on one by one; to wait for the last would be to break what they are for.
fn is_event_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

#[cfg(test)]
mod tests;
