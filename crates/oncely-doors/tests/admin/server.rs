//! A listener on a free port, and a client that speaks plain HTTP/1.1.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use oncely::policy_file::PolicyFile;
use oncely::{Observer, Oncely, Store};
use oncely_doors::admin::{self, AdminState, Metrics, Tokens};
use oncely_doors::redact::Redaction;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A listener that runs until it is stopped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The answer, which has to have this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// The code of a problem with this status.
    #[track_caller]
    pub(crate) fn problem(self, status: u16) -> String {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let value = self.expect(status);
        assert_eq!(value["status"], status);
        value["code"].as_str().unwrap().to_owned()
    }
}

pub(crate) async fn ledger(directory: &Path) -> Arc<dyn Store> {
    oncely_store::open(&directory.join("ledger.db").display().to_string()).await.unwrap()
}

impl Server {
    pub(crate) async fn start(store: Arc<dyn Store>) -> Self {
        Self::start_with(store, "", Tokens::none(), Redaction::default()).await
    }

    pub(crate) async fn start_with(
        store: Arc<dyn Store>,
        policy: &str,
        tokens: Tokens,
        redaction: Redaction,
    ) -> Self {
        let metrics = Arc::new(Metrics::default());
        let oncely = Oncely::observed(store, Arc::clone(&metrics) as Arc<dyn Observer>);
        let policy = Arc::new(PolicyFile::parse(policy, "oncely.toml").unwrap());
        let state = AdminState::new(oncely, policy)
            .with_tokens(tokens)
            .with_metrics(metrics)
            .with_redaction(redaction);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move {
            let _ = stopped.await;
        };
        Self { address, stop, task: tokio::spawn(admin::serve(listener, state, shutdown)) }
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }

    /// Sends bytes as they are and reads until the server closes.
    pub(crate) async fn raw(&self, request: &[u8]) -> Got {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // A server that refuses a large body may close before all of it is sent.
        let _ = stream.write_all(request).await;
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes).await;
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Got { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Got {
        let length = body.len();
        let host = if headers.to_ascii_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        self.raw(format!("{head}{body}").as_bytes()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.send("GET", path, "", "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Got {
        self.post_as(path, "", body).await
    }

    pub(crate) async fn post_as(&self, path: &str, headers: &str, body: Value) -> Got {
        let headers = format!("Content-Type: application/json\r\n{headers}");
        self.send("POST", path, &headers, &body.to_string()).await
    }

    /// Begins and has to be allowed to run.
    pub(crate) async fn run(&self, tool: &str, key: &str) -> Value {
        self.post("/v1/begin", json!({ "tool": tool, "key": key, "wait_for_ms": 0 })).await.expect(201)
    }

    /// Ends what [`Self::run`] began.
    pub(crate) async fn end(&self, claim: &Value, outcome: &str) -> Value {
        let body = json!({ "id": claim["id"], "token": claim["token"], "outcome": outcome });
        self.post("/v1/complete", body).await.expect(200)
    }
}
