//! Real servers for tests: PostgreSQL, PgBouncer, Redis and Redis Cluster, from the programs that are installed, on free
//! ports in temporary folders; and a tap that makes the way to them slow, deaf or cut.
//!
//! Whatever is started is stopped, and its folder removed, when its handle is dropped, and also when the process that
//! started it dies in any way: a keeper beside each server waits for that. So a handle may live in a `static`.
//!
//! ```no_run
//! use oncely_testkit::servers::{Postgres, Trouble};
//!
//! fn main() -> Result<(), Trouble> {
//!     let primary = Postgres::start()?;
//!     let standby = primary.standby()?;
//!     primary.kill()?;
//!     standby.promote()
//! }
//! ```
//!
//! A map: [`Postgres`] with its `standby`, [`PgBouncer`], [`Redis`], [`RedisCluster`], [`Tap`]; `keeper` keeps a server's
//! process, `place` finds programs, folders and ports.

mod cluster;
mod keeper;
mod pgbouncer;
mod place;
mod postgres;
mod redis;
mod standby;
mod tap;

pub use cluster::RedisCluster;
pub use pgbouncer::PgBouncer;
pub use place::free_port;
pub use postgres::{Postgres, PostgresBuilder};
pub use redis::{Redis, RedisBuilder};
pub use tap::Tap;

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take to do what it is asked, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(180);
/// Pause between two looks at a server.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What went wrong with a server, in words.
#[derive(Clone, PartialEq, Eq)]
pub struct Trouble(String);

impl Trouble {
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As words too: a test that unwraps shows them.
impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Trouble {}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// Looks again and again until something holds; an error that names it if it does not in time.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool, Trouble>) -> Result<(), Trouble> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if holds()? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Trouble::new(format!("after {} s still not: {what}", PATIENCE.as_secs())));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
