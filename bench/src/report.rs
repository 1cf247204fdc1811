//! What is printed: one row per promise, as a table for people and as Markdown for the documentation.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Result;
use crate::stats::{Series, Unit};

const BEGIN: &str = "<!-- results:begin -->";
const END: &str = "<!-- results:end -->";

/// What a figure has to reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64, Unit),
    AtMost(f64, Unit),
}

impl Target {
    fn show(self) -> String {
        match self {
            Self::AtLeast(value, unit) => format!("≥ {}", round(unit.show(value))),
            Self::AtMost(value, unit) => format!("≤ {}", round(unit.show(value))),
        }
    }

    fn met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least, _) => value >= least,
            Self::AtMost(most, _) => value <= most,
        }
    }
}

/// Targets are round numbers; write them so.
fn round(text: String) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// One promise: what was measured, against what, and whether it holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    what: String,
    measured: String,
    baseline: String,
    ratio: String,
    target: String,
    met: Option<bool>,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, measured: &Series, unit: Unit) -> Self {
        Self { what: what.into(), measured: measured.show(unit), ..Self::default() }
    }

    /// What it is compared with.
    pub(crate) fn against(mut self, name: &str, baseline: &Series, unit: Unit) -> Self {
        self.baseline = format!("{name}: {}", baseline.show(unit));
        self
    }

    /// How the two relate.
    pub(crate) fn ratio(mut self, ratio: &Series, unit: Unit) -> Self {
        self.ratio = ratio.show(unit);
        self
    }

    /// What the median of `judged` has to reach.
    pub(crate) fn target(mut self, target: Target, judged: &Series) -> Self {
        self.target = target.show();
        self.met = Some(target.met(judged.median()));
        self
    }

    /// As [`target`](Self::target), where every round has to reach it.
    pub(crate) fn target_by_worst(mut self, target: Target, judged: &Series) -> Self {
        let worst = match target {
            Target::AtLeast(..) => judged.min(),
            Target::AtMost(..) => judged.max(),
        };
        self.target = format!("{}, every time", target.show());
        self.met = Some(target.met(worst));
        self
    }

    fn cells(&self) -> [&str; 6] {
        let verdict = match self.met {
            Some(true) => "met",
            Some(false) => "NOT met",
            None => "",
        };
        [&self.what, &self.measured, &self.baseline, &self.ratio, &self.target, verdict]
    }
}

const HEADS: [&str; 6] = ["what", "measured", "compared with", "relation", "target", "verdict"];

/// The rows of one section.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) rows: Vec<Row>,
    /// How it was measured.
    pub(crate) note: String,
}

impl Section {
    /// Aligned columns for a terminal.
    pub(crate) fn table(&self) -> String {
        let mut widths = HEADS.map(|head| head.chars().count());
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row.cells()) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: [&str; 6]| {
            let padded = cells
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.chars().count())));
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let mut text = format!("\n{}  ({})\n{}\n", self.name, self.note, line(HEADS));
        for row in &self.rows {
            text.push_str(&line(row.cells()));
            text.push('\n');
        }
        text
    }

    /// The same as Markdown, under a heading of its own.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: [&str; 6]| format!("| {} |\n", cells.join(" | "));
        let mut text = format!("### {}\n\n{}|---|---|---|---|---|---|\n", self.name, line(HEADS));
        for row in &self.rows {
            let mut cells = row.cells();
            if row.met == Some(false) {
                cells[5] = "**not met**";
            }
            text.push_str(&line(cells));
        }
        text.push_str(&format!("\n{}\n", self.note));
        text
    }

    /// Promises kept, and all promises.
    pub(crate) fn score(&self) -> (usize, usize) {
        let judged = self.rows.iter().filter_map(|row| row.met);
        (judged.clone().filter(|met| *met).count(), judged.count())
    }
}

/// All sections as Markdown.
pub(crate) fn markdown(sections: &[Section]) -> String {
    sections.iter().map(Section::markdown).collect::<Vec<_>>().join("\n")
}

/// Puts sections between the page's markers. Sections that were not run keep what is there.
pub(crate) fn write_docs(page: &Path, sections: &[Section], order: &[&'static str]) -> Result<()> {
    let text = std::fs::read_to_string(page).map_err(|e| format!("cannot read {}: {e}", page.display()))?;
    let merged = merge(&text, sections, order).ok_or_else(|| {
        format!("{} has no {BEGIN} … {END}; add the two markers where the results belong", page.display())
    })?;
    std::fs::write(page, merged).map_err(|e| format!("cannot write {}: {e}", page.display()).into())
}

fn merge(page: &str, sections: &[Section], order: &[&'static str]) -> Option<String> {
    let (head, rest) = page.split_once(BEGIN)?;
    let (old, tail) = rest.split_once(END)?;
    let mut parts: BTreeMap<String, String> = BTreeMap::new();
    for part in old.split("\n### ").skip(1) {
        let name = part.lines().next().unwrap_or_default().trim();
        parts.insert(name.to_owned(), format!("### {}\n", part.trim_end()));
    }
    for section in sections {
        parts.insert(section.name.to_owned(), section.markdown());
    }
    let body: Vec<String> = order.iter().filter_map(|name| parts.remove(*name)).collect();
    Some(format!("{head}{BEGIN}\n\n{}\n{END}{tail}", body.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, Row, Section, Target, merge};
    use crate::stats::{Series, Unit};

    fn section(name: &'static str, value: f64) -> Section {
        let series: Series = [value].into_iter().collect();
        let row = Row::new("x", &series, Unit::Times).target(Target::AtLeast(2.5, Unit::Times), &series);
        Section { name, rows: vec![row], note: "note".into() }
    }

    #[test]
    fn sections_that_were_not_run_keep_their_results() {
        let order = ["a", "b"];
        let page = format!("top\n{BEGIN}\n{END}\nend\n");
        let once = merge(&page, &[section("b", 1.0)], &order).unwrap();
        let twice = merge(&once, &[section("a", 3.0)], &order).unwrap();
        assert!(twice.starts_with("top\n") && twice.ends_with("\nend\n"));
        assert!(twice.find("### a").unwrap() < twice.find("### b").unwrap());
        assert!(twice.contains("**not met**"));
        assert_eq!(merge(&twice, &[section("a", 3.0)], &order).unwrap(), twice);
    }

    #[test]
    fn a_page_without_markers_is_left_alone() {
        assert!(merge("nothing here", &[section("a", 1.0)], &["a"]).is_none());
    }

    #[test]
    fn targets_are_written_as_round_numbers() {
        assert_eq!(Target::AtLeast(6.0, Unit::Times).show(), "≥ 6 ×");
        assert_eq!(Target::AtLeast(2.5, Unit::Times).show(), "≥ 2.5 ×");
        assert_eq!(Target::AtMost(0.003, Unit::Time).show(), "≤ 3 ms");
        assert_eq!(Target::AtMost(3e-6, Unit::Time).show(), "≤ 3 µs");
        assert_eq!(Target::AtLeast(10.0, Unit::Times).show(), "≥ 10 ×");
        assert_eq!(Target::AtMost(20e-3, Unit::Time).show(), "≤ 20 ms");
    }
}
