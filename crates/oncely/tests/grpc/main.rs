//! gRPC through the HTTP layer: a tonic service and a tonic client, with the layer in between.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;
mod proofs;
mod random;
mod redaction;
mod refusals;
mod shop;

use oncely::Oncely;
use oncely::tower::OncelyLayer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::service::LayerExt as _;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use shop::{Client, Shop};

/// A shop behind the layer, on a port of its own; gone when dropped.
struct World {
    shop: Shop,
    client: Client,
    oncely: Oncely,
    server: JoinHandle<()>,
    directory: tempfile::TempDir,
}

impl World {
    /// With a layer that is set up like this.
    async fn new(set_up: impl FnOnce(OncelyLayer) -> OncelyLayer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let shop = Shop::new(directory.path());
        let ledger = directory.path().join("ledger.db");
        let oncely = Oncely::new(oncely_store::open(&format!("sqlite:{}", ledger.display())).await.unwrap());
        let layer = set_up(OncelyLayer::new(oncely.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Server::builder()
            .add_service(layer.named_layer(shop.clone()))
            .serve_with_incoming(TcpIncoming::from(listener));
        let server = tokio::spawn(async move { serving.await.unwrap() });
        let client = Client::connect(address).await;
        Self { shop, client, oncely, server, directory }
    }

    async fn plain() -> Self {
        Self::new(|layer| layer).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.abort();
    }
}
