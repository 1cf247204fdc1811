//! Clients that connect: the listener, and who may connect at all.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{HOST, ORIGIN};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use oncely_core::limits::MCP_CONNECTIONS_MAX;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::body::{AnyResponse, plain};
use super::tenant::Tenant;
use crate::mcp::link::Boxed;

/// How long a client may take to say what it wants.
const HEADER_PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries when no connection can be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long a client may be gone before that is noticed.
const SILENCE: Duration = Duration::from_secs(120);

/// What answers requests.
pub(in crate::mcp) trait Backend: Send + Sync + 'static {
    /// Answers one.
    fn answer(self: Arc<Self>, request: Request<Incoming>) -> Boxed<'static, AnyResponse>;
}

/// Who may connect.
#[derive(Debug, Clone, Default)]
pub struct Doorkeeper {
    /// Origins of web pages that may, besides those of this machine.
    pub origins: Vec<String>,
    /// Names that a client may know us by, besides those of this machine.
    pub hosts: Vec<String>,
    /// Whether clients of other machines may connect.
    pub reach: Reach,
    /// What tells callers apart.
    pub tenant: Tenant,
}

/// Whether clients of other machines may connect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reach {
    /// Only this machine: a name that is not this machine's is a web page's trick.
    #[default]
    Local,
    /// All.
    Everybody,
}

impl Doorkeeper {
    /// Why a request is not let in.
    fn objection(&self, headers: &HeaderMap) -> Option<&'static str> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?").to_owned());
        if let Some(origin) = text(ORIGIN) {
            let host = origin.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
            let is_ours = host.is_some_and(|host| is_this_machine(&host)) || self.origins.contains(&origin);
            if !is_ours {
                return Some("this origin may not connect (allow it with --allow-origin)");
            }
        }
        let host = text(HOST).and_then(|host| host.parse::<Uri>().ok()?.host().map(str::to_owned));
        let is_ours = host.is_some_and(|host| is_this_machine(&host) || self.hosts.contains(&host));
        if self.reach == Reach::Local && !is_ours {
            return Some("this name is not that of this machine (allow it with --allow-host)");
        }
        None
    }
}

fn is_this_machine(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Has the system ask clients that are silent whether they are still there.
fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE / 4)?;
    sockopt::set_tcp_keepintvl(stream, SILENCE / 4)?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

/// A place where clients can connect.
pub struct Listening {
    listener: TcpListener,
    /// Where it is.
    pub address: SocketAddr,
}

impl Listening {
    /// Opens an address.
    pub async fn at(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Takes clients in until `stop` is over.
    pub(in crate::mcp) async fn serve(
        self,
        backend: Arc<dyn Backend>,
        keeper: Doorkeeper,
        stop: impl Future<Output = ()>,
    ) {
        let keeper = Arc::new(keeper);
        let mut stop = std::pin::pin!(stop);
        let places = Arc::new(Semaphore::new(MCP_CONNECTIONS_MAX));
        loop {
            let accepted = async {
                // None is taken in until one ends; the system keeps those who come.
                let place = places.clone().acquire_owned().await;
                (place, self.listener.accept().await)
            };
            let (place, stream) = tokio::select! {
                biased;
                () = &mut stop => return,
                accepted = accepted => accepted,
            };
            let Ok((stream, _)) = stream else {
                // Out of descriptors, most likely: others have to end first.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // Small answers must not wait for more; an error here is the connection's end, seen below.
            let _ = stream.set_nodelay(true);
            // A client that is gone without a word must not keep its place for ever.
            let _ = keep_alive(&stream);
            let (backend, keeper) = (backend.clone(), keeper.clone());
            tokio::spawn(async move {
                let _place = place;
                let service = service_fn(move |request: Request<Incoming>| {
                    let (backend, keeper) = (backend.clone(), keeper.clone());
                    async move {
                        if let Some(objection) = keeper.objection(request.headers()) {
                            return Ok::<_, std::convert::Infallible>(plain(
                                StatusCode::FORBIDDEN,
                                objection,
                            ));
                        }
                        Ok(backend.answer(request).await)
                    }
                });
                // A connection that breaks is the client's business.
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_PATIENCE)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Doorkeeper, Reach};
    use hyper::HeaderMap;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_web_page_of_another_host_is_kept_out() {
        let keeper = Doorkeeper { origins: vec!["https://app.example".into()], ..Doorkeeper::default() };
        let lets_in = |pairs: &[(&'static str, &str)]| keeper.objection(&headers(pairs)).is_none();
        assert!(lets_in(&[("host", "127.0.0.1:7400")]));
        assert!(lets_in(&[("host", "localhost:7400"), ("origin", "http://localhost:3000")]));
        assert!(lets_in(&[("host", "[::1]:7400"), ("origin", "http://[::1]:3000")]));
        assert!(lets_in(&[("host", "localhost"), ("origin", "https://app.example")]));
        assert!(!lets_in(&[("host", "localhost"), ("origin", "https://evil.example")]));
        assert!(!lets_in(&[("host", "localhost"), ("origin", "null")]));
        assert!(!lets_in(&[("host", "rebound.example")]));
        assert!(!lets_in(&[]));
        let open = Doorkeeper { reach: Reach::Everybody, ..Doorkeeper::default() };
        assert!(open.objection(&headers(&[("host", "mcp.example")])).is_none());
    }
}
