//! The page about the score says what the rubric says, word for word.

use oncely_score::rubric::{CLI, HTTP, MCP, Need};

#[test]
fn the_page_has_every_criterion_and_every_score() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/score.md")).unwrap();
    let mut missing = Vec::new();
    for rubric in [CLI, HTTP, MCP] {
        for criterion in rubric.criteria {
            let row = format!("| `{}` | {} | {} |", criterion.id, criterion.title, criterion.holds_when);
            missing.extend((!page.contains(&row)).then_some(row));
        }
        for (score, meaning) in rubric.meanings.iter().enumerate() {
            let row = match score {
                0 => format!("| 0 | {meaning} | |"),
                _ => format!("| {score} | {meaning} | {} |", needs(&rubric, score as u8)),
            };
            missing.extend((!page.contains(&row)).then_some(row));
        }
    }
    assert!(missing.is_empty(), "docs/score.md lacks\n{}", missing.join("\n"));
}

/// What a score needs beyond the lower ones, as the page says it.
fn needs(rubric: &oncely_score::rubric::Rubric, score: u8) -> String {
    let rules = rubric.rules.iter().filter(|rule| rule.score == score);
    let said = rules.map(|rule| {
        let any = rule.any_of.iter().map(|(id, need)| match need {
            Need::Holds => format!("`{id}`"),
            Need::Partly => format!("`{id}` (partly will do)"),
            Need::NotFailing => format!("`{id}` (not seen to fail)"),
        });
        any.collect::<Vec<_>>().join(" or ")
    });
    said.collect::<Vec<_>>().join(", ")
}
