//! A report as JUnit XML. It fails where the exit code fails: at what the demanded score needs and does not get.

use std::fmt::Write as _;

use crate::report::{Report, Row, Status};
use crate::rubric::Rubric;

/// A report as JUnit XML. `min` is the demanded score.
pub fn junit(report: &Report, rubric: &Rubric, min: Option<u8>) -> String {
    let demanded = min.unwrap_or(0);
    let blocking: Vec<&str> =
        rubric.unmet_up_to(demanded, report).flat_map(|rule| rule.any_of.iter().map(|(id, _)| *id)).collect();
    let cases: Vec<Case> = report.rows.iter().map(|row| Case::of(row, &blocking, demanded)).collect();
    let count = |outcome| cases.iter().filter(|case| case.outcome == outcome).count();
    let (failures, skipped) = (count(Outcome::Failed), count(Outcome::Skipped));
    let name = format!("oncely score {}", report.surface);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail.
    let _ =
        writeln!(xml, "<testsuites tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\">", cases.len());
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">",
        escape(&name),
        cases.len()
    );
    let _ = writeln!(
        xml,
        "    <properties>\n      <property name=\"target\" value=\"{}\"/>\n      <property name=\"score\" value=\"{}\"/>\n      \
         <property name=\"at_most\" value=\"{}\"/>\n    </properties>",
        escape(&report.target),
        report.score,
        report.at_most
    );
    for case in &cases {
        case.write(&mut xml, report.surface);
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

struct Case<'a> {
    row: &'a Row,
    outcome: Outcome,
    message: String,
}

impl<'a> Case<'a> {
    fn of(row: &'a Row, blocking: &[&str], demanded: u8) -> Self {
        let fine = matches!(row.status, Status::Holds | Status::NotApplicable);
        let outcome = match (fine, blocking.contains(&row.id)) {
            (true, _) => Outcome::Passed,
            (false, true) => Outcome::Failed,
            (false, false) => Outcome::Skipped,
        };
        let message = match outcome {
            Outcome::Failed => format!("{}; a score of {demanded} needs it", row.status.as_str()),
            _ => format!("{}; the demanded score does not need it", row.status.as_str()),
        };
        Self { row, outcome, message }
    }

    fn write(&self, xml: &mut String, surface: &str) {
        let (class, name) = (format!("oncely.score.{surface}"), escape(self.row.title));
        let _ = writeln!(xml, "    <testcase classname=\"{class}\" name=\"{name}\">");
        let evidence = escape(&self.row.evidence.join("\n"));
        let message = escape(&self.message);
        let _ = match self.outcome {
            Outcome::Passed => writeln!(xml, "      <system-out>{evidence}</system-out>"),
            Outcome::Failed => writeln!(xml, "      <failure message=\"{message}\">{evidence}</failure>"),
            Outcome::Skipped => writeln!(
                xml,
                "      <skipped message=\"{message}\"/>\n      <system-out>{evidence}</system-out>"
            ),
        };
        xml.push_str("    </testcase>\n");
    }
}

/// Text for XML; characters that XML cannot hold at all are replaced.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\t' => out.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}')
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::junit;
    use crate::report::{Finding, Status};
    use crate::rubric::CLI;

    #[test]
    fn it_fails_exactly_where_the_demanded_score_is_not_met() {
        let finding = Finding::new("dry_run", Status::Holds, "a < b & \"c\" \x1b");
        let report = CLI.report("tool --x '<y>'".into(), vec![finding]);
        assert_eq!(report.score, 1);
        for min in [None, Some(0), Some(1)] {
            assert!(!junit(&report, &CLI, min).contains("<failure"), "{min:?}");
        }
        let demanded = junit(&report, &CLI, Some(2));
        assert_eq!(demanded.matches("<failure").count(), 2, "{demanded}");
        assert!(demanded.contains("a &lt; b &amp; &quot;c&quot; \u{fffd}"), "{demanded}");
    }
}
