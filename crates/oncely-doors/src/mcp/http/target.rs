//! A server at an address.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, HeaderName, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::query;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept: less than servers do, so that no request meets one that is being closed.
const IDLE: Duration = Duration::from_secs(2);
/// How long a server may be gone without a word before that is noticed.
const SILENCE: Duration = Duration::from_secs(120);
/// How often in that time it is asked whether it is still there.
const QUESTIONS: u32 = 4;

/// A server at an address.
#[derive(Clone)]
pub struct Target {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    uri: Uri,
    /// What is said with every request.
    headers: HeaderMap,
}

/// A request that got no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoReply {
    /// It certainly did not reach the server; why.
    NotSent(String),
    /// It may have; why.
    Lost(String),
}

/// For whoever waits for the reply to a request that is not guarded.
impl fmt::Display for NoReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => write!(f, "nothing ran: {why}"),
            Self::Lost(why) => write!(f, "{why}; the request may have reached the server"),
        }
    }
}

impl Target {
    /// A server at an address, with headers that are said with every request.
    pub fn new(url: &str, headers: &[String]) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|e| format!("{url:?} is no address: {e}"))?;
        let scheme = uri.scheme_str().unwrap_or_default();
        if !["http", "https"].contains(&scheme) || uri.host().is_none() {
            return Err(format!(
                "{url:?} is no address; it starts with https:// or http:// and names a host"
            ));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("the address holds a user or password; use --header for credentials".to_owned());
        }
        let mut said = HeaderMap::new();
        for header in headers {
            let (name, value) = read_header(header)?;
            said.append(name, value);
        }
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        // Else a call would be running for ever whose server has vanished, and none like it could begin.
        connector.set_keepalive(Some(SILENCE / QUESTIONS));
        connector.set_keepalive_interval(Some(SILENCE / QUESTIONS));
        connector.set_keepalive_retries(Some(QUESTIONS - 1));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(SILENCE));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(|e| format!("the system's certificates cannot be read: {e}"))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Self { client, uri, headers: said })
    }

    /// The same server, asked with a query of a client besides that of its address, which the client cannot change.
    pub(super) fn with_query(&self, query: &str) -> Result<Self, String> {
        let own: Vec<_> = query::parameters(self.uri.query().unwrap_or_default()).collect();
        let names: Vec<_> = own.iter().map(|one| one.plain_name()).collect();
        for added in query::parameters(query).filter(|added| !own.is_empty() && !own.contains(added)) {
            // A name of our own that cannot be decided is like any other: nobody can tell.
            let why = match added.plain_name() {
                Some(name) if !names.iter().any(|own| own.as_ref().is_none_or(|own| *own == name)) => {
                    continue;
                }
                Some(_) => "is set by the proxy's own address",
                None => "can be read in several ways, and the proxy's own address sets parameters",
            };
            return Err(format!("the parameter {:?} {why}", added.name));
        }
        let query = match self.uri.query() {
            Some(own) if own == query => own.to_owned(),
            Some(own) => format!("{own}&{query}"),
            None => query.to_owned(),
        };
        let mut parts = self.uri.clone().into_parts();
        let path = format!("{}?{query}", self.uri.path());
        parts.path_and_query = Some(path.parse().map_err(|e| format!("the query cannot be passed on: {e}"))?);
        let uri = Uri::from_parts(parts).map_err(|e| format!("the query cannot be passed on: {e}"))?;
        Ok(Self { uri, ..self.clone() })
    }

    /// The address.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Sends a request to the server's own path.
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, NoReply> {
        let path = self.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        let mut all = headers;
        for name in self.headers.keys() {
            all.remove(name);
        }
        for (name, value) in &self.headers {
            all.append(name, value.clone());
        }
        // We have to read what is answered: results, and that the tools have changed.
        all.remove(ACCEPT_ENCODING);
        self.send_to(method, path, all, body).await
    }

    /// Sends a request to another path of the same host, without the headers that are meant for the server.
    pub async fn send_to(
        &self,
        method: Method,
        path: PathAndQuery,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, NoReply> {
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(path);
        let uri = Uri::from_parts(parts).map_err(|e| NoReply::NotSent(e.to_string()))?;
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .body(Full::new(body))
            .map_err(|e| NoReply::NotSent(e.to_string()))?;
        *request.headers_mut() = headers;
        self.client.request(request).await.map_err(|error| {
            match error.source().filter(|_| error.is_connect()) {
                Some(cause) => NoReply::NotSent(format!(
                    "{} cannot be reached: {}. See that the server is up and that --url is its address, then call again",
                    self.authority(),
                    chain(cause)
                )),
                None if error.is_connect() => NoReply::NotSent(format!("{}: {error}", self.authority())),
                None => NoReply::Lost(format!("{}: {}", self.authority(), chain(&error))),
            }
        })
    }

    /// The host and its port, for people.
    fn authority(&self) -> &str {
        self.uri.authority().map(Authority::as_str).unwrap_or_default()
    }

    /// The host, for people.
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }
}

/// Reads `Name: value`.
fn read_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    // The value may be a secret, so it is not repeated.
    let bad = || "--header needs \"Name: value\" in visible ASCII characters".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(bad)?;
    let name: HeaderName = name.trim().parse().map_err(|_| bad())?;
    let mut value: HeaderValue = value.trim().parse().map_err(|_| bad())?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Target;
    use bytes::Bytes;
    use hyper::Method;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_server_that_says_nothing_is_asked_whether_it_is_still_there() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::new(&format!("http://{}/mcp", listener.local_addr().unwrap()), &[]).unwrap();
        let call = async move {
            target.send(Method::POST, hyper::HeaderMap::new(), Bytes::from_static(b"{}")).await
        };
        let call = tokio::spawn(call);
        let (_silent, client) = listener.accept().await.unwrap();
        // Both, for an earlier connection from the same port may still be listed.
        let [from, to] =
            [client, listener.local_addr().unwrap()].map(|address| format!(":{:04X}", address.port()));
        // Once what it was sent has arrived, its end of the connection has a timer of this kind, and without questions none.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        loop {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let fields = |line: &str| line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let timers: Vec<String> = (table.lines().map(fields))
                .filter(|fields| fields[1].ends_with(&from) && fields[2].ends_with(&to))
                .map(|fields| fields[5].clone())
                .collect();
            if timers.len() == 1 && timers[0].starts_with("02:") {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{timers:?}");
            tokio::task::yield_now().await;
        }
        call.abort();
    }

    #[tokio::test]
    async fn a_server_is_not_asked_to_compress_what_we_have_to_read() {
        use tokio::io::AsyncReadExt;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let target = Target::new(&url, &["Accept-Encoding: br".to_owned()]).unwrap();
        let headers = [("accept-encoding", "gzip"), ("x-other", "1")];
        let headers =
            headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        tokio::spawn(async move { target.send(Method::GET, headers, Bytes::new()).await });
        let (mut client, _) = listener.accept().await.unwrap();
        let mut asked = String::new();
        while !asked.ends_with("\r\n\r\n") {
            asked.push(char::from(client.read_u8().await.unwrap()));
        }
        assert!(asked.contains("x-other: 1") && !asked.contains("accept-encoding"), "{asked}");
    }

    #[test]
    fn a_query_of_a_client_comes_after_that_of_the_address() {
        let asked = |url: &str, query: &str| {
            Target::new(url, &[])
                .unwrap()
                .with_query(query)
                .unwrap()
                .uri()
                .path_and_query()
                .unwrap()
                .to_string()
        };
        assert_eq!(asked("http://h/mcp", "a=1"), "/mcp?a=1");
        assert_eq!(asked("http://h/mcp?key=k", "a=1"), "/mcp?key=k&a=1");
        assert_eq!(asked("http://h/mcp?key=k", "key=k"), "/mcp?key=k");
        let own = Target::new("http://h/mcp?project=a&key=k", &[]).unwrap();
        assert!(own.with_query("x=1&project=b").is_err_and(|why| why.contains("project")));
        assert!(own.with_query("x=1&key=k").is_ok());
        for query in [
            "%70roject=b",
            "x=1&PROJECT=b",
            "project[]=b",
            "x=1;project=b",
            "%2570roject=b",
            "+key=b",
            "%zz=1",
        ] {
            assert!(own.with_query(query).is_err(), "{query}");
        }
        // Nothing is set that a client could change.
        assert!(Target::new("http://h/mcp", &[]).unwrap().with_query("%zz=1").is_ok());
    }
}
