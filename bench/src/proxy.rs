//! The least that hyper can be as a reverse proxy: what a proxy on it costs that looks at nothing and remembers nothing.
//!
//! A thread for every core with a runtime of its own, and on each of them connections to the service that are used again.
//! No route, no hygiene, no limit, no patience and no count: the difference to `oncely serve` is what those cost.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::HOST;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::Result;

type Sender = SendRequest<Incoming>;

/// Connections to the service that nobody uses.
type Idle = Rc<RefCell<Vec<Sender>>>;

/// Says where it listens, and passes everything on to `to` until it is killed.
pub(crate) fn serve(to: &str) -> Result<()> {
    let to: SocketAddr = to.parse()?;
    let mut lanes = Vec::new();
    for _ in 0..std::thread::available_parallelism().map_or(1, NonZeroUsize::get) {
        let (sender, clients) = unbounded_channel();
        lanes.push(sender);
        std::thread::spawn(move || attend(clients, to));
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        for lane in lanes.iter().cycle() {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            lane.send(stream.into_std()?)?;
        }
        Ok(())
    })
}

/// Serves the connections of one lane.
fn attend(mut clients: UnboundedReceiver<std::net::TcpStream>, to: SocketAddr) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let idle = Idle::default();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        while let Some(client) = clients.recv().await {
            let client = TokioIo::new(TcpStream::from_std(client)?);
            let idle = idle.clone();
            let service = service_fn(move |request| pass(request, to, idle.clone()));
            let mut builder = http1::Builder::new();
            builder.header_read_timeout(None);
            // How a connection ends is the client's business.
            let served = builder.serve_connection(client, service);
            tokio::task::spawn_local(async move { drop(served.await) });
        }
        Ok(())
    })
}

async fn pass(mut request: Request<Incoming>, to: SocketAddr, idle: Idle) -> Result<Response<Passed>> {
    request.headers_mut().insert(HOST, to.to_string().parse()?);
    let kept = idle.borrow_mut().pop();
    let mut sender = match kept {
        Some(sender) => sender,
        None => connect(to).await?,
    };
    sender.ready().await?;
    let answer = sender.send_request(request).await?;
    Ok(answer.map(|body| Passed { body, on: Some(sender), idle }))
}

async fn connect(to: SocketAddr) -> Result<Sender> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(async move { drop(connection.await) });
    Ok(sender)
}

/// The body of an answer. Its connection is free again when it has ended.
struct Passed {
    body: Incoming,
    on: Option<Sender>,
    idle: Idle,
}

impl Body for Passed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(Some(Ok(_)) | None))
            && self.body.is_end_stream()
            && let Some(sender) = self.on.take()
        {
            self.idle.borrow_mut().push(sender);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
