//! The report: what was seen of each criterion, the score that it adds up to, and what would raise it.

use serde::Serialize;

/// What was seen of one criterion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was seen to hold.
    Holds,
    /// It was seen to hold in part.
    Partly,
    /// It was seen not to hold.
    Fails,
    /// It was not looked at; the evidence says why.
    NotMeasured,
    /// It does not apply to this tool or dialect.
    NotApplicable,
}

impl Status {
    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Partly => "partly",
            Self::Fails => "fails",
            Self::NotMeasured => "not measured",
            Self::NotApplicable => "does not apply",
        }
    }
}

/// What was seen of one criterion, before it is weighed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The criterion's name in the rubric.
    pub id: &'static str,
    /// What was seen.
    pub status: Status,
    /// The observations that it rests on.
    pub evidence: Vec<String>,
    /// What would make it hold.
    pub advice: Option<String>,
}

impl Finding {
    /// A finding with its first piece of evidence.
    pub fn new(id: &'static str, status: Status, evidence: impl Into<String>) -> Self {
        Self { id, status, evidence: vec![evidence.into()], advice: None }
    }

    /// With all its evidence.
    pub fn with_all(id: &'static str, status: Status, evidence: Vec<String>) -> Self {
        Self { id, status, evidence, advice: None }
    }

    /// Says what would make it hold.
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// One criterion in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The criterion's name.
    pub id: &'static str,
    /// What it asks, for people.
    pub title: &'static str,
    /// The lowest score that needs it.
    pub needed_for: u8,
    /// What was seen.
    pub status: Status,
    /// The observations that it rests on.
    pub evidence: Vec<String>,
}

/// What stands between a tool and a higher score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Raise {
    /// The score that this stands in the way of.
    pub to: u8,
    /// The criteria of which one has to hold.
    pub criteria: Vec<&'static str>,
    /// What to do.
    pub advice: String,
}

/// The result of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What kind of thing was measured: `cli`, `http` or `mcp`.
    pub surface: &'static str,
    /// What was measured.
    pub target: String,
    /// The score that what was seen amounts to, from 0 to 3.
    pub score: u8,
    /// The score if all that was not measured held.
    pub at_most: u8,
    /// What the score means.
    pub meaning: &'static str,
    /// One row per criterion.
    pub rows: Vec<Row>,
    /// What would raise the score, nearest first.
    pub raise: Vec<Raise>,
    /// What else was seen on the way.
    pub notes: Vec<String>,
}

impl Report {
    /// Adds what else was seen.
    pub fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// The row of a criterion.
    pub fn row(&self, id: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}
