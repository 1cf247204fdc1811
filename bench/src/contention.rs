//! How much of the machine others used while we measured: a ratio from a disturbed run must not look like any other.
//!
//! Taking turns helps only against trouble that lasts much longer than a turn. On a machine where a compiler comes and
//! goes, one side of a comparison can meet it and the other not, and the ratio is then wrong by any factor.

use std::fs::read_to_string;

/// A share of the processors beyond which the figures prove nothing.
const TOO_MUCH: f64 = 0.05;

/// Processor time so far, in ticks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    all: u64,
    busy: u64,
    own: u64,
}

impl Meter {
    /// Starts to measure; `None` where the system does not tell.
    pub(crate) fn start() -> Option<Self> {
        let stat = read_to_string("/proc/stat").ok()?;
        let (all, busy) = machine(&stat)?;
        let own = process(&read_to_string("/proc/self/stat").ok()?)?;
        Some(Self { all, busy, own })
    }

    /// The share of all processor time since then that neither idled nor was ours.
    fn others(self, now: Self) -> f64 {
        let busy = now.busy.saturating_sub(self.busy);
        let own = now.own.saturating_sub(self.own);
        busy.saturating_sub(own) as f64 / now.all.saturating_sub(self.all).max(1) as f64
    }
}

/// A sentence on what others did since the meter was started.
pub(crate) fn sentence(since: Option<Meter>) -> String {
    let Some((since, now)) = since.zip(Meter::start()) else {
        return "What other programs did meanwhile is not known.".to_owned();
    };
    let others = since.others(now);
    let warning = if others > TOO_MUCH { ": **disturbed; these verdicts prove nothing**" } else { "" };
    format!("Other programs used {:.0} % of the processors meanwhile{warning}.", others * 100.0)
}

/// All ticks and those not idle, from the first line of `/proc/stat`. Waiting for the disk is idle; stolen time is not.
fn machine(stat: &str) -> Option<(u64, u64)> {
    let numbers: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
    let [_, _, _, idle, waiting, ..] = numbers.as_slice() else { return None };
    let all: u64 = numbers.iter().sum();
    Some((all, all - idle - waiting))
}

/// Ticks of this process and of the children that it has waited for.
fn process(stat: &str) -> Option<u64> {
    // The name, in brackets, may hold anything; what follows is numbers.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<u64> = rest.split_whitespace().skip(11).take(4).flat_map(str::parse).collect();
    (fields.len() == 4).then(|| fields.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::{Meter, machine, process};

    #[test]
    fn others_are_what_was_neither_idle_nor_ours() {
        let (all, busy) = machine("cpu  10 0 20 60 5 1 2 2 0 0\ncpu0 1").unwrap();
        assert_eq!((all, busy), (100, 35));
        assert_eq!(process("7 (a) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), Some(11 + 12 + 13 + 14));
        let start = Meter { all: 0, busy: 0, own: 0 };
        assert_eq!(start.others(Meter { all, busy, own: 15 }), 0.2);
    }
}
