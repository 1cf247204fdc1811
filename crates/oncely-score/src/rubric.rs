//! The rubrics: which criteria there are for a command, an HTTP endpoint and an MCP server, and what each score needs.

use crate::report::{Finding, Raise, Report, Row, Status};

mod tables;

pub use tables::{CLI, HTTP, MCP};

/// One observable criterion.
#[derive(Debug, Clone, Copy)]
pub struct Criterion {
    /// Its name in reports.
    pub id: &'static str,
    /// What it asks.
    pub title: &'static str,
    /// When it holds, as the documentation says it.
    pub holds_when: &'static str,
}

/// How well a criterion has to do for a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It was seen to hold.
    Holds,
    /// It was seen to hold at least in part.
    Partly,
    /// It was not seen to fail.
    NotFailing,
}

impl Need {
    fn is_met(self, status: Status) -> bool {
        match self {
            Self::Holds => matches!(status, Status::Holds | Status::NotApplicable),
            Self::Partly => matches!(status, Status::Holds | Status::Partly | Status::NotApplicable),
            Self::NotFailing => status != Status::Fails,
        }
    }
}

/// What a score needs: at least one of these.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The score.
    pub score: u8,
    /// The criteria, of which one is enough.
    pub any_of: &'static [(&'static str, Need)],
}

/// The criteria and rules of one kind of tool. A score is reached when its rules and those of all lower ones are met.
#[derive(Debug, Clone, Copy)]
pub struct Rubric {
    /// `cli`, `http` or `mcp`.
    pub surface: &'static str,
    /// What each score means.
    pub meanings: [&'static str; 4],
    /// The criteria, in the order of a report.
    pub criteria: &'static [Criterion],
    /// What each score needs.
    pub rules: &'static [Rule],
}

impl Rubric {
    /// Weighs what was seen. A criterion without a finding counts as not measured.
    pub fn report(&self, target: String, findings: Vec<Finding>) -> Report {
        let status = |id: &str| {
            findings.iter().find(|finding| finding.id == id).map_or(Status::NotMeasured, |f| f.status)
        };
        let hoped = |id: &str| match status(id) {
            Status::NotMeasured => Status::Holds,
            seen => seen,
        };
        let score = self.reached(status);
        let at_most = self.reached(hoped);
        let mut raises: Vec<Raise> = Vec::new();
        for next in self.unmet(status).map(|rule| raise(rule, &findings)) {
            // The same advice for several criteria is said once.
            match raises.iter_mut().find(|known| known.advice == next.advice && known.to == next.to) {
                Some(known) => known.criteria.extend(next.criteria),
                None => raises.push(next),
            }
        }
        let rows = self.criteria.iter().map(|criterion| self.row(criterion, &findings)).collect();
        Report {
            surface: self.surface,
            target,
            score,
            at_most,
            meaning: self.meanings[usize::from(score)],
            rows,
            raise: raises,
            notes: Vec::new(),
        }
    }

    /// The rules of scores up to this one that are not met.
    pub fn unmet_up_to<'a>(&'a self, score: u8, report: &'a Report) -> impl Iterator<Item = &'a Rule> {
        let status = |id: &str| report.row(id).map_or(Status::NotMeasured, |row| row.status);
        self.unmet(status).filter(move |rule| rule.score <= score)
    }

    /// The lowest score that needs a criterion.
    pub fn needed_for(&self, id: &str) -> u8 {
        let naming = self.rules.iter().filter(|rule| rule.any_of.iter().any(|(named, _)| *named == id));
        naming.map(|rule| rule.score).min().unwrap_or(3)
    }

    fn reached(&self, status: impl Fn(&str) -> Status) -> u8 {
        self.unmet(status).map(|rule| rule.score - 1).min().unwrap_or(3)
    }

    fn unmet<'a>(&'a self, status: impl Fn(&str) -> Status + 'a) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(move |rule| !rule.any_of.iter().any(|(id, need)| need.is_met(status(id))))
    }

    fn row(&self, criterion: &Criterion, findings: &[Finding]) -> Row {
        let found = findings.iter().find(|finding| finding.id == criterion.id);
        Row {
            id: criterion.id,
            title: criterion.title,
            needed_for: self.needed_for(criterion.id),
            status: found.map_or(Status::NotMeasured, |finding| finding.status),
            evidence: found.map_or_else(Vec::new, |finding| finding.evidence.clone()),
        }
    }
}

fn raise(rule: &Rule, findings: &[Finding]) -> Raise {
    let named = |id: &str| findings.iter().find(|finding| finding.id == id);
    let mut advice: Vec<&str> =
        rule.any_of.iter().filter_map(|(id, _)| named(id)?.advice.as_deref()).collect();
    if advice.is_empty() {
        advice.push("measure it");
    }
    Raise {
        to: rule.score,
        criteria: rule.any_of.iter().map(|(id, _)| *id).collect(),
        advice: advice.join("; or "),
    }
}

#[cfg(test)]
mod tests {
    use super::{CLI, HTTP, MCP};
    use crate::report::{Finding, Status};

    fn all(status: Status) -> Vec<Finding> {
        CLI.criteria.iter().map(|c| Finding::new(c.id, status, "seen")).collect()
    }

    #[test]
    fn a_score_needs_all_that_the_lower_ones_need() {
        let score = |findings| CLI.report("tool".into(), findings).score;
        assert_eq!(score(all(Status::Holds)), 3);
        assert_eq!(score(all(Status::Fails)), 0);
        for criterion in CLI.criteria {
            let mut findings = all(Status::Holds);
            findings.retain(|finding| finding.id != criterion.id);
            let report = CLI.report("tool".into(), findings);
            assert!(report.score < 3, "{} is needed for nothing", criterion.id);
            assert_eq!(report.at_most, 3, "what was not measured might hold");
            assert!(!report.raise.is_empty());
        }
    }

    #[test]
    fn what_was_not_measured_counts_for_nothing() {
        for rubric in [CLI, HTTP] {
            let report = rubric.report("tool".into(), Vec::new());
            assert_eq!((report.score, report.at_most), (0, 3), "{}", rubric.surface);
        }
    }

    #[test]
    fn rules_name_criteria_that_exist_and_scores_that_exist() {
        for rubric in [CLI, HTTP, MCP] {
            for rule in rubric.rules {
                assert!((1..=3).contains(&rule.score));
                for (id, _) in rule.any_of {
                    assert!(rubric.criteria.iter().any(|c| c.id == *id), "{id}");
                }
            }
            for criterion in rubric.criteria {
                let named = rubric.rules.iter().flat_map(|r| r.any_of).any(|(id, _)| *id == criterion.id);
                assert!(named, "{} matters to no score", criterion.id);
            }
        }
    }
}
