//! An axum service whose orders are safe to retry. Run: `cargo run -p oncely --features tower --example axum_orders`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::atomic::{AtomicU32, Ordering};

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use oncely::tower::OncelyLayer;
use oncely::{AttemptInfo, Oncely};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

static ORDERS: AtomicU32 = AtomicU32::new(0);

/// Makes an order. The attempt has a key to pass on to a payment provider.
async fn order(
    Extension(attempt): Extension<AttemptInfo>,
    Json(order): Json<Value>,
) -> (StatusCode, Json<Value>) {
    let number = ORDERS.fetch_add(1, Ordering::Relaxed) + 1;
    let provider_key = attempt.downstream_key().to_string();
    (
        StatusCode::CREATED,
        Json(json!({ "order": number, "item": order["item"], "key_length": provider_key.len() })),
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // These three lines, and every POST is safe to retry.
    let directory = tempfile::tempdir()?;
    let oncely =
        Oncely::new(oncely_store::open(&format!("sqlite:{}/ledger.db", directory.path().display())).await?);
    let app = Router::new().route("/orders", post(order)).layer(OncelyLayer::new(oncely));

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });

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
