//! Turns a report into text: Markdown for people, JUnit XML for continuous integration. JSON is the report as it is.

mod junit;
mod markdown;

pub use junit::junit;
pub use markdown::markdown;
