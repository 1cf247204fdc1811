//! Who runs an attempt, and how its life is judged.

/// The process that runs an attempt, named so that no later process can be mistaken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ProcessId {
    /// The boot of the machine: process numbers start again with each.
    pub boot: [u8; 16],
    /// The process-number namespace (a container has its own), as the kernel numbers it.
    pub pid_namespace: u64,
    /// The process number.
    pub pid: u32,
    /// When the process started, in the kernel's ticks since boot: process numbers wrap within minutes. Where that cannot
    /// be seen, a number that no other process has, with its highest bit set.
    pub started_ticks: u64,
}

/// The owner of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Owner {
    /// The process.
    pub process: ProcessId,
    /// The host it runs on.
    pub host: String,
}

impl Owner {
    /// Somebody who cannot be looked at from anywhere and is known by a lease alone: a program that talks to the ledger
    /// over HTTP.
    pub fn remote(holder: &str) -> Self {
        let host = crate::limits::clip_to(holder.to_owned(), crate::limits::ACTOR_BYTES_MAX);
        Self { process: ProcessId::default(), host }
    }

    /// Whether a lease is all that is known of it. No process has the number 0 on a boot without an id.
    pub fn is_remote(&self) -> bool {
        self.process == ProcessId::default()
    }
}

/// A random 128-bit token that names one attempt of one process and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AttemptToken(pub [u8; 16]);

/// What can be seen of the owner of a running attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// It lives.
    Alive,
    /// It is gone.
    Lost,
    /// It cannot be looked at from here: its lease decides.
    ByLease,
}
