//! `oncely providers`: how third-party APIs take an idempotency key.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use oncely::policy_file::format_duration;
use oncely_doors::providers::{AnswerRule, Carrier, Provider, Providers};

use crate::args::Global;
use crate::context::Context;
use crate::exit::{Failure, PRECONDITION};
use crate::output::{self, Tone};

/// List how third-party APIs take an idempotency key
#[derive(Debug, Args)]
pub(crate) struct ProvidersArgs {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List all providers
    Ls,
    /// Show everything that is known about one
    Show {
        /// The name that a route gives
        name: String,
    },
}

/// Runs the command.
pub(crate) fn run(global: &Global, args: ProvidersArgs) -> Result<ExitCode, Failure> {
    let providers = all(&Context::load(global)?)?;
    match args.what {
        None | Some(What::Ls) => list(global, &providers),
        Some(What::Show { name }) => {
            let provider = providers.get(&name).ok_or_else(|| unknown(&providers, &name))?;
            show(global, provider);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The providers that come with the program and those of the configuration.
fn all(context: &Context) -> Result<Providers, Failure> {
    let known = Providers::builtin().clone();
    let Some((name, text)) = context.policy_text() else { return Ok(known) };
    known.with_config(text, &name).map_err(|error| Failure::usage(error.to_string()))
}

fn list(global: &Global, providers: &Providers) {
    if output::wants_json(global.json) {
        for provider in providers.iter() {
            output::print_json(provider);
        }
        return;
    }
    let mut table = output::table(&["NAME", "API", "KEY", "KEPT", "WHEN UNKNOWN", "KNOWN FROM"]);
    for provider in providers.iter() {
        table.add_row([
            output::cell(Tone::Plain, &provider.name),
            output::cell(Tone::Plain, &provider.title),
            output::cell(Tone::Plain, &provider.key.describe()),
            output::cell(Tone::Dim, &kept(provider)),
            output::cell(Tone::Plain, when_unknown(provider)),
            output::cell(Tone::Dim, provider.confidence.as_str()),
        ]);
    }
    output::print_table(&table);
    output::say("more about one: oncely providers show NAME; your own: [[provider]] in oncely.toml");
}

fn show(global: &Global, provider: &Provider) {
    if output::wants_json(global.json) {
        output::print_json(provider);
        return;
    }
    let limits = match (provider.chars_min, provider.chars_max) {
        (None, None) => "not published".to_owned(),
        (min, Some(max)) => format!("{} to {max} characters", min.unwrap_or(1)),
        (Some(min), None) => format!("{min} characters or more"),
    };
    let charset = provider.charset.as_deref().map(|set| format!(" of {set}")).unwrap_or_default();
    let methods =
        if provider.methods.is_empty() { "not published".to_owned() } else { provider.methods.join(", ") };
    let also: Vec<String> = provider.also.iter().map(|also| also.carrier.describe()).collect();
    let key = match &provider.key {
        Carrier::ByHand { how } => format!("by hand: {how}"),
        other => other.describe(),
    };
    line("name", &provider.name);
    line("API", &provider.title);
    line("key", &key);
    line("with it", &also.join(", "));
    if provider.key != Carrier::None {
        line("spelled as", provider.encoder.as_str());
        line("limits", &format!("{limits}{charset}"));
        line("kept", &kept(provider));
        line("unique within", provider.scope.as_deref().unwrap_or("not published"));
        line("methods", &methods);
    }
    line("when unknown", when_unknown(provider));
    for rule in &provider.answers {
        line("answer", &answer(rule));
    }
    line("check", provider.check.as_deref().unwrap_or(""));
    line("notes", provider.notes.as_deref().unwrap_or(""));
    line("known from", &format!("{} {}", provider.confidence.as_str(), provider.sources.join(" ")));
}

fn line(name: &str, value: &str) {
    if !value.trim().is_empty() {
        let name = output::paint(Tone::Dim, &format!("{name:<14}"));
        output::print(&format!("{name} {}", output::clean(value.trim())));
    }
}

fn kept(provider: &Provider) -> String {
    match (&provider.key, provider.retention_ms) {
        (Carrier::None, _) => "-".to_owned(),
        (_, Some(ms)) => format_duration(ms),
        (_, None) => "not published".to_owned(),
    }
}

/// What a route through this provider does, unless its policy says otherwise.
fn when_unknown(provider: &Provider) -> &'static str {
    match (provider.harmless_for_ms(), provider.everywhere) {
        (Some(_), true) => "retry while kept",
        (Some(_), false) => "halt, or as the route says",
        (None, _) => "halt",
    }
}

fn answer(rule: &AnswerRule) -> String {
    let mut conditions = Vec::new();
    if let Some(status) = rule.status {
        conditions.push(status.to_string());
    }
    if let Some(header) = &rule.header {
        conditions.push(format!("{header}: {}", rule.is.as_deref().unwrap_or("…")));
    }
    if let Some(says) = &rule.says {
        conditions
            .push(format!("{says}{}", rule.at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default()));
    }
    format!("{} means {}", conditions.join(" "), rule.means.as_str())
}

fn unknown(providers: &Providers, name: &str) -> Failure {
    let similar = providers.similar(name);
    let hint = if similar.is_empty() { String::new() } else { format!("; similar: {}", similar.join(", ")) };
    let message = format!("there is no provider {:?}{hint}", output::clean(name));
    Failure::new(PRECONDITION, "NO_PROVIDER", message).with_fix("oncely providers")
}
