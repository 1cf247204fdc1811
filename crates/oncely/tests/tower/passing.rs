//! Requests that are not guarded: they pass by, but for a dry run that the service would execute.

use http::{Method, Request};
use oncely::tower::DryRun;
use tower_layer::Layer as _;

use crate::{Counted, layer, post, send, text};

/// A POST to the guarded path, made into something else.
fn asked(
    method: Method,
    path: &str,
    header: (&'static str, &'static str),
) -> Request<http_body_util::Full<bytes::Bytes>> {
    let mut request = post(Some("k"), "{}");
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    request.headers_mut().insert(header.0, header.1.parse().unwrap());
    request
}

#[tokio::test]
async fn a_dry_run_that_would_be_executed_is_refused() {
    let counted = Counted::new(|_, _| async { Ok(text(200, "done")) });
    let service = layer().await.paths(["/orders"]).layer(counted.clone());
    let wishes = [("idempotency-dry-run", "true"), ("prefer", "dry-run")];
    for wish in wishes {
        for (method, path) in
            [(Method::PUT, "/orders"), (Method::DELETE, "/orders"), (Method::POST, "/other")]
        {
            let refused = send(&service, asked(method.clone(), path, wish)).await.unwrap();
            assert_eq!(refused.status, 400, "{method} {path} {wish:?}");
            assert!(
                refused.body.contains("bad_request") && refused.body.contains("nothing ran"),
                "{}",
                refused.body
            );
        }
        let guarded = send(&service, asked(Method::POST, "/orders", wish)).await.unwrap();
        assert_eq!(
            (guarded.status, &guarded.headers["idempotency-effect"]),
            (200, &"would_execute".parse().unwrap())
        );
    }
    assert_eq!(counted.runs(), 0);
    // Who speaks gRPC is refused in it.
    let mut call = asked(Method::POST, "/shop.Orders/Place", wishes[0]);
    call.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let refused = send(&service, call).await.unwrap();
    assert_eq!((refused.status, &refused.headers["grpc-status"]), (200, &"3".parse().unwrap()));
    assert_eq!(counted.runs(), 0);
}

#[tokio::test]
async fn what_only_reads_or_asks_for_no_dry_run_passes_and_a_service_that_knows_dry_runs_gets_them() {
    let counted = Counted::new(|_, _| async { Ok(text(200, "done")) });
    let service = layer().await.layer(counted.clone());
    for (method, wish) in [
        (Method::GET, ("idempotency-dry-run", "true")),
        (Method::PUT, ("idempotency-dry-run", "false")),
        (Method::PUT, ("prefer", "return=minimal")),
    ] {
        assert_eq!(send(&service, asked(method, "/orders", wish)).await.unwrap().body, "done");
    }
    let service = layer().await.dry_run(DryRun::PassOn).layer(counted.clone());
    let passed = send(&service, asked(Method::PUT, "/orders", ("prefer", "dry-run"))).await.unwrap();
    assert_eq!((passed.body.as_str(), counted.runs()), ("done", 4));
}
