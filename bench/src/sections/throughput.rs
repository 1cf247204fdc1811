//! Durable begin + complete on a fresh ledger, against the textbook and the bare disk.

use crate::Result;
use crate::bench::{Bench, TURNS};
use crate::report::{Row, Target};
use crate::sections::faster_textbook;
use crate::stats::{Series, Turns, Unit};
use crate::textbook::{Connections, Pattern, Textbook};
use crate::{append, ours, progress};

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let mut rows = Vec::new();
    let mut how = String::new();
    for (callers, safe_target, unsafe_target) in
        [(1, None, None), (64, Some(6.0), Some(2.5)), (256, Some(8.0), None)]
    {
        let safe = faster_textbook(bench, Pattern::Safe, callers)?;
        let usual = faster_textbook(bench, Pattern::Unsafe, callers)?;
        let seen = rounds(bench, callers, safe, usual)?;
        let what =
            |against: &str| format!("begin + complete, {callers} callers, against the {against} textbook");
        for (name, baseline, target) in
            [("safe", &seen.safe, safe_target), ("unsafe", &seen.usual, unsafe_target)]
        {
            let ratio = seen.ours.over(baseline);
            let mut row = Row::new(what(name), &seen.ours, Unit::PerSecond)
                .against(&format!("{name} textbook"), baseline, Unit::PerSecond)
                .ratio(&ratio, Unit::Times);
            if let Some(target) = target {
                row = row.target(Target::AtLeast(target, Unit::Times), &ratio);
            }
            rows.push(row);
        }
        if callers == 1 {
            let ratio = seen.ours_p50.over(&seen.append_p50);
            rows.push(
                Row::new("begin + complete, one caller alone, p50", &seen.ours_p50, Unit::Time)
                    .against("two appends of 4 KiB with fdatasync", &seen.append_p50, Unit::Time)
                    .ratio(&ratio, Unit::Times)
                    .target(Target::AtMost(1.6, Unit::Times), &ratio),
            );
        } else {
            how.push_str(&format!(
                "At {callers} callers the safe textbook was faster with {}, the unsafe one with {}. ",
                safe.as_str(),
                usual.as_str()
            ));
        }
    }
    Ok((rows, how.trim_end().to_owned()))
}

#[derive(Default)]
struct Seen {
    ours: Series,
    ours_p50: Series,
    safe: Series,
    usual: Series,
    append_p50: Series,
}

fn rounds(bench: &mut Bench, callers: usize, safe: Connections, usual: Connections) -> Result<Seen> {
    let mut seen = Seen::default();
    for round in 1..=bench.rounds {
        progress(&format!("{callers} callers, round {round} of {}", bench.rounds));
        one_round(bench, callers, safe, usual, &mut seen)?;
    }
    Ok(seen)
}

/// New ledgers, and then short turns on each.
fn one_round(
    bench: &mut Bench,
    callers: usize,
    safe: Connections,
    usual: Connections,
    seen: &mut Seen,
) -> Result<()> {
    let paths: [_; 4] = std::array::from_fn(|_| bench.fresh());
    let [ours_path, safe_path, usual_path, append_path] = &paths;
    let oncely = bench.runtime.block_on(ours::open(ours_path))?;
    let safe = Textbook::open(safe_path, Pattern::Safe, safe, callers, bench.keys())?;
    let usual = Textbook::open(usual_path, Pattern::Unsafe, usual, callers, bench.keys())?;
    let turn = bench.turn();
    let [mut of_ours, mut of_safe, mut of_usual, mut of_append]: [Turns; 4] = Default::default();
    for _ in 0..TURNS {
        let keys = bench.keys();
        let style = ours::Style::BeginComplete;
        of_ours.push(bench.runtime.block_on(ours::closed_loop(&oncely, style, callers, turn, keys))?);
        if callers == 1 {
            of_append.push(append::run(append_path, turn)?);
        }
        of_safe.push(safe.run(turn)?);
        of_usual.push(usual.run(turn)?);
    }
    drop((oncely, safe, usual));
    for path in &paths {
        bench.remove(path)?;
    }
    seen.ours.push(of_ours.rate());
    seen.ours_p50.push(of_ours.p50());
    seen.append_p50.push(of_append.p50());
    seen.safe.push(of_safe.rate());
    seen.usual.push(of_usual.rate());
    Ok(())
}
