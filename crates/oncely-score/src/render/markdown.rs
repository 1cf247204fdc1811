//! A report as Markdown.

use std::fmt::Write as _;

use crate::report::Report;

/// A report as Markdown.
pub fn markdown(report: &Report) -> String {
    let mut text = String::new();
    let open = if report.at_most > report.score {
        format!(" (up to {}, if what was not measured held)", report.at_most)
    } else {
        String::new()
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# Safe retries: {} of 3{open}\n", report.score);
    let _ = writeln!(text, "`{}`: {}\n", report.target.replace('`', "'"), report.meaning);
    let _ = writeln!(text, "| criterion | needed for | seen | evidence |\n|---|---|---|---|");
    for row in &report.rows {
        let evidence: Vec<String> = row.evidence.iter().map(|line| cell(line)).collect();
        let (title, status) = (row.title, row.status.as_str());
        let _ = writeln!(text, "| {title} | {} | {status} | {} |", row.needed_for, evidence.join("<br>"));
    }
    if !report.raise.is_empty() {
        let _ = writeln!(text, "\n## What would raise it\n");
        for raise in &report.raise {
            let _ = writeln!(
                text,
                "- to {}: {} ({})",
                raise.to,
                cell(&raise.advice),
                raise.criteria.join(" or ")
            );
        }
    }
    if !report.notes.is_empty() {
        let _ = writeln!(text, "\n## Notes\n");
        for note in &report.notes {
            let _ = writeln!(text, "- {}", cell(note));
        }
    }
    text
}

/// A text that cannot break out of its cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}
