//! A tonic service whose orders are safe to retry. Run: `cargo run -p oncely --features tower --example tonic_orders`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::atomic::{AtomicU32, Ordering};

use oncely::Oncely;
use oncely::tower::OncelyLayer;
use tokio::net::TcpListener;
use tonic::service::LayerExt as _;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

use generated::{Order, OrdersClient, OrdersServer, Placed};

static ORDERS: AtomicU32 = AtomicU32::new(0);

/// Places an order.
async fn place(_: Request<Order>) -> Result<Response<Placed>, Status> {
    Ok(Response::new(Placed { number: ORDERS.fetch_add(1, Ordering::Relaxed) + 1 }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // These three lines, and every call is safe to retry. Methods that only read are left out by naming the others.
    let directory = tempfile::tempdir()?;
    let oncely =
        Oncely::new(oncely_store::open(&format!("sqlite:{}/ledger.db", directory.path().display())).await?);
    let orders = OncelyLayer::new(oncely).paths(["/shop.Orders/Place"]).named_layer(OrdersServer);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = Server::builder().add_service(orders).serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(serving);

    let channel = Channel::from_shared(format!("http://{address}"))?.connect().await?;
    let mut client = OrdersClient::new(channel);
    for item in ["tea", "tea", "coffee"] {
        let mut order = Request::new(Order { item: item.to_owned() });
        order.metadata_mut().insert("idempotency-key", "order-42".parse()?);
        match client.place(order).await {
            Ok(placed) => {
                let replayed = placed.metadata().contains_key("idempotent-replayed");
                let replayed = if replayed { ", replayed" } else { "" };
                println!("{item}: order {}{replayed}", placed.get_ref().number);
            }
            Err(status) => {
                let code = status.metadata().get("idempotency-code").and_then(|code| code.to_str().ok());
                println!("{item}: {}", code.unwrap_or(status.message()));
            }
        }
    }
    println!("orders made: {}", ORDERS.load(Ordering::Relaxed));
    Ok(())
}

/// What `tonic-prost-build` makes of `service Orders { rpc Place(Order) returns (Placed); }` in `package shop`, in short.
mod generated {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use tonic::body::Body;
    use tonic::codegen::http::uri::PathAndQuery;
    use tonic::codegen::{Body as HttpBody, BoxFuture, Service, StdError, http};
    use tonic::server::NamedService;
    use tonic::transport::Channel;
    use tonic::{Request, Response, Status};
    use tonic_prost::ProstCodec;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Order {
        #[prost(string, tag = "1")]
        pub(super) item: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Placed {
        #[prost(uint32, tag = "1")]
        pub(super) number: u32,
    }

    #[derive(Clone)]
    pub(super) struct OrdersServer;

    impl NamedService for OrdersServer {
        const NAME: &'static str = "shop.Orders";
    }

    impl<B> Service<http::Request<B>> for OrdersServer
    where
        B: HttpBody + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        type Response = http::Response<Body>;
        type Error = Infallible;
        type Future = BoxFuture<Self::Response, Infallible>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<B>) -> Self::Future {
            Box::pin(async move {
                let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
                match request.uri().path() {
                    "/shop.Orders/Place" => Ok(grpc.unary(Place, request).await),
                    _ => Ok(Status::unimplemented("there is no such method").into_http()),
                }
            })
        }
    }

    struct Place;

    impl Service<Request<Order>> for Place {
        type Response = Response<Placed>;
        type Error = Status;
        type Future = BoxFuture<Self::Response, Status>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, order: Request<Order>) -> Self::Future {
            Box::pin(super::place(order))
        }
    }

    pub(super) struct OrdersClient(tonic::client::Grpc<Channel>);

    impl OrdersClient {
        pub(super) fn new(channel: Channel) -> Self {
            Self(tonic::client::Grpc::new(channel))
        }

        pub(super) async fn place(&mut self, order: Request<Order>) -> Result<Response<Placed>, Status> {
            self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static("/shop.Orders/Place");
            self.0.unary(order, path, ProstCodec::<Order, Placed>::default()).await
        }
    }
}
