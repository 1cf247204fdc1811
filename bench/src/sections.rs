//! The sections, one per group of promises.

mod clap;
mod cli;
mod growth;
mod http;
mod mcp;
mod million;
mod peer;
mod plain_postgres;
mod postgres;
mod postgres_growth;
mod processes;
mod purge;
mod redis;
mod replay;
mod throughput;
mod wake;

use std::time::Duration;

use crate::Result;
use crate::bench::Bench;
use crate::progress;
use crate::report::Row;
use crate::textbook::{Connections, Pattern, Textbook};

/// A section measures and returns its rows and a sentence on how.
type Section = fn(&mut Bench) -> Result<(Vec<Row>, String)>;

/// All sections, in the order of the documentation.
pub(crate) const ALL: [(&str, Section); 14] = [
    ("throughput", throughput::measure),
    ("million", million::measure),
    ("processes", processes::measure),
    ("peer", peer::measure),
    ("replay", replay::measure),
    ("wake", wake::measure),
    ("cli", cli::measure),
    ("clap", clap::measure),
    ("mcp", mcp::measure),
    ("http", http::measure),
    ("postgres", postgres::measure),
    ("redis", redis::measure),
    ("purge", purge::measure),
    ("growth", growth::measure),
];

/// The names of all sections.
pub(crate) fn names() -> Vec<&'static str> {
    ALL.iter().map(|(name, _)| *name).collect()
}

/// Which way of sharing the file suits the textbook best with so many callers: tried, not assumed.
fn faster_textbook(bench: &mut Bench, pattern: Pattern, callers: usize) -> Result<Connections> {
    if callers == 1 {
        return Ok(Connections::Shared);
    }
    let duration = bench.duration.max(Duration::from_millis(500)) / 2;
    let mut best = (Connections::Shared, 0.0);
    for connections in Connections::ALL {
        let (path, keys) = (bench.fresh(), bench.keys());
        let rate = Textbook::open(&path, pattern, connections, callers, keys)?.run(duration)?.rate();
        bench.remove(&path)?;
        if rate > best.1 {
            best = (connections, rate);
        }
    }
    progress(&format!("{pattern:?} textbook, {callers} callers: {} is faster", best.0.as_str()));
    Ok(best.0)
}
