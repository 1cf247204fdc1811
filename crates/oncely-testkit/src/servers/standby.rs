//! Streaming replication between PostgreSQL servers: a standby, its promotion, and the way back of an old primary.

use super::place::{ServerUser, output, postgres_program, write_private};
use super::postgres::{Postgres, PostgresBuilder};
use super::{Trouble, until};

/// The name under which standbys present themselves. Only they count as synchronous: a base backup that is just being
/// taken streams too, and must not.
const STANDBY: &str = "oncely_standby";

impl Postgres {
    /// A standby without whose word the primary acknowledges no commit. Promoted, it will itself demand one.
    pub fn standby(&self) -> Result<Self, Trouble> {
        let standby = self.standby_with(STANDBY)?;
        self.set("synchronous_standby_names", STANDBY)?;
        self.await_standby()?;
        Ok(standby)
    }

    /// A standby that the primary does not wait for: what is acknowledged may not be there yet.
    pub fn standby_async(&self) -> Result<Self, Trouble> {
        let standby = self.standby_with("")?;
        self.await_standby()?;
        Ok(standby)
    }

    fn standby_with(&self, demanded: &str) -> Result<Self, Trouble> {
        let options = PostgresBuilder {
            settings: super::locked(&self.settings).clone(),
            data_folder: None,
            follows: Some(self.replication_address()),
            ..self.options.clone()
        };
        let standby = options.setting("synchronous_standby_names", demanded).place()?;
        standby.copy_from(self)?;
        standby.start_again()?;
        Ok(standby)
    }

    /// Makes a standby the primary; returns when it takes writes, which still wait for a standby of its own if it demands
    /// one.
    pub fn promote(&self) -> Result<(), Trouble> {
        self.psql("SELECT pg_promote(true, 60)")?;
        until("the standby is promoted", || Ok(self.psql("SELECT pg_is_in_recovery()")? == "f"))
    }

    /// Makes a server that was stopped or killed a standby of another, from a new copy of its data, on its own port.
    pub fn rejoin(&mut self, primary: &Self) -> Result<(), Trouble> {
        self.kill()?;
        self.options.follows = Some(primary.replication_address());
        std::fs::remove_dir_all(&self.data)?;
        self.copy_from(primary)?;
        self.start_again()?;
        primary.await_standby()
    }

    /// Returns when a standby streams, and is waited for if this primary demands one.
    pub fn await_standby(&self) -> Result<(), Trouble> {
        let wanted = "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'oncely_standby' \
            AND state = 'streaming' AND (sync_state <> 'async' OR current_setting('synchronous_standby_names') = '')";
        until("a standby streams", || Ok(self.psql(wanted)? != "0"))
    }

    fn replication_address(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres application_name={STANDBY}", self.port())
    }

    fn copy_from(&self, primary: &Self) -> Result<(), Trouble> {
        let mut line = ServerUser::line(self.user, &postgres_program("pg_basebackup")?);
        line.args(["-w", "-h", "127.0.0.1", "-U", "postgres", "-X", "stream", "-c", "fast", "--no-sync"]);
        line.arg("-p").arg(primary.port().to_string()).arg("-D").arg(&self.data);
        output(&mut line)?;
        write_private(&self.data.join("standby.signal"), "", self.user)
    }
}
