//! A PostgreSQL server of its own: started, stopped, killed, paused.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use rustix::process::Signal;

use super::keeper::{Kept, Slot};
use super::place::{Folder, ServerUser, free_port, output, postgres_program, program, write_private};
use super::{Trouble, locked, until};

/// Settings for a server; [`start`](Self::start) starts it.
#[derive(Debug, Clone, Default)]
pub struct PostgresBuilder {
    pub(super) settings: Vec<(String, String)>,
    pub(super) password: Option<String>,
    pub(super) tls: Option<(String, String)>,
    pub(super) data_folder: Option<PathBuf>,
    pub(super) listen: Option<String>,
    /// The address of the primary that this one follows.
    pub(super) follows: Option<String>,
}

impl PostgresBuilder {
    /// A line of `postgresql.conf`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Asks TCP clients for this password of the user `postgres` (SCRAM).
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Speaks TLS with this certificate and key (PEM), and refuses plain TCP.
    pub fn tls(mut self, certificate: &str, key: &str) -> Self {
        self.tls = Some((certificate.to_owned(), key.to_owned()));
        self
    }

    /// Keeps the data here instead of in a temporary folder: on a disk that is small, for one. The folder must be empty.
    pub fn data_folder(mut self, folder: &Path) -> Self {
        self.data_folder = Some(folder.to_owned());
        self
    }

    /// Listens on this address, such as 0.0.0.0, for clients in other network namespaces.
    pub fn listen(mut self, address: &str) -> Self {
        self.listen = Some(address.to_owned());
        self
    }

    /// Starts the server, and returns when it answers.
    pub fn start(self) -> Result<Postgres, Trouble> {
        let postgres = self.place()?;
        postgres.make_data_folder()?;
        postgres.start_again()?;
        if let Some(password) = &postgres.options.password {
            postgres.psql(&format!("ALTER ROLE postgres PASSWORD '{}'", password.replace('\'', "''")))?;
        }
        Ok(postgres)
    }

    pub(super) fn place(self) -> Result<Postgres, Trouble> {
        let user = ServerUser::if_root()?;
        let folder = Folder::new("postgres", user)?;
        let data = self.data_folder.clone().unwrap_or_else(|| folder.path().join("data"));
        Ok(Postgres {
            server: Slot::default(),
            settings: Mutex::new(self.settings.clone()),
            port: free_port()?,
            options: self,
            user,
            data,
            databases: AtomicU64::new(0),
            folder,
        })
    }
}

/// A PostgreSQL server. The folder goes last: it is dropped when the server is gone.
#[derive(Debug)]
pub struct Postgres {
    server: Slot,
    pub(super) settings: Mutex<Vec<(String, String)>>,
    pub(super) options: PostgresBuilder,
    pub(super) port: u16,
    pub(super) user: Option<ServerUser>,
    pub(super) data: PathBuf,
    databases: AtomicU64,
    pub(super) folder: Folder,
}

impl Postgres {
    /// Starts a server that commits durably, on a free port of 127.0.0.1.
    pub fn start() -> Result<Self, Trouble> {
        Self::builder().start()
    }

    /// Settings for a server.
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// One server for all tests of this process: take a [`fresh_database`](Self::fresh_database) each.
    pub fn shared() -> Result<&'static Self, Trouble> {
        static SHARED: OnceLock<Result<Postgres, Trouble>> = OnceLock::new();
        SHARED
            .get_or_init(|| Self::builder().setting("max_connections", "300").start())
            .as_ref()
            .map_err(Clone::clone)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of one of its databases.
    pub fn url(&self, database: &str) -> String {
        self.url_through(self.port, database)
    }

    /// The address of one of its databases through something that stands before it on another port.
    pub fn url_through(&self, port: u16, database: &str) -> String {
        let password = self.options.password.as_ref().map_or(String::new(), |p| format!(":{p}"));
        format!("postgres://postgres{password}@127.0.0.1:{port}/{database}")
    }

    /// Makes an empty database and returns its address.
    pub fn fresh_database(&self) -> Result<String, Trouble> {
        let name = format!("fresh{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.psql(&format!("CREATE DATABASE {name}"))?;
        Ok(self.url(&name))
    }

    /// Runs SQL as superuser in the database `postgres`, not over TCP; columns are separated by `|`.
    pub fn psql(&self, sql: &str) -> Result<String, Trouble> {
        self.psql_in("postgres", sql)
    }

    /// Runs SQL as superuser in this database, not over TCP; columns are separated by `|`.
    pub fn psql_in(&self, database: &str, sql: &str) -> Result<String, Trouble> {
        let mut line = Command::new(program("psql", "postgresql-client")?);
        line.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-d",
            database,
            "-c",
            sql,
        ]);
        line.arg("-h").arg(self.folder.path()).arg("-p").arg(self.port.to_string());
        output(&mut line)
    }

    /// Changes a setting that needs no restart.
    pub fn set(&self, name: &str, value: &str) -> Result<(), Trouble> {
        {
            let mut settings = locked(&self.settings);
            settings.retain(|(known, _)| known != name);
            settings.push((name.to_owned(), value.to_owned()));
        }
        self.write_settings()?;
        self.psql("SELECT pg_reload_conf()")?;
        until("the setting has arrived", || Ok(self.psql(&format!("SHOW {name}"))? == value))
    }

    /// Ends it in order: clients are thrown out, everything is written.
    pub fn stop(&self) -> Result<(), Trouble> {
        self.server.stop(Signal::INT)
    }

    /// Kills all of its processes at once, as if the machine had lost its power.
    pub fn kill(&self) -> Result<(), Trouble> {
        self.server.kill()
    }

    /// Stops all of its processes where they are: connections stay open, nothing is answered.
    pub fn pause(&self) {
        self.server.signal_all(Signal::STOP);
    }

    /// Lets them go on.
    pub fn resume(&self) {
        self.server.signal_all(Signal::CONT);
    }

    /// Stops and starts it.
    pub fn restart(&self) -> Result<(), Trouble> {
        self.stop()?;
        self.start_again()
    }

    /// Starts it on its data and its port, and returns when it answers.
    pub fn start_again(&self) -> Result<(), Trouble> {
        self.write_settings()?;
        let mut line = ServerUser::line(self.user, &postgres_program("postgres")?);
        line.arg("-D").arg(&self.data);
        let log = self.folder.path().join("log");
        write_log(&log, self.user)?;
        let kept = Kept::start(&line, &log, "QUIT")?;
        let ready = postgres_program("pg_isready")?;
        self.server.fill("PostgreSQL", kept, || {
            let mut line = Command::new(&ready);
            line.arg("-q").arg("-h").arg(self.folder.path()).arg("-p").arg(self.port.to_string());
            line.status().is_ok_and(|status| status.success())
        })
    }

    /// What it has written to its log lately.
    pub fn last_words(&self) -> String {
        self.server.last_words()
    }

    /// Making the first one takes longest, so later ones are copies of it.
    fn make_data_folder(&self) -> Result<(), Trouble> {
        static TEMPLATE: OnceLock<Result<Folder, Trouble>> = OnceLock::new();
        let template = TEMPLATE.get_or_init(|| {
            let folder = Folder::new("postgres-template", self.user)?;
            let mut line = ServerUser::line(self.user, &postgres_program("initdb")?);
            line.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
            output(line.arg("-D").arg(folder.path().join("data")))?;
            Ok(folder)
        });
        let template = template.as_ref().map_err(Clone::clone)?;
        std::fs::create_dir_all(&self.data)?;
        ServerUser::give(self.user, &self.data)?;
        let mut line = ServerUser::line(self.user, &program("cp", "coreutils")?);
        output(line.arg("-a").arg(template.path().join("data/.")).arg(&self.data))?;
        Ok(())
    }

    /// Settings lie in files that are written anew: a copy of another server's folder brings that server's.
    pub(super) fn write_settings(&self) -> Result<(), Trouble> {
        let mut lines = vec![
            format!("listen_addresses = '{}'", self.options.listen.as_deref().unwrap_or("127.0.0.1")),
            format!("port = {}", self.port),
            format!("unix_socket_directories = '{}'", self.folder.path().display()),
            "shared_buffers = '32MB'\nmax_wal_size = '256MB'\nwal_keep_size = '128MB'\nmax_wal_senders = 5"
                .to_owned(),
        ];
        if let Some((certificate, key)) = &self.options.tls {
            let (crt, pem) = (self.folder.path().join("server.crt"), self.folder.path().join("server.key"));
            write_private(&crt, certificate, self.user)?;
            write_private(&pem, key, self.user)?;
            lines.push(format!(
                "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'",
                crt.display(),
                pem.display()
            ));
        }
        if let Some(primary) = &self.options.follows {
            lines.push(format!("primary_conninfo = '{primary}'"));
        }
        let settings = locked(&self.settings);
        lines
            .extend(settings.iter().map(|(name, value)| format!("{name} = '{}'", value.replace('\'', "''"))));
        let who = if self.options.password.is_some() { "scram-sha-256" } else { "trust" };
        let how = if self.options.tls.is_some() { "hostssl" } else { "host" };
        let mut access = format!(
            "local all all trust\nhost replication all 127.0.0.1/32 trust\n{how} all all 127.0.0.1/32 {who}\n"
        );
        if self.options.listen.is_some() {
            access.push_str(&format!("{how} all all 0.0.0.0/0 {who}\n"));
        }
        write_private(&self.data.join("postgresql.conf"), &(lines.join("\n") + "\n"), self.user)?;
        write_private(&self.data.join("pg_hba.conf"), &access, self.user)
    }
}

/// The keeper opens the log as the user that this process runs under.
fn write_log(log: &Path, user: Option<ServerUser>) -> Result<(), Trouble> {
    if log.exists() { Ok(()) } else { write_private(log, "", user) }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A server that is paused hears no other signal.
        self.resume();
    }
}
