//! gRPC through the gateway: a tonic service behind it, a tonic client in front of it, HTTP/2 on both sides.

use std::net::SocketAddr;
use std::path::Path;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity, Server, ServerTlsConfig};

use crate::gateway::{Gateway, records};
use crate::shop::{Client, PLACE_AGAIN, Shop, assert_refused, metadata};

/// Serves a shop, and says where; ends with the test.
pub(crate) async fn open(shop: &Shop, tls: Option<ServerTlsConfig>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = Server::builder();
    if let Some(tls) = tls {
        server = server.tls_config(tls).unwrap();
    }
    let serving = server.add_service(shop.clone()).serve_with_incoming(TcpIncoming::from(listener));
    (address, tokio::spawn(async move { serving.await.unwrap() }))
}

/// A gateway with a route for the one method of the shop that is guarded, and one for the others.
fn gateway(home: &Path, upstream: &str, tool: &str) -> Gateway {
    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/shop.Orders/Place\"\nupstream = \"{upstream}\"\n\
         require_key = true\ntool = \"orders\"\n[[route]]\nmatch = \"/shop.Orders/*\"\nupstream = \"{upstream}\"\n\
         methods = []\n[tool.orders]\n{tool}\n"
    );
    Gateway::start_with(home, &config)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_behind_the_gateway_is_safe_to_retry() {
    let home = tempfile::tempdir().unwrap();
    let shop = Shop::new(home.path());
    let (address, _server) = open(&shop, None).await;
    let gateway = gateway(home.path(), &format!("h2c://{address}"), "wait_for = \"0s\"");
    let client = Client::connect(gateway.address).await;
    let place = |key: &'static str, item: &'static str, act: &'static str| {
        let client = client.clone();
        async move { client.place(item, act, &[("idempotency-key", key)]).await }
    };

    let first = place("k", "tea", "").await;
    assert_eq!(metadata(&first)["idempotency-effect"], "created");
    let replay = place("k", "tea", "").await;
    assert_eq!(metadata(&replay)["idempotent-replayed"], "true");
    assert_eq!(replay.unwrap().into_inner(), first.unwrap().into_inner());
    assert_refused(&place("k", "coffee", "").await, Code::FailedPrecondition, "key_reused", "-1");
    assert_refused(&client.place("tea", "", &[]).await, Code::InvalidArgument, "key_required", "-1");
    assert_eq!(shop.placed(), 1);

    assert_eq!(place("lost", "tea", "14").await.unwrap_err().code(), Code::Unavailable);
    assert_refused(&place("lost", "tea", "14").await, Code::Unknown, "outcome_unknown", "-1");
    assert_eq!(shop.placed(), 2);
    for _ in 0..2 {
        assert_eq!(place("wrong", "tea", "3").await.unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(shop.placed(), 4);

    let held = tokio::spawn(place("held", "tea", "hold"));
    shop.wait_for(5).await;
    let meanwhile = place("held", "tea", "hold").await;
    let pushback = metadata(&meanwhile)["grpc-retry-pushback-ms"].to_str().unwrap().to_owned();
    assert!(pushback.parse::<i32>().unwrap() >= 1_000, "{pushback}");
    assert_refused(&meanwhile, Code::Aborted, "in_progress", &pushback);
    shop.go.add_permits(1);
    assert_eq!(held.await.unwrap().unwrap().into_inner().number, 5);
    assert_eq!(shop.placed(), 5);

    // A method that no route guards passes, as often as it is called.
    for number in [6, 7] {
        let passed = client.place_at(PLACE_AGAIN, "tea", "", &[("idempotency-key", "k")]).await.unwrap();
        assert_eq!(passed.into_inner().number, number);
    }
    let missing = client.place_at(PLACE_AGAIN, "tea", "5", &[]).await;
    assert_eq!(missing.unwrap_err().details(), b"\x01details\xff");
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_come_through_tls_on_both_sides() {
    let (home, tls) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
    std::fs::write(tls.path().join("cert.pem"), &cert).unwrap();
    std::fs::write(tls.path().join("key.pem"), &key).unwrap();
    let shop = Shop::new(home.path());
    let identity = ServerTlsConfig::new().identity(Identity::from_pem(&cert, &key));
    let (address, _server) = open(&shop, Some(identity)).await;
    let tls = tls.path().display();
    let config = format!(
        "[server]\nadmin = \"off\"\ntls = {{ cert = \"{tls}/cert.pem\", key = \"{tls}/key.pem\" }}\nupstream_roots = \
         \"{tls}/cert.pem\"\n[[route]]\nmatch = \"/**\"\nupstream = \"https://localhost:{}\"\n",
        address.port()
    );
    let gateway = Gateway::start_with(home.path(), &config);
    let trust = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&cert)).domain_name("localhost");
    let channel = Channel::from_shared(format!("https://{}", gateway.address)).unwrap();
    let client = Client::new(channel.tls_config(trust).unwrap().connect().await.unwrap());

    let first = client.place("tea", "", &[("idempotency-key", "k")]).await.unwrap();
    let replay = client.place("tea", "", &[("idempotency-key", "k")]).await;
    assert_eq!(metadata(&replay)["idempotent-replayed"], "true");
    assert_eq!(replay.unwrap().into_inner(), first.into_inner());
    let missing = client.place("tea", "5", &[("idempotency-key", "m")]).await;
    assert_eq!(metadata(&missing)["idempotency-outcome"], "rejected");
    let missing = missing.unwrap_err();
    assert_eq!((missing.code(), missing.message()), (Code::NotFound, "für später: 100 %"));
    assert_eq!(missing.details(), b"\x01details\xff");
    assert_eq!(shop.placed(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_killed_between_the_effect_and_its_answer_leaves_a_doubt() {
    let home = tempfile::tempdir().unwrap();
    let shop = Shop::new(home.path());
    let (address, _server) = open(&shop, None).await;
    let upstream = format!("h2c://{address}");
    let first = gateway(home.path(), &upstream, "");
    let client = Client::connect(first.address).await;
    let lost = tokio::spawn(async move { client.place("tea", "hold", &[("idempotency-key", "k")]).await });
    shop.wait_for(1).await;
    first.kill();
    lost.await.unwrap().unwrap_err();
    let second = gateway(home.path(), &upstream, "");
    let client = Client::connect(second.address).await;
    for _ in 0..2 {
        let retry = client.place("tea", "hold", &[("idempotency-key", "k")]).await;
        assert_refused(&retry, Code::Unknown, "outcome_unknown", "-1");
    }
    assert_eq!(shop.placed(), 1);
    let records = records(home.path());
    assert_eq!((records.len(), &records[0]["state"]), (1, &"in_doubt".into()), "{records:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_gives_up_cancels_nothing_and_a_service_that_does_not_answer_leaves_a_doubt() {
    let home = tempfile::tempdir().unwrap();
    let shop = Shop::new(home.path());
    let (address, _server) = open(&shop, None).await;
    let gateway = gateway(home.path(), &format!("h2c://{address}"), "");
    let client = Client::connect(gateway.address).await;
    let hasty = {
        let client = client.clone();
        tokio::spawn(async move { client.place("tea", "hold", &[("idempotency-key", "k")]).await })
    };
    shop.wait_for(1).await;
    hasty.abort();
    assert!(hasty.await.unwrap_err().is_cancelled());
    drop(client);
    // Only when the gateway has seen that the client is gone may the call end.
    tokio::task::block_in_place(|| gateway.wait_for_metric("oncely_http_connections_open", |open| open == 0));
    shop.go.add_permits(1);
    let client = Client::connect(gateway.address).await;
    let replay = client.place("tea", "hold", &[("idempotency-key", "k")]).await;
    assert_eq!(metadata(&replay)["idempotent-replayed"], "true");
    assert_eq!((replay.unwrap().into_inner().number, shop.placed()), (1, 1));

    let config = format!(
        "[server]\nadmin = \"off\"\n[[route]]\nmatch = \"/**\"\nupstream = \"h2c://{address}\"\ntimeout = \"200ms\"\n"
    );
    let impatient = Gateway::start_with(home.path(), &config);
    let client = Client::connect(impatient.address).await;
    let first = client.place("tea", "hold", &[("idempotency-key", "late")]).await;
    assert_refused(&first, Code::Unknown, "outcome_unknown", "-1");
    let retry = client.place("tea", "hold", &[("idempotency-key", "late")]).await;
    assert_refused(&retry, Code::Unknown, "outcome_unknown", "-1");
    // It was sent; whether the shop came to it before it was given up is its own affair.
    assert!(shop.placed() <= 2, "{}", shop.placed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_after_a_doubt_that_cannot_be_sent_is_still_a_doubt() {
    let home = tempfile::tempdir().unwrap();
    let shop = Shop::new(home.path());
    let (address, _server) = open(&shop, None).await;
    let harmless = "when_unknown = \"retry\"\nidempotent = true";
    let reachable = gateway(home.path(), &format!("h2c://{address}"), harmless);
    let client = Client::connect(reachable.address).await;
    let lost = client.place("tea", "14", &[("idempotency-key", "k")]).await;
    assert_eq!(metadata(&lost)["idempotency-outcome"], "unknown");
    drop(reachable);
    let unreachable = gateway(home.path(), "h2c://127.0.0.1:1", harmless);
    let client = Client::connect(unreachable.address).await;
    let retry = client.place("tea", "14", &[("idempotency-key", "k")]).await;
    assert_eq!(metadata(&retry)["idempotency-outcome"], "unknown");
    assert_refused(&retry, Code::Unknown, "outcome_unknown", "1000");
    assert_eq!(shop.placed(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_cannot_be_reached_may_be_tried_again_and_a_method_without_a_route_may_not() {
    let home = tempfile::tempdir().unwrap();
    let gateway = gateway(home.path(), "h2c://127.0.0.1:1", "");
    let client = Client::connect(gateway.address).await;
    let unreachable = client.place("tea", "", &[("idempotency-key", "k")]).await;
    assert_refused(&unreachable, Code::Unavailable, "upstream_unreachable", "1000");
    assert!(unreachable.unwrap_err().message().contains("nothing happened"));
    let elsewhere = client.place_at("/shop.Refunds/Make", "tea", "", &[("idempotency-key", "k")]).await;
    assert_refused(&elsewhere, Code::Unimplemented, "no_route", "-1");
}
