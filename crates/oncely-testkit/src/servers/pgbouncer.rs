//! PgBouncer before a PostgreSQL server, in transaction mode: a connection is somebody else's after every commit.

use std::net::TcpStream;

use super::keeper::Kept;
use super::place::{Folder, ServerUser, free_port, program, write_private};
use super::{Postgres, Trouble, until};

/// A connection pooler.
#[derive(Debug)]
pub struct PgBouncer {
    server: Kept,
    port: u16,
    _folder: Folder,
}

impl PgBouncer {
    /// Starts one in transaction mode, which holds at most 20 connections to each database.
    pub fn in_front_of(postgres: &Postgres) -> Result<Self, Trouble> {
        Self::through(postgres, postgres.port())
    }

    /// The same, which reaches the server through something that stands before it on another port.
    pub fn through(postgres: &Postgres, server_port: u16) -> Result<Self, Trouble> {
        let binary = program("pgbouncer", "pgbouncer")?;
        let folder = Folder::new("pgbouncer", postgres.user)?;
        let port = free_port()?;
        let password = postgres
            .options
            .password
            .as_ref()
            .map_or(String::new(), |p| format!(" password='{}'", p.replace('\'', "''")));
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server_port} user=postgres{password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
            listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 20\n\
            max_client_conn = 1000\nignore_startup_parameters = extra_float_digits\n"
        );
        let file = folder.path().join("pgbouncer.ini");
        write_private(&file, &settings, postgres.user)?;
        let log = folder.path().join("log");
        write_private(&log, "", postgres.user)?;
        let server = Kept::start(ServerUser::line(postgres.user, &binary).arg(&file), &log, "KILL")?;
        until("PgBouncer takes connections", || {
            if !server.is_alive() {
                return Err(Trouble::new(format!("PgBouncer did not start: {}", server.last_words())));
            }
            Ok(TcpStream::connect(("127.0.0.1", port)).is_ok())
        })?;
        Ok(Self { server, port, _folder: folder })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database through it; it asks for no password.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// What it has written to its log lately.
    pub fn last_words(&self) -> String {
        self.server.last_words()
    }
}
