//! What a ledger on PostgreSQL has limits for; docs/limits.md lists them.

use std::time::Duration;

/// Most connections in one pool.
pub const POOL_MAX: usize = 256;
/// Most requests in one statement. Their numbers fit into the low bits of an id.
pub const BATCH_MAX: usize = 256;
/// Most bytes in one statement, unless a single request is larger.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes that may wait.
pub const QUEUE_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Most events in one request: the log has room for so many from each request of a statement.
pub const EVENTS_MAX: usize = 128;
/// How long an answer is awaited. A caller waits for its claim for less; others, an end above all, are worth more patience.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// How long a statement for many waits for a record that another transaction holds: then they go apart.
pub const HELD_AMONG: Duration = Duration::from_millis(100);
/// How long after that, for each part of them.
pub const HELD_APART: Duration = Duration::from_millis(10);
/// How long a single request waits for it, in all.
pub const HELD_ALONE: Duration = Duration::from_secs(1);

const _: () = {
    assert!(BATCH_MAX < 1 << 16, "a number in a batch fits into the low bits of an id");
    assert!(BATCH_MAX * EVENTS_MAX < 1 << 16, "and so does an event's in the log");
};
