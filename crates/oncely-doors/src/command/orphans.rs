//! Finds processes that outlived their runner: a probe's "it has not happened" means little while they still work.

use oncely_core::AttemptToken;
use oncely_core::name::hex;

use super::TOKEN_VARIABLE;

/// A process that carries the attempt's token in its environment, if one lives. What belongs to other users, or has
/// dropped its environment, is not seen.
pub fn find(token: AttemptToken) -> Option<u32> {
    let wanted = format!("{TOKEN_VARIABLE}={}", hex(&token.0));
    let own = std::process::id();
    std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        let carries = environment.split(|b| *b == 0).any(|variable| variable == wanted.as_bytes());
        (carries && pid != own).then_some(pid)
    })
}
