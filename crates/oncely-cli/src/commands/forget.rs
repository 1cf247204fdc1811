//! `oncely forget`: makes keys new again.

use std::process::ExitCode;

use clap::Args;
use oncely_core::{Stored, Unreadable};

use super::find::{self, Found};
use super::resolve::{ask_about, refuse_while_at_work, refused};
use super::view::NameView;
use crate::args::Global;
use crate::context::{Context, actor};
use crate::exit::Failure;
use crate::output;

/// Forget a record: its key is new again
#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// The records' ids, or at least 6 digits of their starts; one that cannot be read by its whole id
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Runs the command.
pub(crate) async fn run(global: &Global, args: ForgetArgs) -> Result<ExitCode, Failure> {
    let context = Context::load(global)?;
    let oncely = context.open().await?;
    let store = &**oncely.store();
    // Every id is looked up before anything is forgotten: a slip in the last one must not cost the first.
    let (mut records, mut unreadable) = (Vec::<Stored>::new(), Vec::<Unreadable>::new());
    for id in &args.ids {
        match find::any_by_id(store, id).await? {
            Found::Record(stored) => {
                refuse_while_at_work(store, &stored)?;
                if records.iter().all(|known| known.record.intent != stored.record.intent) {
                    records.push(stored);
                }
            }
            Found::Unreadable(found) if !unreadable.contains(&found) => unreadable.push(found),
            Found::Unreadable(_) => {}
        }
    }
    if !args.yes {
        let mut words = vec!["forget"];
        words.extend(args.ids.iter().map(String::as_str));
        words.push("--yes");
        let question = "Forget for good? A later call with the same key runs again.";
        for Unreadable { intent, why, state, .. } in &unreadable {
            let line = format!(
                "{intent} {}: it cannot be read ({why}); its effect may have happened",
                state.as_str()
            );
            output::say(&output::clean(&line));
        }
        let shown: Vec<&Stored> = records.iter().collect();
        ask_about(store, &shown, question, &output::command_line(global, &words))?;
    }
    let by = actor();
    for stored in &records {
        let id = stored.record.intent.to_string();
        oncely.forget(&stored.record, &by).await.map_err(|error| refused(&error, &id))?;
        say_forgotten(global, stored);
    }
    for found in &unreadable {
        let id = found.intent.to_string();
        oncely.forget_unreadable(found, &by).await.map_err(|error| refused(&error, &id))?;
        match output::wants_json(global.json) {
            true => output::print_json(
                &serde_json::json!({ "id": id, "forgotten": true, "unreadable": found.why }),
            ),
            false => output::print(&output::clean(&format!("{id}: forgotten unread; its key is new again"))),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn say_forgotten(global: &Global, stored: &Stored) {
    let name = NameView::of(&stored.record.body.name);
    let id = stored.record.intent;
    if output::wants_json(global.json) {
        output::print_json(
            &serde_json::json!({ "id": id.to_string(), "forgotten": true, "tool": name.tool, "key": name.key }),
        );
    } else {
        let line =
            format!("{} {} {}: forgotten; its key is new again", id.short(), name.tool, name.key_short());
        output::print(&output::clean(&line));
    }
}
