//! The service: from a request to an answer, with the engine in between. Nothing about idempotency is decided here.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http::{Request, Response};
use oncely_core::canonical::PayloadError;
use tokio::sync::oneshot;
use tower_service::Service;

use super::body::{Body, BoxError, Collected, Collecting, in_time};
use super::check;
use super::dry;
use super::effect::{self, Handed};
use super::gate::{Gate, Place};
use super::grpc;
use super::problem::{Code, Problem, Reader};
use super::reply::{self, Asked};
use super::request::{BodyForm, Head, call_of, form_of};
use super::settings::{DryRun, Settings};
use crate::answer::{Answer, Forecast};
use crate::attempt::Attempt;
use crate::call::Call;
use crate::engine::{Begun, Oncely};
use crate::error::Error;

/// How slowly a body may come, beyond the pause that any body is granted.
const SLOWEST_BYTES_PER_S: usize = 64 * 1024;

/// What a request is answered with.
pub(super) type Answered<R, E> = Result<Response<Body<R>>, E>;

/// A service behind the layer: guarded requests run once per intent.
#[derive(Clone)]
pub struct OncelyService<S> {
    pub(super) inner: S,
    pub(super) door: Arc<Door>,
}

impl<S> OncelyService<S> {
    /// The service that is guarded.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

/// What all requests share.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) oncely: Oncely,
    pub(super) settings: Arc<Settings>,
    pub(super) gate: Arc<Gate>,
}

impl<S, B, R> Service<Request<B>> for OncelyService<S>
where
    S: Service<Request<Body<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Answered<R, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled ready is the one to call.
        let spare = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, spare);
        if !self.door.settings.guards(request.method(), request.uri().path()) {
            if dry::would_be_executed(&self.door.settings, &request) {
                let detail =
                    "a request that is not guarded here has no dry run, and would be executed; nothing ran";
                let reader = Reader::of(request.headers(), self.door.settings.dialect);
                let refused = reply::problem(Problem::new(Code::BadRequest, detail), reader);
                return Box::pin(std::future::ready(Ok(refused)));
            }
            let passed = inner.call(request.map(Body::passed));
            return Box::pin(async move { Ok(passed.await?.map(Body::passed)) });
        }
        Box::pin(guard(self.door.clone(), inner, request))
    }
}

/// Guards one request.
async fn guard<S, B, R>(door: Arc<Door>, inner: S, request: Request<B>) -> Answered<R, S::Error>
where
    S: Service<Request<Body<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (mut parts, body) = request.into_parts();
    let reader = Reader::of(&parts.headers, door.settings.dialect);
    let mut head = match Head::read(&door.settings, &parts.headers) {
        Ok(head) => head,
        Err(problem) => return Ok(reply::problem(problem, reader)),
    };
    // A key that may stand in the body is missed only when the body is there.
    if door.settings.own_key.is_none()
        && let Err(problem) = head.require_key(&door.settings)
    {
        return Ok(reply::problem(problem, reader));
    }
    let Some(mut place) = door.gate.enter() else {
        let problem =
            Problem::new(Code::Overloaded, "too many calls are under way; nothing ran. Try again later");
        return Ok(reply::problem(problem, reader));
    };
    let body = match buffer(&door.settings, &parts, body, &mut place).await {
        Ok(body) => body,
        Err(problem) => return Ok(reply::problem(problem.with_key(head.key_text()), reader)),
    };
    if let Some(own_key) = &door.settings.own_key
        && let Err(problem) =
            head.adopt(own_key(&parts, &body)).and_then(|()| head.require_key(&door.settings))
    {
        return Ok(reply::problem(problem, reader));
    }
    let dry_run = dry::asks_for_dry_run(&parts.headers);
    let form = form_of(&parts.headers, &body);
    let mut call = call_of(&door.settings, &head, &parts, &body, form);
    call.probe = check::probe_of(&door.oncely, &door.settings, &call, &parts, &body);
    let asked =
        Asked { settings: door.settings.clone(), given: head.given, method: parts.method.clone(), reader };
    let name = asked.key_text().map_or(call.payload.as_slice(), str::as_bytes);
    if !place.enter_key((&call.namespace, &call.tool, name)) {
        let detail =
            "too many calls with this key are under way; nothing ran. Try again later with the same key";
        return Ok(asked.problem(Problem::new(Code::TooManyWaiters, detail)));
    }
    // A retry may come from a client that reads no compression: what is kept is plain.
    parts.headers.remove(ACCEPT_ENCODING);
    if asked.reader.grpc().is_some() {
        grpc::forget_client(&mut parts.headers);
    }
    // The body that is there says how long it is.
    parts.headers.remove(CONTENT_LENGTH);
    if dry_run {
        let request = Request::from_parts(parts, Body::whole(body));
        return Box::pin(forecast(&door, inner, request, call, asked)).await;
    }
    let begun = match begin(&door, &asked, call, form, &parts, &body).await {
        Ok(begun) => begun,
        Err(error) => return Ok(asked.error(&error)),
    };
    match begun {
        Begun::Answered(answer) => Ok(asked.answer(&answer)),
        // Large, and not part of the room of a request that is answered from memory.
        Begun::Run(attempt) => {
            let request = Request::from_parts(parts, Body::whole(body));
            Box::pin(execute(&door, inner, request, attempt, place, asked)).await
        }
    }
}

/// Runs the service in a task of its own, and waits for its answer. The place is the task's: it is taken for as long as the
/// effect runs, also when nobody waits any more.
async fn execute<S, B, R>(
    door: &Door,
    inner: S,
    mut request: Request<Body<B>>,
    attempt: Attempt,
    place: Place,
    asked: Asked,
) -> Answered<R, S::Error>
where
    S: Service<Request<Body<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (intent, number) = (attempt.info().intent(), attempt.info().number());
    let key = attempt.info().name().key.clone();
    let (hand, mut handed) = oneshot::channel();
    let (settings, speech) = (door.settings.clone(), asked.reader.grpc());
    let execution = door.oncely.execute(attempt, None, move |info| {
        request.extensions_mut().insert(info);
        effect::perform(inner, request, settings, hand, place, speech)
    });
    let mut execution = pin!(execution);
    // A stream is handed on as it comes; everything else only after its end is durable.
    tokio::select! {
        biased;
        answer = &mut handed => match answer {
            Ok(Handed::Streaming(response)) => Ok(asked.streaming(response, number, intent, &key)),
            Ok(answer) => asked.executed(Some(answer), &execution.await, &key),
            Err(_) => asked.executed(None, &execution.await, &key),
        },
        execution = &mut execution => asked.executed(handed.await.ok(), &execution, &key),
    }
}

/// Asks the engine. JSON that means more than one thing counts byte for byte.
async fn begin(
    door: &Door,
    asked: &Asked,
    mut call: Call,
    form: BodyForm,
    parts: &Parts,
    body: &Bytes,
) -> Result<Begun, Error> {
    match door.oncely.begin(&call).await {
        Err(Error::Payload(PayloadError::Malformed(_))) if form == BodyForm::Json => {
            call.payload = super::request::payload(&asked.settings, parts, body, BodyForm::Raw);
            door.oncely.begin(&call).await
        }
        begun => begun,
    }
}

/// Reads a guarded body into memory, up to the limit. Memory is set aside for what has come, not for what was announced: a
/// client that sends nothing takes nothing from others.
async fn buffer<B>(settings: &Settings, parts: &Parts, body: B, place: &mut Place) -> Result<Bytes, Problem>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let max = settings.body_max;
    let too_large = || {
        let detail =
            format!("the body of a guarded request may have {max} bytes; nothing ran. Send a smaller one");
        Problem::new(Code::BodyTooLarge, detail)
    };
    let stated = parts.headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if stated.is_some_and(|len| len > max as u64) {
        return Err(too_large());
    }
    let expected = stated.and_then(|len| usize::try_from(len).ok()).unwrap_or(max);
    let mut collected = Collected::default();
    let body = pin!(body);
    // However it drips, a body has an end.
    let patience = settings.stall + Duration::from_secs((expected / SLOWEST_BYTES_PER_S) as u64);
    let filling = collected.fill(body, max, settings.stall, |held| place.set_aside(held));
    match in_time(patience, filling).await.unwrap_or(Collecting::Stalled) {
        Collecting::Complete => {
            // In one piece: never more than was set aside.
            place.set_aside(collected.len());
            Ok(collected.take_bytes())
        }
        Collecting::TooLong => Err(too_large()),
        Collecting::NoRoom => {
            let detail = "the bodies of requests under way take too much memory; nothing ran. Try again later with the same key";
            Err(Problem::new(Code::Overloaded, detail))
        }
        Collecting::Broken(_) | Collecting::Stalled => {
            let detail = "the body of the request broke off; nothing ran. Send it again with the same key";
            Err(Problem::new(Code::BodyUnusable, detail))
        }
    }
}

/// Answers a dry run: runs nothing, writes nothing, uses up no key.
async fn forecast<S, B, R>(
    door: &Door,
    mut inner: S,
    mut request: Request<Body<B>>,
    call: Call,
    asked: Asked,
) -> Answered<R, S::Error>
where
    S: Service<Request<Body<B>>, Response = Response<R>>,
    R: http_body::Body<Data = Bytes>,
{
    match door.oncely.dry_run(&call).await {
        Err(error) => Ok(asked.error(&error)),
        Ok(Forecast::WouldRun { .. }) if asked.settings.dry_run == DryRun::PassOn => {
            dry::mark_request_dry(request.headers_mut());
            let response = inner.call(request).await?;
            Ok(dry::marked_dry(response.map(Body::passed)))
        }
        Ok(Forecast::WouldRun { attempt, .. }) => Ok(asked.would_run(attempt)),
        Ok(Forecast::WouldCheck { record }) => Ok(asked.would_check(&record)),
        Ok(Forecast::WouldAnswer(Answer::Replayed(replay))) => Ok(asked.would_replay(&replay)),
        Ok(Forecast::WouldAnswer(answer)) => Ok(dry::marked_dry(asked.answer(&answer))),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use bytes::Bytes;
    use http::Request;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use oncely_core::limits::HTTP_BUFFERED_BYTES_MAX;
    use tokio::sync::mpsc::{Sender, channel};

    use super::super::gate::Gate;
    use super::super::problem::{Code, Problem};
    use super::{Settings, buffer};

    /// A body that comes frame by frame.
    struct Frames(tokio::sync::mpsc::Receiver<Bytes>);

    impl futures_core::Stream for Frames {
        type Item = Result<Frame<Bytes>, Infallible>;

        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Self::Item>> {
            self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    fn body() -> (Sender<Bytes>, StreamBody<Frames>) {
        let (sender, frames) = channel(9);
        (sender, StreamBody::new(Frames(frames)))
    }

    #[tokio::test]
    async fn memory_is_set_aside_for_what_has_come_and_not_for_what_was_announced() {
        let gate = Arc::new(Gate::new(9, 9));
        let mut others = gate.enter().unwrap();
        assert!(others.set_aside(HTTP_BUFFERED_BYTES_MAX - 100));
        let settings = Settings::default();
        let (announced, ()) =
            Request::post("/").header("content-length", "1000000").body(()).unwrap().into_parts();
        let (_silent, nothing) = body();
        let mut place = gate.enter().unwrap();
        let mut waits = std::pin::pin!(buffer(&settings, &announced, nothing, &mut place));
        assert!(now(waits.as_mut()).await.is_none(), "it waits for its body");

        let (sender, frames) = body();
        sender.send(Bytes::from_static(&[b'x'; 50])).await.unwrap();
        drop(sender);
        let mut second = gate.enter().unwrap();
        assert_eq!(buffer(&settings, &announced, frames, &mut second).await.unwrap().len(), 50);

        // There is room for the first frame of the next one, and not for the second.
        let (sender, frames) = body();
        for _ in 0..2 {
            sender.send(Bytes::from_static(&[b'x'; 40])).await.unwrap();
        }
        let mut third = gate.enter().unwrap();
        let refused = buffer(&settings, &announced, frames, &mut third).await.unwrap_err();
        let detail = "the bodies of requests under way take too much memory; nothing ran. Try again later with the same key";
        assert_eq!(refused, Problem::new(Code::Overloaded, detail));
        drop((second, third));
        assert!(others.set_aside(HTTP_BUFFERED_BYTES_MAX), "all is given back");
    }

    /// What a future resolves to, if it is ready now.
    async fn now<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}
