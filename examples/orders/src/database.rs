//! The program's own database: orders, emails, increments and deployments.

use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::Cli;

/// How long a command waits for another one's transaction.
const BUSY: Duration = Duration::from_secs(10);

/// `request` names the intent that made a row: what is there twice would be a duplicate, and a check can find it.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS orders (
        id INTEGER PRIMARY KEY AUTOINCREMENT, customer TEXT NOT NULL, amount INTEGER NOT NULL, request TEXT NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS emails (
        id INTEGER PRIMARY KEY AUTOINCREMENT, recipient TEXT NOT NULL, subject TEXT NOT NULL, body TEXT NOT NULL,
        request TEXT NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS increments (
        request TEXT PRIMARY KEY, name TEXT NOT NULL, by INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS deployments (
        service TEXT PRIMARY KEY, release TEXT NOT NULL, times INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS deployed (
        request TEXT PRIMARY KEY, service TEXT NOT NULL, release TEXT NOT NULL, times INTEGER NOT NULL);
";

impl Cli {
    /// Opens the database, and makes it if need be.
    pub fn open(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open(&self.db)?;
        connection.busy_timeout(BUSY)?;
        connection.execute_batch(SCHEMA)?;
        Ok(connection)
    }

    /// Opens the database to look at it; where there is none, an empty one that is nowhere.
    pub fn look(&self) -> rusqlite::Result<Connection> {
        if !self.db.exists() {
            let connection = Connection::open_in_memory()?;
            connection.execute_batch(SCHEMA)?;
            return Ok(connection);
        }
        // Not read-only: what a killed command left half done has to be rolled back before anybody can look.
        let connection = Connection::open_with_flags(&self.db, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(BUSY)?;
        Ok(connection)
    }
}
