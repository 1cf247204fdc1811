//! A service on hyper alone whose orders are safe to retry. Run: `cargo run -p oncely --features tower --example hyper_orders`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use oncely::Oncely;
use oncely::tower::{Body, BoxError, OncelyLayer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower::service_fn;
use tower_layer::Layer;

static ORDERS: AtomicU32 = AtomicU32::new(0);

/// Makes an order.
async fn order(request: Request<Body<Incoming>>) -> Result<Response<Full<Bytes>>, BoxError> {
    let order: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    let number = ORDERS.fetch_add(1, Ordering::Relaxed) + 1;
    let mut answer = Response::new(Full::from(json!({ "order": number, "item": order["item"] }).to_string()));
    *answer.status_mut() = StatusCode::CREATED;
    Ok(answer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // These three lines, and every POST is safe to retry.
    let directory = tempfile::tempdir()?;
    let oncely =
        Oncely::new(oncely_store::open(&format!("sqlite:{}/ledger.db", directory.path().display())).await?);
    let orders = TowerToHyperService::new(OncelyLayer::new(oncely).layer(service_fn(order)));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), orders.clone()));
        }
    });

    for item in ["tea", "tea", "coffee"] {
        let answer = send(address, "order-42", &json!({ "item": item }).to_string()).await?;
        let status = answer.split(' ').nth(1).unwrap_or("?");
        let replayed = if answer.contains("idempotent-replayed: true") { ", replayed" } else { "" };
        println!("{item}: {status}{replayed}");
    }
    println!("orders made: {}", ORDERS.load(Ordering::Relaxed));
    Ok(())
}

/// A client in a few lines.
async fn send(address: std::net::SocketAddr, key: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "POST /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-type: application/json\r\n\
         idempotency-key: {key}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
