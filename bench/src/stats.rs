//! Figures: percentiles of latencies, and medians with their spread over rounds.

use std::time::Duration;

/// What one run of one subject showed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    /// How many begin + complete pairs ended.
    pub(crate) pairs: u64,
    /// From the first start to the last end, in seconds.
    pub(crate) seconds: f64,
    /// Begin + complete, median, in seconds.
    pub(crate) p50: f64,
    /// Begin + complete, 99th percentile, in seconds.
    pub(crate) p99: f64,
    /// Begin + complete, worst, in seconds.
    pub(crate) max: f64,
    /// Begin alone, 99th percentile, in seconds.
    pub(crate) begin_p99: f64,
}

impl Sample {
    /// Works out the figures from latencies.
    pub(crate) fn of(elapsed: Duration, mut pairs: Vec<Duration>, mut begins: Vec<Duration>) -> Self {
        pairs.sort_unstable();
        begins.sort_unstable();
        Self {
            pairs: pairs.len() as u64,
            seconds: elapsed.as_secs_f64(),
            p50: percentile(&pairs, 0.50),
            p99: percentile(&pairs, 0.99),
            max: percentile(&pairs, 1.0),
            begin_p99: percentile(&begins, 0.99),
        }
    }

    /// Pairs per second.
    pub(crate) fn rate(&self) -> f64 {
        self.pairs as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// One line for a pipe between processes.
    pub(crate) fn to_line(self) -> String {
        let Self { pairs, seconds, p50, p99, max, begin_p99 } = self;
        format!("{pairs} {seconds} {p50} {p99} {max} {begin_p99}")
    }

    /// Reads [`to_line`](Self::to_line).
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(str::parse::<f64>);
        let mut next = || numbers.next()?.ok();
        Some(Self {
            pairs: next()? as u64,
            seconds: next()?,
            p50: next()?,
            p99: next()?,
            max: next()?,
            begin_p99: next()?,
        })
    }
}

/// The turns that one subject took in a round, put together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    pairs: u64,
    seconds: f64,
    p50: Series,
}

impl Turns {
    pub(crate) fn push(&mut self, sample: Sample) {
        self.pairs += sample.pairs;
        self.seconds += sample.seconds;
        self.p50.push(sample.p50);
    }

    /// Pairs per second over all turns.
    pub(crate) fn rate(&self) -> f64 {
        self.pairs as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// The middle one of the turns' medians.
    pub(crate) fn p50(&self) -> f64 {
        self.p50.median()
    }
}

/// The value below which a share of the sorted latencies lies, in seconds.
pub(crate) fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted[at.saturating_sub(1).min(last)].as_secs_f64()
}

/// Sorts latencies and gives the median and the 99th percentile, in seconds.
pub(crate) fn p50_p99(mut latencies: Vec<Duration>) -> (f64, f64) {
    latencies.sort_unstable();
    (percentile(&latencies, 0.50), percentile(&latencies, 0.99))
}

/// One figure over all rounds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        match sorted.len() {
            0 => f64::NAN,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        }
    }

    pub(crate) fn min(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Round by round, this over that: what both share of the machine's mood cancels out.
    pub(crate) fn over(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a / b).collect())
    }

    /// Round by round, this less that.
    pub(crate) fn less(&self, other: &Self) -> Self {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a - b).collect())
    }

    /// "median (min–max)".
    pub(crate) fn show(&self, unit: Unit) -> String {
        if self.0.len() < 2 {
            return unit.show(self.median());
        }
        format!("{} ({}–{})", unit.show(self.median()), unit.show(self.min()), unit.show(self.max()))
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// How a figure is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Pairs per second.
    PerSecond,
    /// Seconds, written in what suits.
    Time,
    /// So many times.
    Times,
    /// Bytes, written in MB.
    Megabytes,
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond if value >= 10_000.0 => format!("{:.1} k/s", value / 1e3),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Time if value.abs() >= 1e-3 => format!("{:.2} ms", value * 1e3),
            Self::Time => format!("{:.2} µs", value * 1e6),
            Self::Times => format!("{value:.2} ×"),
            Self::Megabytes => format!("{:.0} MB", value / 1e6),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Sample, Series, percentile};

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted: Vec<_> = (1..=100).map(Duration::from_secs).collect();
        assert_eq!(percentile(&sorted, 0.50), 50.0);
        assert_eq!(percentile(&sorted, 0.99), 99.0);
        assert_eq!(percentile(&sorted, 1.0), 100.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let a: Series = [10.0, 40.0, 90.0].into_iter().collect();
        let b: Series = [1.0, 2.0, 3.0].into_iter().collect();
        assert_eq!(a.over(&b).median(), 20.0);
        assert_eq!(a.less(&b).max(), 87.0);
    }

    #[test]
    fn a_sample_survives_the_pipe() {
        let sample = Sample { pairs: 3, seconds: 1.5, p50: 0.1, p99: 0.2, max: 0.3, begin_p99: 0.15 };
        let read = Sample::from_line(&sample.to_line()).map(Sample::to_line);
        assert_eq!(read, Some(sample.to_line()));
        assert!(Sample::from_line("1 2").is_none());
    }
}
