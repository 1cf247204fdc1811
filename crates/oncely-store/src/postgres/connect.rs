//! One connection: to the first server of the address that takes writes and keeps what it acknowledges.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use oncely_core::{StoreError, StoreErrorKind};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config, Notification};

use super::errors::{Doing, Trouble, full_text};
use super::options::{PostgresOptions, Prepared, port};
use super::settings;
use super::tls::Connector;

/// How long the way to a server may stay silent, in all, before it counts as gone.
const SILENCE: Duration = Duration::from_secs(20);

/// An open connection whose server was found fit.
pub(crate) struct Link {
    pub(crate) client: Client,
    /// The last warning that the server sent.
    pub(crate) warning: Arc<Mutex<Option<String>>>,
    /// Whether statements may be prepared under a name.
    pub(crate) named: bool,
    /// What was sent to channels that the connection listens to.
    pub(crate) heard: mpsc::Receiver<Notification>,
    driver: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        // Also where an answer is still awaited: whoever awaited it has given up, and the server may be stuck.
        self.driver.abort();
    }
}

/// Whom to connect to, and how.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) options: Arc<PostgresOptions>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Door {
    /// Connects for calls.
    pub(crate) async fn open(&self) -> Result<Link, StoreError> {
        self.open_first(&self.options.config).await
    }

    /// Connects for listening.
    pub(crate) async fn open_to_listen(&self) -> Result<Link, StoreError> {
        self.open_first(self.options.listen.as_ref().unwrap_or(&self.options.config)).await
    }

    /// The first server that is fit; else what the last one that answered said.
    async fn open_first(&self, config: &Config) -> Result<Link, StoreError> {
        let mut refused = None;
        for (at, host) in config.get_hosts().iter().enumerate() {
            match self.open_one(config, host, port(config, at)).await {
                Ok(link) => return Ok(link),
                // That a server cannot be reached says less than why another one cannot be used.
                Err(error) if refused.is_none() || error.kind != StoreErrorKind::Unavailable => {
                    refused = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(refused.unwrap_or_else(|| self.unreachable("the address names no server")))
    }

    async fn open_one(&self, config: &Config, host: &Host, port: u16) -> Result<Link, StoreError> {
        let patience = config.get_connect_timeout().copied().unwrap_or(Duration::from_secs(5));
        let opening = async {
            let (socket, name) = Socket::open(host, port).await.map_err(|error| {
                self.unreachable(&format!("{} port {port} cannot be reached: {error}", host_text(host)))
            })?;
            let local_port = socket.local_port();
            let (mut link, server_saw) = self.greet(config, socket, name).await?;
            link.named = match self.options.prepared {
                Prepared::Always => true,
                Prepared::Never => false,
                // The server names the port that it is spoken to from. If that is not ours, something stands between,
                // and it may give each transaction another session.
                Prepared::Auto => server_saw == local_port,
            };
            Ok(link)
        };
        match tokio::time::timeout(patience, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(self.unreachable(&format!(
                "{} port {port} did not answer within {} s",
                host_text(host),
                patience.as_secs()
            ))),
        }
    }

    async fn greet(
        &self,
        config: &Config,
        socket: Socket,
        host: Option<String>,
    ) -> Result<(Link, Option<u16>), StoreError> {
        let address = self.options.describe();
        let fail = |error: tokio_postgres::Error| {
            let text = full_text(&error);
            match Trouble::from(error) {
                trouble @ Trouble::Server(_) => trouble.at(&address, Doing::Reading),
                _ => self.unreachable(&text),
            }
        };
        let warning = Arc::new(Mutex::new(None));
        let (tell, heard) = mpsc::channel(1024);
        let (client, driver) = match (&self.tls, host) {
            (Some(tls), Some(host)) => {
                let connector = Connector { config: Arc::clone(tls), host };
                let (client, connection) = config.connect_raw(socket, connector).await.map_err(fail)?;
                (client, tokio::spawn(drive(connection, Arc::clone(&warning), tell)))
            }
            _ => {
                let mut plain = config.clone();
                plain.ssl_mode(SslMode::Disable);
                let (client, connection) =
                    plain.connect_raw(socket, tokio_postgres::NoTls).await.map_err(fail)?;
                (client, tokio::spawn(drive(connection, Arc::clone(&warning), tell)))
            }
        };
        let link = Link { client, warning, named: false, heard, driver: driver.abort_handle() };
        let server_saw = settings::check(&link.client, &self.options).await?;
        Ok((link, server_saw))
    }

    fn unreachable(&self, why: &str) -> StoreError {
        let message = format!(
            "the ledger {} cannot be reached ({why}); nothing was written; try again",
            self.options.describe()
        );
        StoreError::before(StoreErrorKind::Unavailable, message)
    }
}

fn host_text(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(folder) => folder.display().to_string(),
    }
}

/// Moves bytes until the connection ends, and keeps what the server says unasked.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    warning: Arc<Mutex<Option<String>>>,
    tell: mpsc::Sender<Notification>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notice(notice))) if notice.severity() == "WARNING" => {
                // Taken note of before the answer that follows it is handed on: one task reads both, in order.
                *warning.lock().unwrap_or_else(PoisonError::into_inner) = Some(notice.message().to_owned());
            }
            Some(Ok(AsyncMessage::Notification(notification))) => {
                // Waiters look by themselves from time to time; what does not fit is not missed for long.
                let _ = tell.try_send(notification);
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return,
        }
    }
}

/// A socket of either family.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects; also the name that the server's certificate has to be for.
    async fn open(host: &Host, port: u16) -> io::Result<(Self, Option<String>)> {
        match host {
            Host::Tcp(name) => {
                let stream = TcpStream::connect((name.as_str(), port)).await?;
                stream.set_nodelay(true)?;
                keep_alive(&stream)?;
                Ok((Self::Tcp(stream), Some(name.clone())))
            }
            Host::Unix(folder) => {
                let stream = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?;
                Ok((Self::Unix(stream), None))
            }
        }
    }

    fn local_port(&self) -> Option<u16> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok().map(|address| address.port()),
            Self::Unix(_) => None,
        }
    }
}

/// A server that is gone without a word is noticed.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    let fd = stream.as_fd();
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, SILENCE / 4)?;
    sockopt::set_tcp_keepintvl(fd, SILENCE / 4)?;
    sockopt::set_tcp_keepcnt(fd, 3)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(fd, u32::try_from(SILENCE.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
