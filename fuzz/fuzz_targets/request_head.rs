//! Whatever the head and body of a request: the gateway passes on what may be passed on, and the layer answers, does not
//! panic, and runs the service at most once.
//!
//! The input is read as lines: method, path, then headers as `name: value`, an empty line, and the body.
#![no_main]

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use oncely::Oncely;
use oncely::tower::{Body, OncelyLayer};
use oncely_doors::gateway::pattern::{PathPattern, read_path};
use tower_layer::Layer;
use tower_service::Service;

#[derive(Clone)]
struct Count(Arc<AtomicU32>);

impl Service<Request<Body<Full<Bytes>>>> for Count {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body<Full<Bytes>>>) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Response::new(Full::from("done"))))
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(request) = read(bytes) else { return };
    oncely_fuzz::head::passes_through(&request.clone().map(|_| ()));
    if let Ok(path) = read_path(request.uri().path()) {
        assert!(!path.split('/').any(|segment| segment == ".."));
        let _ = PathPattern::parse("/orders/*/x*y/**/z").map(|pattern| pattern.matches(&path));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let oncely = Oncely::new(oncely_store::open("memory:").await.expect("a ledger"));
        let runs = Arc::new(AtomicU32::new(0));
        let guarded = request.method() == "POST" || request.method() == "PATCH";
        let mut service = OncelyLayer::new(oncely).layer(Count(runs.clone()));
        for _ in 0..2 {
            let answer = service.call(request.clone()).await.expect("never an error");
            assert!(answer.status().as_u16() < 500, "{}", answer.status());
        }
        if guarded {
            assert!(runs.load(Ordering::Relaxed) <= 1);
        }
    });
});

fn read(bytes: &[u8]) -> Option<Request<Full<Bytes>>> {
    let mut parts = bytes.splitn(2, |byte| *byte == 0);
    let (head, body) = (parts.next()?, parts.next().unwrap_or_default());
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut request = Request::builder().method(lines.next()?).uri(lines.next()?);
    for line in lines {
        let at = line.iter().position(|byte| *byte == b':')?;
        request = request.header(&line[..at], &line[at + 1..]);
    }
    request.body(Full::from(body.to_vec())).ok()
}
