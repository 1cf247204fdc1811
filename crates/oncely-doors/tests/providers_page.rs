//! The table in docs/providers.md is the table that the program has.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;

use oncely::policy_file::format_duration;
use oncely_doors::providers::{Carrier, Providers};

const START: &str = "<!-- generated: ONCELY_BLESS=1 cargo test -p oncely-doors --test providers_page -->\n";
const END: &str = "<!-- end -->";

fn table() -> String {
    let mut text = String::from(
        "| name | API | how the key travels | spelled | kept | when the outcome is unknown |\n|---|---|---|---|---|---|\n",
    );
    for provider in Providers::builtin().iter() {
        let carrier = match &provider.key {
            Carrier::ByHand { how } => format!("by hand: {how}"),
            other => other.describe(),
        };
        let kept = match (&provider.key, provider.retention_ms) {
            (Carrier::None, _) => "-".to_owned(),
            (_, Some(ms)) => format_duration(ms),
            (_, None) => "not published".to_owned(),
        };
        let spelled = if provider.key == Carrier::None { "-" } else { provider.encoder.as_str() };
        let may = match (provider.harmless_for_ms(), provider.everywhere) {
            (Some(_), true) => "retry while kept, then halt",
            (Some(_), false) => "halt; a route to what takes the key may say retry",
            (None, _) => "halt",
        };
        let unknown = provider.check.as_ref().map_or(may.to_owned(), |check| format!("{may}; {check}"));
        let title = &provider.title;
        writeln!(text, "| `{}` | {title} | {carrier} | {spelled} | {kept} | {unknown} |", provider.name)
            .unwrap();
    }
    text
}

#[test]
fn the_page_shows_the_table_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/providers.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(START).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    if std::env::var_os("ONCELY_BLESS").is_some() {
        std::fs::write(&path, format!("{before}{START}{}{END}{after}", table())).unwrap();
        return;
    }
    assert!(shown == table(), "docs/providers.md is not the table of the program; bless it");
}
