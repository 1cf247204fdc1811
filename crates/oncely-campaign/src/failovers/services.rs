//! Servers that can be taken away: a PostgreSQL primary with a standby, a Redis Cluster, single servers that are restarted.

use std::thread;
use std::time::Duration;

use oncely_store::postgres::migration_sql;
use oncely_testkit::servers::{Postgres, Redis, RedisCluster};
use oncely_testkit::sim::Rng;

use super::Service;
use crate::Checked;

/// How long whoever takes over may lag behind when the other is killed. What was acknowledged without it is lost then.
const LAG_MS_MAX: u64 = 300;

/// Whether the primary waits for its standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Demand {
    /// What is acknowledged is on both.
    Synchronous,
    /// What is acknowledged may be on the primary only: what the harness must catch.
    Asynchronous,
}

/// A primary and its standby. Killed, the primary becomes the standby of its successor.
#[derive(Debug)]
pub struct PostgresPair {
    primary: Postgres,
    standby: Postgres,
    demand: Demand,
    address: String,
}

impl PostgresPair {
    /// Starts both.
    pub fn start(demand: Demand) -> Checked<Self> {
        let primary = Postgres::start()?;
        primary.psql("CREATE DATABASE ledger")?;
        // With several servers in the address it is not made by itself.
        primary.psql_in("ledger", &migration_sql("oncely"))?;
        let (standby, more) = match demand {
            Demand::Synchronous => (primary.standby()?, ""),
            Demand::Asynchronous => (primary.standby_async()?, "&durability=best-effort"),
        };
        let (one, other) = (primary.port(), standby.port());
        let address = format!(
            "postgres://postgres@127.0.0.1:{one},127.0.0.1:{other}/ledger?target_session_attrs=read-write{more}"
        );
        Ok(Self { primary, standby, demand, address })
    }
}

impl Service for PostgresPair {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn fail(&mut self, rng: &mut Rng) -> Checked<()> {
        // Every other time, and always where that must be caught, the standby stands still and its link is gone, so that
        // nothing of what follows is even on its way to it. Else the primary is killed in the middle of its commits.
        let lags = rng.chance(500) || self.demand == Demand::Asynchronous;
        if lags {
            self.standby.pause();
            self.primary.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_replication")?;
        }
        thread::sleep(Duration::from_millis(rng.below(LAG_MS_MAX)));
        self.primary.kill()?;
        if lags {
            self.standby.resume();
        }
        self.standby.promote()?;
        self.primary.rejoin(&self.standby)?;
        std::mem::swap(&mut self.primary, &mut self.standby);
        Ok(())
    }
}

/// How many replicas a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// One, which is all that there are of each primary.
    One,
    /// None: what the harness must catch.
    None,
}

/// Three primaries with a replica each.
#[derive(Debug)]
pub struct Cluster {
    cluster: RedisCluster,
    wait: Wait,
}

impl Cluster {
    /// Starts it.
    pub fn start(wait: Wait) -> Checked<Self> {
        Ok(Self { cluster: RedisCluster::start(3, 3)?, wait })
    }
}

impl Service for Cluster {
    fn address(&self) -> String {
        let nodes: Vec<String> = (0..self.cluster.size())
            .map(|node| format!("127.0.0.1:{}", self.cluster.node(node).port()))
            .collect();
        let wait = match self.wait {
            Wait::One => "wait=1",
            Wait::None => "wait=0&durability=best-effort",
        };
        format!("redis+cluster://{}?{wait}", nodes.join(","))
    }

    fn fail(&mut self, rng: &mut Rng) -> Checked<()> {
        // What a ledger begins with is on the replicas: without it a server that takes over is refused for good, whatever
        // else it has lost.
        self.cluster.wait_until_copied()?;
        let primaries = self.cluster.primaries()?;
        let replicas: Vec<usize> =
            (0..self.cluster.size()).filter(|node| !primaries.contains(node)).collect();
        // Every other time, and always where that must be caught, the replicas stand still and their links are gone, so that
        // nothing of what follows is even on its way to them. Else a primary is killed in the middle of its writes.
        let lag = rng.chance(500) || self.wait == Wait::None;
        if lag {
            for replica in &replicas {
                self.cluster.node(*replica).pause();
            }
            for primary in &primaries {
                self.cluster.node(*primary).cli(&["CLIENT", "KILL", "TYPE", "replica"])?;
            }
        }
        thread::sleep(Duration::from_millis(rng.below(LAG_MS_MAX)));
        let killed = *rng.pick(&primaries).ok_or("no primary lives")?;
        self.cluster.node(killed).kill()?;
        if lag {
            for replica in &replicas {
                self.cluster.node(*replica).resume();
            }
        }
        self.cluster.wait_until_healthy()?;
        self.cluster.revive(killed)?;
        Ok(self.cluster.wait_until_healthy()?)
    }
}

/// A single server that is stopped or killed and started again on its data.
#[derive(Debug)]
pub enum Restarted {
    /// PostgreSQL.
    Postgres(Postgres),
    /// Redis.
    Redis(Redis),
}

impl Restarted {
    /// A PostgreSQL server.
    pub fn postgres() -> Checked<Self> {
        let postgres = Postgres::start()?;
        postgres.psql("CREATE DATABASE ledger")?;
        Ok(Self::Postgres(postgres))
    }

    /// A Redis server.
    pub fn redis() -> Checked<Self> {
        Ok(Self::Redis(Redis::start()?))
    }
}

impl Service for Restarted {
    fn address(&self) -> String {
        match self {
            Self::Postgres(postgres) => postgres.url("ledger"),
            Self::Redis(redis) => redis.url(),
        }
    }

    fn fail(&mut self, rng: &mut Rng) -> Checked<()> {
        let in_order = rng.chance(500);
        match self {
            Self::Postgres(postgres) if in_order => postgres.restart()?,
            Self::Postgres(postgres) => {
                postgres.kill()?;
                postgres.start_again()?;
            }
            Self::Redis(redis) if in_order => redis.restart()?,
            Self::Redis(redis) => {
                redis.kill()?;
                redis.start_again()?;
            }
        }
        Ok(())
    }
}
