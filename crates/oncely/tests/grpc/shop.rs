//! A real gRPC service and a real client, both of tonic, without generated code. What the service did is in a file.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{self, Request, Response};
use tonic::codegen::{Body as HttpBody, Bytes, Service, StdError, tokio_stream};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};
use tonic::server::NamedService;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

pub(crate) const PLACE: &str = "/shop.Orders/Place";
/// The same, for whoever leaves it unguarded.
pub(crate) const PLACE_AGAIN: &str = "/shop.Orders/PlaceAgain";
pub(crate) const WATCH: &str = "/shop.Orders/Watch";

/// What stands in some answers, and nowhere else.
pub(crate) const WRAPPING: &str = "in silver paper";

/// An order, and how it is to end: `""` well, a number with that status, `hold` when it is let go, and so on.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Order {
    #[prost(string, tag = "1")]
    pub(crate) item: String,
    #[prost(string, tag = "2")]
    pub(crate) act: String,
}

/// Which one it is.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Placed {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(string, tag = "2")]
    pub(crate) wrapping: String,
}

/// The shop: one line in its book for every order that it has placed, whatever it answered.
#[derive(Clone)]
pub(crate) struct Shop {
    book: PathBuf,
    /// Orders that are held go on when they get one of these.
    pub(crate) go: Arc<Semaphore>,
}

impl Shop {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { book: directory.join("book"), go: Arc::new(Semaphore::new(0)) }
    }

    /// How many orders it has placed.
    pub(crate) fn placed(&self) -> usize {
        std::fs::read_to_string(&self.book).map_or(0, |book| book.lines().count())
    }

    /// Waits until so many have been placed.
    pub(crate) async fn wait_for(&self, count: usize) {
        while self.placed() < count {
            tokio::task::yield_now().await;
        }
    }

    fn note(&self, item: &str) -> u64 {
        use std::io::Write as _;
        let mut book = std::fs::OpenOptions::new().create(true).append(true).open(&self.book).unwrap();
        book.write_all(format!("{item}\n").as_bytes()).unwrap();
        self.placed() as u64
    }

    async fn place(self, order: Order) -> Result<tonic::Response<Placed>, Status> {
        let number = self.note(&order.item);
        match order.act.as_str() {
            "hold" => self.go.acquire().await.unwrap().forget(),
            "panic" => panic!("boom"),
            "not-executed" => return Err(not_executed()),
            _ => {}
        }
        match order.act.parse::<i32>().map(Code::from_i32) {
            Ok(code) if code != Code::Ok => {
                let details = Bytes::from_static(b"\x01details\xff");
                let mut metadata = MetadataMap::new();
                metadata.insert("x-reason", "because".parse().unwrap());
                metadata.insert_bin("x-trace-bin", BinaryMetadataValue::from_bytes(b"\x00\xff"));
                metadata.insert("grpc-retry-pushback-ms", "7".parse().unwrap());
                Err(Status::with_details_and_metadata(code, "für später: 100 %", details, metadata))
            }
            _ => {
                let wrapping = match order.act.as_str() {
                    "large" => "x".repeat(2 << 20),
                    "wrapped" => WRAPPING.to_owned(),
                    _ => String::new(),
                };
                let mut response = tonic::Response::new(Placed { number, wrapping });
                response.metadata_mut().insert("x-till", "4".parse().unwrap());
                response.metadata_mut().insert("idempotency-effect", "created".parse().unwrap());
                Ok(response)
            }
        }
    }

    /// Three messages, and then the status that the act names: in trailers, after messages.
    fn watch(&self, order: &Order) -> Vec<Result<Placed, Status>> {
        let number = self.note(&order.item);
        let mut messages: Vec<_> =
            (0..3).map(|n| Ok(Placed { number: number * 10 + n, wrapping: WRAPPING.to_owned() })).collect();
        if order.act == "not-executed" {
            messages.push(Err(not_executed()));
        } else if let Ok(code) = order.act.parse::<i32>() {
            messages.push(Err(Status::new(Code::from_i32(code), "at the end")));
        }
        messages
    }
}

/// Says itself that nothing happened, with a code that does not prove it.
fn not_executed() -> Status {
    let mut status = Status::unavailable("no stock");
    status.metadata_mut().insert("idempotency-status", "not-executed".parse().unwrap());
    status.metadata_mut().insert("cache-control", "no-store".parse().unwrap());
    status
}

impl NamedService for Shop {
    const NAME: &'static str = "shop.Orders";
}

type Answering<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl<B> Service<Request<B>> for Shop
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering<Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shop = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Placed, Order>::default());
            if let Some(limit) = request.headers().get("x-answer-max") {
                grpc = grpc.max_encoding_message_size(limit.to_str().unwrap().parse().unwrap());
            }
            Ok(match (request.uri().path(), request.headers().get("x-page")) {
                // Something in between that answers for everybody.
                (_, Some(status)) => {
                    shop.note("page");
                    let page = Response::builder().status(status.to_str().unwrap().parse::<u16>().unwrap());
                    page.header("content-type", "text/html").body(Body::empty()).unwrap()
                }
                (PLACE | PLACE_AGAIN, _) => grpc.unary(Place(shop), request).await,
                (WATCH, _) => grpc.server_streaming(Watch(shop), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

#[derive(Clone)]
struct Place(Shop);

impl Service<tonic::Request<Order>> for Place {
    type Response = tonic::Response<Placed>;
    type Error = Status;
    type Future = Answering<tonic::Response<Placed>, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, order: tonic::Request<Order>) -> Self::Future {
        Box::pin(self.0.clone().place(order.into_inner()))
    }
}

#[derive(Clone)]
struct Watch(Shop);

impl Service<tonic::Request<Order>> for Watch {
    type Response = tonic::Response<tokio_stream::Iter<std::vec::IntoIter<Result<Placed, Status>>>>;
    type Error = Status;
    type Future = Answering<Self::Response, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, order: tonic::Request<Order>) -> Self::Future {
        let messages = self.0.watch(order.get_ref());
        Box::pin(async move { Ok(tonic::Response::new(tokio_stream::iter(messages))) })
    }
}

/// A client of the shop.
#[derive(Clone)]
pub(crate) struct Client(tonic::client::Grpc<Channel>);

impl Client {
    pub(crate) fn new(channel: Channel) -> Self {
        Self(tonic::client::Grpc::new(channel))
    }

    pub(crate) async fn connect(to: SocketAddr) -> Self {
        let channel = Channel::from_shared(format!("http://{to}")).unwrap();
        Self::new(channel.connect().await.unwrap())
    }

    /// Places an order, with this metadata.
    pub(crate) async fn place(
        &self,
        item: &str,
        act: &str,
        metadata: &[(&'static str, &str)],
    ) -> Result<tonic::Response<Placed>, Status> {
        self.place_at(PLACE, item, act, metadata).await
    }

    /// Places it somewhere else.
    pub(crate) async fn place_at(
        &self,
        path: &'static str,
        item: &str,
        act: &str,
        metadata: &[(&'static str, &str)],
    ) -> Result<tonic::Response<Placed>, Status> {
        let mut client = self.0.clone();
        client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let mut request = tonic::Request::new(Order { item: item.to_owned(), act: act.to_owned() });
        for (name, value) in metadata {
            request.metadata_mut().insert(*name, value.parse().unwrap());
        }
        let codec = ProstCodec::<Order, Placed>::default();
        client.unary(request, PathAndQuery::from_static(path), codec).await
    }
}

/// The metadata of an answer, however it ended.
pub(crate) fn metadata(answer: &Result<tonic::Response<Placed>, Status>) -> http::HeaderMap {
    match answer {
        Ok(response) => response.metadata().clone().into_headers(),
        Err(status) => status.metadata().clone().into_headers(),
    }
}

/// Asserts that an answer is a refusal of ours, and which.
#[track_caller]
pub(crate) fn assert_refused(
    answer: &Result<tonic::Response<Placed>, Status>,
    status: Code,
    code: &str,
    pushback_ms: &str,
) {
    let refused = answer.as_ref().unwrap_err();
    let said = metadata(answer);
    assert_eq!((refused.code(), said["idempotency-code"].to_str().unwrap()), (status, code), "{refused:?}");
    assert_eq!(said["grpc-retry-pushback-ms"].to_str().unwrap(), pushback_ms, "{refused:?}");
    let retryable = matches!(status, Code::Unavailable | Code::ResourceExhausted);
    assert_eq!(said["idempotency-retryable"], if retryable { "true" } else { "false" }, "{refused:?}");
    assert!(said["link"].to_str().unwrap().contains(code), "{refused:?}");
}
