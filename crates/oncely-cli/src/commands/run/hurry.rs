//! Whoever asks `oncely run` to end while it only tidies up is not kept waiting.

use std::future::Future;

use oncely_doors::command::child::PassedSignals;

/// Hears a signal that asks for the end, from the moment it is made.
///
/// What is tidied up can wait for a ledger that is away. To leave before it is done is safe: a claim that may have been
/// written, and an end that may not have been, are found in doubt.
pub struct Hurry {
    signals: PassedSignals,
    asked: bool,
}

impl Hurry {
    pub fn heard_by(signals: PassedSignals) -> Self {
        Self { signals, asked: false }
    }

    /// The same; somebody may have asked already.
    pub fn or_asked(mut self, asked: bool) -> Self {
        self.asked |= asked;
        self
    }

    pub fn is_asked(&self) -> bool {
        self.asked
    }

    /// What the work came to; nothing once somebody has asked for the end.
    pub async fn unless_asked<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        if self.asked {
            return None;
        }
        tokio::select! {
            biased;
            done = work => Some(done),
            _ = self.signals.next() => {
                self.asked = true;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, raise};
    use oncely_doors::command::child::PassedSignals;

    use super::Hurry;

    #[tokio::test]
    async fn whoever_asks_for_the_end_ends_every_wait_from_then_on() {
        let mut hurry = Hurry::heard_by(PassedSignals::catch().unwrap());
        assert_eq!(hurry.unless_asked(async { 1 }).await, Some(1));
        raise(Signal::SIGTERM).unwrap();
        assert_eq!(hurry.unless_asked(std::future::pending::<()>()).await, None);
        assert_eq!(hurry.unless_asked(async { 2 }).await, None);
    }
}
