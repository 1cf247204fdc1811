//! A connection to one server: dialled, encrypted, logged in. It sends bytes and reads replies; what they mean is known
//! to others.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::{StoreError, StoreErrorKind};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::errors::{Broken, refused, unreached};
use super::options::{RedisOptions, RedisServer};
use super::resp::{Value, command, measure, read};

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;
/// What a connection calls itself, for those who look at the server.
const CLIENT_NAME: &[u8] = b"oncely";

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection.
pub(crate) struct Wire {
    stream: Pin<Box<dyn Stream>>,
    buffer: Vec<u8>,
    /// Up to here the buffer has been read.
    at: usize,
}

/// How to dial.
pub(crate) struct Dialer {
    pub(crate) options: RedisOptions,
    tls: Option<TlsConnector>,
}

impl Dialer {
    pub(crate) fn new(options: RedisOptions) -> Result<Self, StoreError> {
        let tls = if options.tls { Some(trust(&options)?) } else { None };
        Ok(Self { options, tls })
    }

    /// Connects and logs in.
    pub(crate) async fn dial(&self, server: &RedisServer) -> Result<Wire, StoreError> {
        let limit = self.options.timeout;
        let dialled = match timeout(limit, self.open(server)).await {
            Ok(opened) => opened.map_err(Broken::from),
            Err(_) => Err(Broken::Slow(limit)),
        };
        let mut wire = dialled.map_err(|why| unreached(&why, &server.to_string()))?;
        self.log_in(&mut wire, server).await?;
        Ok(wire)
    }

    async fn open(&self, server: &RedisServer) -> io::Result<Wire> {
        let tcp = TcpStream::connect((server.host.as_str(), server.port)).await?;
        tcp.set_nodelay(true)?;
        let stream: Pin<Box<dyn Stream>> = match &self.tls {
            None => Box::pin(tcp),
            Some(tls) => {
                let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
                Box::pin(tls.connect(name, tcp).await?)
            }
        };
        Ok(Wire { stream, buffer: Vec::new(), at: 0 })
    }

    async fn log_in(&self, wire: &mut Wire, server: &RedisServer) -> Result<(), StoreError> {
        let options = &self.options;
        let mut commands = Vec::new();
        if let Some(password) = &options.password {
            commands.push(match options.user.as_str() {
                "" => command(&[b"AUTH", password.as_bytes()]),
                user => command(&[b"AUTH", user.as_bytes(), password.as_bytes()]),
            });
        }
        if options.database != 0 {
            commands.push(command(&[b"SELECT", options.database.to_string().as_bytes()]));
        }
        let must = commands.len();
        commands.push(command(&[b"CLIENT", b"SETNAME", CLIENT_NAME]));
        for reply in wire.ask(&commands, options.timeout, server).await?.iter().take(must) {
            if let Value::Error(words) = reply {
                let mut error = refused(words, &server.to_string());
                // Whatever it says, nothing but a login was tried.
                error.wrote = oncely_core::Wrote::No;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Wire {
    /// Sends commands and reads one reply to each, before anything of the ledger is written.
    pub(crate) async fn ask(
        &mut self,
        commands: &[Vec<u8>],
        limit: Duration,
        server: &RedisServer,
    ) -> Result<Vec<Value>, StoreError> {
        let exchange = async {
            self.send(&commands.concat()).await?;
            let mut replies = Vec::with_capacity(commands.len());
            for _ in commands {
                replies.push(self.receive().await?);
            }
            Ok::<_, Broken>(replies)
        };
        let replies = timeout(limit, exchange).await.unwrap_or(Err(Broken::Slow(limit)));
        replies.map_err(|why| unreached(&why, &server.to_string()))
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// Reads one reply. What has arrived of the next ones is kept, also if this future is dropped.
    pub(crate) async fn receive(&mut self) -> Result<Value, Broken> {
        loop {
            if let Some(value) = self.received()? {
                return Ok(value);
            }
            self.fill().await?;
        }
    }

    /// One reply, if it has arrived already.
    pub(crate) fn received(&mut self) -> Result<Option<Value>, Broken> {
        let Some(len) = measure(&self.buffer[self.at..])? else { return Ok(None) };
        let value = read(&self.buffer[self.at..self.at + len])?;
        self.at += len;
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
        }
        Ok(Some(value))
    }

    async fn fill(&mut self) -> Result<(), Broken> {
        if self.at > 0 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        self.buffer.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(Broken::Closed),
            _ => Ok(()),
        }
    }
}

/// Whom to trust: the system's certificates, or those in a file.
fn trust(options: &RedisOptions) -> Result<TlsConnector, StoreError> {
    let bad = |why: String| StoreError::before(StoreErrorKind::BadAddress, why);
    let mut roots = rustls::RootCertStore::empty();
    match &options.ca {
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(bad("the system has no certificates to trust; name some with ?ca=FILE".into()));
            }
        }
        Some(path) => {
            let wrong = |e: &dyn std::fmt::Display| {
                bad(format!("{} holds no certificates that can be read: {e}", path.display()))
            };
            let certificates = CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|e| wrong(&e))?;
                roots.add(certificate).map_err(|e| wrong(&e))?;
            }
            if roots.is_empty() {
                return Err(wrong(&"it is empty"));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad(format!("TLS cannot be set up: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
