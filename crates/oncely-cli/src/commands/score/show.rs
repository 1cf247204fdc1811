//! Prints a report: as a table, JSON, Markdown or JUnit XML.

use oncely_score::rubric::Rubric;
use oncely_score::{Report, Row, Status, render};

use super::{Common, Format};
use crate::args::Global;
use crate::output::{self, Tone};

/// Prints a report in the format that was asked for.
pub(super) fn print(global: &Global, common: &Common, rubric: &Rubric, report: &Report) {
    let unasked = if output::wants_json(global.json) { Format::Json } else { Format::Table };
    match common.format.unwrap_or(unasked) {
        Format::Table => table(report),
        Format::Json => output::print_json(report),
        Format::Markdown => output::print(render::markdown(report).trim_end()),
        Format::Junit => output::print(render::junit(report, rubric, common.min).trim_end()),
    }
}

fn table(report: &Report) {
    let mut table = output::table(&["CRITERION", "FOR", "SEEN", "EVIDENCE"]);
    for row in &report.rows {
        let mut evidence = row.evidence.iter();
        table.add_row([
            output::cell(Tone::Plain, row.title),
            output::cell(Tone::Dim, &row.needed_for.to_string()),
            output::cell(tone(row), row.status.as_str()),
            output::cell(Tone::Plain, evidence.next().map_or("", |line| line)),
        ]);
        for line in evidence {
            let empty = || output::cell(Tone::Plain, "");
            table.add_row([empty(), empty(), empty(), output::cell(Tone::Plain, line)]);
        }
    }
    output::print_table(&table);
    let open = if report.at_most > report.score {
        format!(", up to {} if what was not measured held", report.at_most)
    } else {
        String::new()
    };
    let tone = [Tone::Loud, Tone::Warn, Tone::Busy, Tone::Good][usize::from(report.score.min(3))];
    let score = output::paint(tone, &format!("{} of 3", report.score));
    output::print(&format!("\n{}: {score}{open}: {}", output::clean(&report.target), report.meaning));
    for raise in &report.raise {
        output::print(&format!("  to {}: {}", raise.to, output::clean(&raise.advice)));
    }
    for note in &report.notes {
        output::print(&output::paint(Tone::Dim, &format!("  {}", output::clean(note))));
    }
}

fn tone(row: &Row) -> Tone {
    match row.status {
        Status::Holds => Tone::Good,
        Status::Partly => Tone::Warn,
        Status::Fails => Tone::Loud,
        Status::NotMeasured | Status::NotApplicable => Tone::Dim,
    }
}
