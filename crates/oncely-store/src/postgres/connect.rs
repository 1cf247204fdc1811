//! One connection: to the first server of the address that takes writes and keeps what it acknowledges.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use oncely_core::{StoreError, StoreErrorKind};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, Config, Notification};

use super::errors::{Doing, Trouble, full_text};
use super::options::{PostgresOptions, Prepared, port};
use super::schema::{self, Found};
use super::settings::{self, Server, Way};
use super::timeline::Newest;
use super::tls::{self, Connector};
use crate::leap::{Asked, ServerClock};

/// How long the way to a server may stay silent, in all, before it counts as gone.
const SILENCE: Duration = Duration::from_secs(20);

/// How long to wait for other servers once one was found fit: it may be the one that was replaced.
const OTHERS: Duration = Duration::from_millis(300);

/// An open connection whose server was found fit.
pub(crate) struct Link {
    pub(crate) client: Client,
    /// The last warning that the server sent.
    pub(crate) warning: Arc<Mutex<Option<String>>>,
    /// Whether statements may be prepared under a name.
    pub(crate) named: bool,
    /// What was found of the server.
    pub(crate) server: Server,
    /// When that was asked.
    asked: Asked,
    /// What was sent to channels that the connection listens to.
    pub(crate) heard: mpsc::Receiver<Notification>,
    _driver: Driver,
}

/// A connection to a server of which nothing is known yet.
struct Line {
    client: Client,
    warning: Arc<Mutex<Option<String>>>,
    heard: mpsc::Receiver<Notification>,
    driver: Driver,
}

/// The task that moves a connection's bytes. It ends with whoever uses the connection.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        // Also where an answer is still awaited: whoever awaited it has given up, and the server may be stuck.
        self.0.abort();
    }
}

/// Whom to connect to, and how.
#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) options: Arc<PostgresOptions>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Which server is the primary now.
    pub(crate) newest: Arc<Newest>,
    /// When the server that was started last was started, or took over: how long ago something before that was, only wall
    /// clocks say.
    pub(crate) steady_since: Arc<AtomicU64>,
    /// The clock of whichever server is the primary.
    pub(crate) clock: Arc<ServerClock>,
}

impl Door {
    pub(crate) fn new(options: PostgresOptions) -> Result<Self, StoreError> {
        let tls = tls::connector(&options)?;
        let (newest, steady_since, clock) = Default::default();
        Ok(Self { options: Arc::new(options), tls, newest, steady_since, clock })
    }
}

impl Door {
    /// Connects for calls.
    pub(crate) async fn open(&self) -> Result<Link, StoreError> {
        self.admit(self.find().await?)
    }

    /// Connects for listening, and takes no note of whom it met: nobody has looked which ledger is there.
    pub(crate) async fn open_to_listen(&self) -> Result<Link, StoreError> {
        let config = self.options.listen.as_ref().unwrap_or(&self.options.config);
        let link = self.find_among(config).await?;
        match self.newest.is_past(link.server.timeline) {
            true => Err(self.replaced()),
            false => Ok(link),
        }
    }

    /// Connects, and takes no note of whom it met: the server of another ledger says nothing about this one's.
    pub(crate) async fn find(&self) -> Result<Link, StoreError> {
        self.find_among(&self.options.config).await
    }

    /// The server that is fit; of several that call themselves primary, the one of the newest timeline. Else what one
    /// that answered said.
    async fn find_among(&self, config: &Config) -> Result<Link, StoreError> {
        let mut opening = JoinSet::new();
        for (at, host) in config.get_hosts().iter().enumerate() {
            let (door, config, host) = (self.clone(), config.clone(), host.clone());
            let port = port(&config, at);
            opening.spawn(async move { door.open_one(&config, &host, port).await });
        }
        let (mut found, mut refused): (Option<Link>, Option<StoreError>) = (None, None);
        loop {
            let next = match &found {
                None => opening.join_next().await,
                Some(_) => tokio::time::timeout(OTHERS, opening.join_next()).await.unwrap_or(None),
            };
            match next {
                Some(Ok(Ok(link))) => {
                    if found.as_ref().is_none_or(|known| known.server.timeline < link.server.timeline) {
                        found = Some(link);
                    }
                }
                // That a server cannot be reached says less than why another one cannot be used.
                Some(Ok(Err(error))) => {
                    if refused.is_none() || error.kind != StoreErrorKind::Unavailable {
                        refused = Some(error);
                    }
                }
                Some(Err(_)) => {}
                None => break,
            }
        }
        found.ok_or_else(|| refused.unwrap_or_else(|| self.unreachable("no server answered")))
    }

    /// Takes note of the ledger's primary, and refuses one that another has taken over from.
    pub(crate) fn admit(&self, link: Link) -> Result<Link, StoreError> {
        let newest = self.newest.met(link.server.timeline);
        if newest > link.server.timeline {
            return Err(self.replaced());
        }
        self.steady_since.fetch_max(link.server.started.0, Ordering::AcqRel);
        if newest != 0 && newest < link.server.timeline {
            // Another one has taken over, with a clock of its own.
            let taken_over = link.server.now.max(self.clock.newest());
            self.steady_since.fetch_max(taken_over.0, Ordering::AcqRel);
        }
        // From here on a leap is noticed. One that is there already is refused to those who ask what is there.
        let _ = self.clock.told(link.server.now, link.asked);
        Ok(link)
    }

    async fn open_one(&self, config: &Config, host: &Host, port: u16) -> Result<Link, StoreError> {
        let opening = async {
            let (socket, name) = self.reach(host, port).await?;
            let way = socket.way();
            let Line { client, warning, heard, driver } = self.greet(config, socket, name).await?;
            let asked = Asked::now();
            let server = settings::check(&client, &self.options, way).await?;
            let named = match self.options.prepared {
                Prepared::Always => true,
                Prepared::Never => false,
                Prepared::Auto => server.is_direct,
            };
            Ok(Link { client, warning, named, server, asked, heard, _driver: driver })
        };
        self.in_time(config, host, port, opening).await
    }

    /// Refuses to make a ledger unless every server that the address names answers and has none: the one that answered
    /// as primary may not be the one that is meant.
    pub(crate) async fn certainly_absent(&self) -> Result<(), StoreError> {
        let config = &self.options.config;
        for (at, host) in config.get_hosts().iter().enumerate() {
            let port = port(config, at);
            let looking = async {
                let (socket, name) = self.reach(host, port).await?;
                let line = self.greet(config, socket, name).await?;
                schema::look(&line.client, &self.options).await
            };
            let server = format!("{} port {port}", host_text(host));
            let why = match self.in_time(config, host, port, looking).await {
                Ok(Found::Nothing) => continue,
                Ok(Found::Ledger(_)) => format!("{server} has one, and the primary that answered has none"),
                Err(error) => format!("{server} may have one: {}", error.message),
            };
            let message = format!(
                "the ledger {} was not made: {why}; nothing was written; start or remove that server, or name only the \
                 one that the ledger is to be made on",
                self.options.describe()
            );
            return Err(StoreError::before(StoreErrorKind::Foreign, message));
        }
        Ok(())
    }

    /// An end to waiting for a server.
    async fn in_time<T>(
        &self,
        config: &Config,
        host: &Host,
        port: u16,
        opening: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let server = format!("{} port {port}", host_text(host));
        self.soon(config, &server, opening).await
    }

    /// An end to waiting for what a server says of itself.
    async fn soon<T>(
        &self,
        config: &Config,
        server: &str,
        asking: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let patience = config.get_connect_timeout().copied().unwrap_or(Duration::from_secs(5));
        match tokio::time::timeout(patience, asking).await {
            Ok(answered) => answered,
            Err(_) => {
                Err(self.unreachable(&format!("{server} did not answer within {} s", patience.as_secs())))
            }
        }
    }

    /// Looks at the ledger over a connection that was just made.
    pub(crate) async fn look(&self, link: &Link) -> Result<Found, StoreError> {
        let looking = schema::look(&link.client, &self.options);
        self.soon(&self.options.config, "the server", looking).await
    }

    async fn reach(&self, host: &Host, port: u16) -> Result<(Socket, Option<String>), StoreError> {
        Socket::open(host, port).await.map_err(|error| {
            self.unreachable(&format!("{} port {port} cannot be reached: {error}", host_text(host)))
        })
    }

    async fn greet(&self, config: &Config, socket: Socket, host: Option<String>) -> Result<Line, StoreError> {
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
        Ok(Line { client, warning, heard, driver: Driver(driver.abort_handle()) })
    }

    fn replaced(&self) -> StoreError {
        self.unreachable("the only primary that answered has been replaced by another one")
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
            // The one field is in the server's language, the other may be missing.
            Some(Ok(AsyncMessage::Notice(notice)))
                if notice.parsed_severity() == Some(Severity::Warning) || notice.severity() == "WARNING" =>
            {
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

    fn way(&self) -> Option<Way> {
        match self {
            Self::Tcp(stream) => Some(Way { from: stream.local_addr().ok()?, to: stream.peer_addr().ok()? }),
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
