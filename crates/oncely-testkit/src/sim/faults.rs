//! What may go wrong in a simulated world, what a broken ledger does, and how often each happened.

use std::fmt;

use super::Rng;

/// How often store calls go wrong, each in a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// An error before anything is written.
    pub before: u32,
    /// The write is done, the acknowledgement is lost.
    pub lost_ack: u32,
    /// An error that proves nothing, and a write that lands later.
    pub late: u32,
    /// An error that proves nothing, and no write ever.
    pub never: u32,
    /// Reads that fail.
    pub read: u32,
}

impl Faults {
    /// No faults at all.
    pub fn none() -> Self {
        Self::default()
    }

    pub(super) fn draw(&self, rng: &mut Rng) -> Fate {
        let mut at = rng.below(1000) as u32;
        for (chance, fate) in [
            (self.before, Fate::Before),
            (self.lost_ack, Fate::LostAck),
            (self.late, Fate::Late),
            (self.never, Fate::Never),
        ] {
            if at < chance {
                return fate;
            }
            at -= chance;
        }
        Fate::Fine
    }
}

/// What becomes of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Fine,
    Before,
    LostAck,
    Late,
    Never,
    /// The error was answered; what is left is the write.
    Landing,
}

/// A promise of the store contract that a simulated ledger breaks on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Acknowledges some claims without keeping them.
    LosesClaims,
    /// Acknowledges some ends of attempts without keeping them.
    LosesEnds,
    /// Writes whatever the version is.
    IgnoresVersions,
    /// Shows records of lost owners as absent, so that they run again.
    FreesLostOwners,
    /// Purges records in doubt by age.
    PurgesDoubts,
    /// Removes records before their time.
    ForgetsEarly,
    /// Acknowledges writes that failed.
    AcknowledgesFailures,
}

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is a plain count of what its name says")]
pub struct Counts {
    pub operations: u64,
    pub errors_before: u64,
    pub lost_acks: u64,
    pub late_writes: u64,
    pub late_writes_landed: u64,
    pub never_writes: u64,
    pub read_errors: u64,
    pub dropped_calls: u64,
    pub crashes: u64,
    pub crashes_with_writes_under_way: u64,
    pub exits: u64,
    pub stale_writes_refused: u64,
    pub lease_lapses: u64,
    pub clock_jumps: u64,
    pub purged: u64,
    pub effects: u64,
}

impl Counts {
    /// Every count with its name.
    pub fn named(&self) -> [(&'static str, u64); 16] {
        [
            ("operations", self.operations),
            ("errors before the write", self.errors_before),
            ("lost acknowledgements", self.lost_acks),
            ("late writes", self.late_writes),
            ("late writes that landed", self.late_writes_landed),
            ("writes that never came", self.never_writes),
            ("failed reads", self.read_errors),
            ("dropped store calls", self.dropped_calls),
            ("crashes", self.crashes),
            ("crashes with writes under way", self.crashes_with_writes_under_way),
            ("orderly exits", self.exits),
            ("stale writes refused", self.stale_writes_refused),
            ("living owners judged lost", self.lease_lapses),
            ("clock jumps", self.clock_jumps),
            ("purged", self.purged),
            ("effects", self.effects),
        ]
    }

    /// Adds another world's counts.
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.errors_before += other.errors_before;
        self.lost_acks += other.lost_acks;
        self.late_writes += other.late_writes;
        self.late_writes_landed += other.late_writes_landed;
        self.never_writes += other.never_writes;
        self.read_errors += other.read_errors;
        self.dropped_calls += other.dropped_calls;
        self.crashes += other.crashes;
        self.crashes_with_writes_under_way += other.crashes_with_writes_under_way;
        self.exits += other.exits;
        self.stale_writes_refused += other.stale_writes_refused;
        self.lease_lapses += other.lease_lapses;
        self.clock_jumps += other.clock_jumps;
        self.purged += other.purged;
        self.effects += other.effects;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, count)) in self.named().into_iter().enumerate() {
            write!(f, "{}{count} {name}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
