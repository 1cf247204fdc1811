//! Every limit, in one place, checked against each other at compile time.

/// Longest explicit key, in bytes (visible ASCII, so also in characters).
pub const KEY_BYTES_MAX: usize = 255;
/// Longest namespace, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 128;
/// Longest scope, in bytes.
pub const SCOPE_BYTES_MAX: usize = 255;
/// Longest tool name, in bytes.
pub const TOOL_BYTES_MAX: usize = 255;
/// Largest payload that is fingerprinted, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Deepest nesting of a JSON payload.
pub const PAYLOAD_DEPTH_MAX: usize = 120;
/// Largest result that is kept for a replay, in bytes; a larger one is remembered as "happened, result not kept".
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;
/// Longest error, reason or doubt text kept in a record, in bytes.
pub const TEXT_BYTES_MAX: usize = 4 * 1024;
/// Longest name of a person or process written to the audit log, in bytes.
pub const ACTOR_BYTES_MAX: usize = 128;
/// Most selectors in a tool's `key` or `ignore` list.
pub const SELECTORS_MAX: usize = 64;
/// Most retries that a policy may grant.
pub const RETRIES_MAX: u32 = 1_000;
/// Longest duration that a policy may name, in milliseconds (ten years).
pub const DURATION_MS_MAX: u64 = 10 * 365 * DAY_MS;
/// Most callers that may wait for running attempts in one process.
pub const WAITERS_MAX: usize = 10_000;
/// Most effects that may be open in one process.
pub const OPEN_CALLS_MAX: usize = 10_000;
/// How long a probe may take, in milliseconds (60 s).
pub const PROBE_MS_MAX: u64 = 60 * 1000;
/// Most records or events in one page of a listing.
pub const PAGE_MAX: usize = 1_000;
/// Most connections to the admin API.
pub const ADMIN_CONNECTIONS_MAX: usize = 1_024;
/// Most followers of the audit log over HTTP.
pub const ADMIN_FEEDS_MAX: usize = 64;
/// Largest body of a request to the admin API, in bytes: a payload and what names it.
pub const ADMIN_BODY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1024;
/// Longest lease that a program may ask for over HTTP, in milliseconds (24 h).
pub const REMOTE_LEASE_MS_MAX: u64 = DAY_MS;

/// Longest body of a guarded HTTP request, by default (8 MiB).
pub const HTTP_BODY_BYTES: usize = 8 * 1024 * 1024;
/// Largest head of an HTTP request: its line and all its headers (64 KiB).
pub const HTTP_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Most guarded HTTP requests under way in one process, waiting ones included.
pub const HTTP_CALLS_MAX: usize = 8_192;
/// Most guarded HTTP requests under way on one key.
pub const HTTP_CALLS_PER_KEY_MAX: usize = 2_048;
/// Most bytes that the bodies of guarded HTTP requests under way, and of their answers, may take together (512 MiB).
pub const HTTP_BUFFERED_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Most HTTP connections that are open at once.
pub const HTTP_CONNECTIONS_MAX: usize = 16_384;
/// How long an HTTP body may pause before it counts as broken off, by default (60 s).
pub const HTTP_STALL_MS: u64 = 60 * 1000;

/// Most connections of clients to `oncely mcp --listen`.
pub const MCP_CONNECTIONS_MAX: usize = 512;
/// Most bytes that messages which are being read from them may take together (256 MiB), unless one may be longer.
pub const MCP_BUFFERED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Most messages that wait for one client that reads slowly.
pub const MCP_WAITING_MAX: usize = 1_024;
/// Most bytes that wait for it (16 MiB); a message that finds nothing before it, and an answer, may be longer.
pub const MCP_WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long a result is kept, by default (24 h).
pub const REPLAY_FOR_MS: u64 = DAY_MS;
/// How long the bare key is kept, by default: longer than every webhook provider resends (35 d).
pub const REMEMBER_FOR_MS: u64 = 35 * DAY_MS;
/// For how long two equal calls without a key are taken for one intent, by default (10 min).
pub const REPEAT_AFTER_MS: u64 = 10 * 60 * 1000;
/// How long a duplicate waits for a running attempt, by default (30 s).
pub const WAIT_FOR_MS: u64 = 30 * 1000;
/// How many times a certainly rejected attempt may be tried again, by default.
pub const RETRIES: u32 = 5;
/// How long an owner is believed alive without a heartbeat, where it cannot be looked at directly (30 s).
pub const LEASE_MS: u64 = 30 * 1000;
/// How often a running attempt's lease is renewed (10 s).
pub const HEARTBEAT_MS: u64 = 10 * 1000;
/// How long audit events are kept, by default.
pub const AUDIT_FOR_MS: u64 = REMEMBER_FOR_MS;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

const _: () = {
    assert!(REPLAY_FOR_MS <= REMEMBER_FOR_MS, "a result must not outlive its key");
    assert!(REPEAT_AFTER_MS <= REPLAY_FOR_MS, "a guessed intent must not outlive its result");
    assert!(3 * HEARTBEAT_MS <= LEASE_MS, "two heartbeats may be lost before a lease lapses");
    assert!(REMEMBER_FOR_MS <= DURATION_MS_MAX, "defaults are allowed values");
    assert!(RETRIES <= RETRIES_MAX, "defaults are allowed values");
    assert!(HTTP_BODY_BYTES <= PAYLOAD_BYTES_MAX, "a body fits where a payload fits");
    assert!(PAYLOAD_BYTES_MAX <= HTTP_BUFFERED_BYTES_MAX, "the longest body fits into memory");
    assert!(HTTP_CALLS_PER_KEY_MAX <= HTTP_CALLS_MAX, "one key cannot have more than all");
    assert!(RESULT_BYTES_MAX <= PAYLOAD_BYTES_MAX, "a result fits where a payload fits");
};

/// Cuts a text to at most [`TEXT_BYTES_MAX`] bytes at a character boundary, marking the cut.
pub fn clip(text: impl Into<String>) -> String {
    clip_to(text.into(), TEXT_BYTES_MAX)
}

/// Cuts a text to at most `max` bytes at a character boundary, marking the cut with an ellipsis.
pub fn clip_to(mut text: String, max: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= max {
        return text;
    }
    let mut end = max.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push_str(MARK);
    text
}

#[cfg(test)]
mod tests {
    use super::{TEXT_BYTES_MAX, clip, clip_to};

    #[test]
    fn a_clipped_text_is_short_whole_and_marked() {
        assert_eq!(clip("short"), "short");
        let cut = clip("ä".repeat(TEXT_BYTES_MAX));
        assert!(cut.len() <= TEXT_BYTES_MAX && cut.ends_with('…'));
        assert_eq!(clip_to("abcdef".into(), 5), "ab…");
    }
}
