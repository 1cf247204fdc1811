//! What can happen in the walk, and what an attempt did and said of itself.

use oncely_core::{Doubt, DoubtCause, DownstreamKey, Effect, Failure, Liveness, Millis, Outcome, Record};

/// What an attempt did to the world outside, whatever it said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    NotYet,
    Happened,
    Never,
}

/// What an attempt has said of itself so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Nothing,
    Succeeded,
    Rejected,
    NotStarted,
    /// Nothing: it never knew that it was an attempt.
    Withdrawn,
    Unknown,
}

/// An attempt that the machine let run.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// What its claim was written in place of.
    pub(crate) over: Option<Record>,
    /// How often the record had been removed when it started: another life is another intent.
    pub(crate) life: u64,
    pub(crate) generation: u32,
    pub(crate) key: DownstreamKey,
    pub(crate) started: Millis,
    pub(crate) fate: Fate,
    /// Whether it can still act: its process lives, or its request is still on the way.
    pub(crate) acting: bool,
    pub(crate) said: Said,
    /// A person or a probe found, truly at that time, that it had not happened.
    pub(crate) cleared: bool,
}

/// One thing that can happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Move {
    Begin {
        policy: usize,
        same_payload: bool,
        liveness: Liveness,
        checked: bool,
    },
    Complete {
        attempt: usize,
        said: Said,
    },
    Renew {
        attempt: usize,
    },
    Probed {
        policy: usize,
        doubted: usize,
        found: Found,
    },
    Resolve {
        happened: bool,
        liveness: Liveness,
    },
    Forget {
        liveness: Liveness,
    },
    Expire,
    /// The effect of an attempt reaches the world.
    Act {
        attempt: usize,
    },
    /// An attempt's process dies: it does nothing more and says nothing more.
    Crash {
        attempt: usize,
    },
    /// The begin of the latest attempt is made again, with its token: the answer was lost.
    BeginAgain {
        policy: usize,
        liveness: Liveness,
        attempt: usize,
    },
    /// The answer to a claim was lost, and it is withdrawn: this attempt's, which was written and did nothing; or one that has
    /// not been written, and was decided on where the record is as it is now.
    Withdraw {
        attempt: Option<usize>,
    },
    /// Time passes.
    Tick {
        ms: u64,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Happened,
    NotHappened,
    Unsure,
}

impl Attempt {
    /// Nobody has begun to act on it.
    pub(crate) fn is_untouched(&self) -> bool {
        self.acting && self.fate == Fate::NotYet && self.said == Said::Nothing
    }

    /// It has said itself that nothing happened, or never was one.
    pub(crate) fn denies(&self) -> bool {
        matches!(self.said, Said::Rejected | Said::NotStarted | Said::Withdrawn)
    }

    pub(crate) fn stop(&mut self) {
        self.acting = false;
        if self.fate == Fate::NotYet {
            self.fate = Fate::Never;
        }
    }
}

pub(crate) fn outcome(said: Said) -> Outcome {
    match said {
        Said::Succeeded => Outcome::Succeeded { effect: Effect::Created, result: Some(b"result"[..].into()) },
        Said::Rejected => Outcome::Rejected(Failure::new("REFUSED", "nothing happened")),
        Said::NotStarted => Outcome::not_started("UNREACHABLE", "nothing was sent"),
        Said::Nothing | Said::Withdrawn | Said::Unknown => {
            Outcome::Unknown(Doubt::new(DoubtCause::TimedOut, "no answer"))
        }
    }
}
