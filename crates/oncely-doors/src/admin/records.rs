//! Records: listing them, one in full, and a person's word about it.

use axum::body::Body;
use http::{Response, StatusCode};
use oncely_core::limits::{PAGE_MAX, RESULT_BYTES_MAX};
use oncely_core::machine::Verdict;
use oncely_core::{
    Effect, Failure, Filter, LogQuery, Millis, Namespace, Payload, Record, StateName, Stored, Unreadable,
    Version,
};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::AdminState;
use super::problem::Problem;
use super::routes::{Ask, json_of, whole};
use super::view;
use crate::tell::state_now;

/// Records in a page without being asked for a number.
const LIMIT: u64 = 50;
/// Events shown with a record.
const EVENTS_SHOWN: usize = 100;
/// Records that one request looks at before it answers with what it has.
const LOOKED_AT_MAX: usize = 10_000;

/// `GET /v1/records`
pub(super) async fn list(mut ask: Ask) -> Result<Response<Body>, Problem> {
    let query = &mut ask.query;
    let state: Option<StateName> = query.parsed("state")?;
    let tool = query.name("tool")?;
    let scope = query.name("scope")?;
    let key = query.name("key")?;
    let namespace = query.text("namespace")?.map(|name| Namespace::parse(&name)).transpose();
    let namespace = namespace.map_err(|error| Problem::bad_request(error.to_string()))?;
    let older_than = query.duration("older_than")?;
    let newer_than = query.duration("newer_than")?;
    let limit = query.number("limit", 1, PAGE_MAX as u64)?.unwrap_or(LIMIT) as usize;
    let cursor = query.text("cursor")?.map(|text| Cursor::parse(&text)).transpose()?.unwrap_or_default();
    std::mem::take(query).finish()?;

    let store = &**ask.state.oncely.store();
    let now = store.now().await?;
    let ago = |ms: u64| Millis(now.0.saturating_sub(ms));
    let filter = Filter {
        namespace,
        state: None,
        tool,
        scope,
        key,
        id_prefix: None,
        changed_since: newer_than.map(ago),
        changed_before: older_than.map(ago),
    };
    let Listed { found, unreadable, next } = page(&ask.state, filter, state, cursor, limit).await?;
    let records: Vec<_> = found.iter().map(|stored| view::record(store, stored)).collect();
    let mut answer = json!({ "records": records, "next": next.map(Cursor::text) });
    if !unreadable.is_empty() {
        answer["unreadable"] = unreadable.iter().map(view::unreadable).collect();
    }
    json_of(StatusCode::OK, &answer)
}

/// Where a listing goes on: in which of the states that the ledger may have written, and from which place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cursor {
    pass: usize,
    from: u64,
}

impl Cursor {
    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::bad_request("the cursor is not one that an answer named");
        let (pass, from) = text.split_once('-').ok_or_else(wrong)?;
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok());
        let pass = number(pass).flatten().filter(|pass| *pass < 2).ok_or_else(wrong)?;
        // Stores keep places as signed numbers.
        let from = number(from).flatten().filter(|from| i64::try_from(*from).is_ok()).ok_or_else(wrong)?;
        Ok(Self { pass: pass as usize, from })
    }

    fn text(self) -> String {
        format!("{}-{}", self.pass, self.from)
    }
}

/// A page, and where the next one starts.
struct Listed {
    found: Vec<Stored>,
    unreadable: Vec<Unreadable>,
    next: Option<Cursor>,
}

/// One page. A running attempt whose owner is gone is in doubt, whether or not somebody has written that yet, so both
/// are looked at for *in doubt*.
async fn page(
    state: &AdminState,
    filter: Filter,
    asked: Option<StateName>,
    mut cursor: Cursor,
    limit: usize,
) -> Result<Listed, Problem> {
    let store = &**state.oncely.store();
    let passes: &[Option<StateName>] = match asked {
        Some(StateName::InDoubt) => &[Some(StateName::InDoubt), Some(StateName::Running)],
        Some(StateName::Running) => &[Some(StateName::Running)],
        Some(StateName::Succeeded) => &[Some(StateName::Succeeded)],
        Some(StateName::Rejected) => &[Some(StateName::Rejected)],
        None => &[None],
    };
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    let mut looked_at = 0;
    while let Some(recorded) = passes.get(cursor.pass) {
        let filter = Filter { state: *recorded, ..filter.clone() };
        // No more than are still wanted, so that the place of the last one is where the next page starts.
        let scanned = store.scan(filter, cursor.from, limit - found.len()).await?;
        looked_at += scanned.items.len() + scanned.unreadable.len();
        unreadable.extend(scanned.unreadable);
        let fits = |stored: &Stored| asked.is_none_or(|asked| asked == state_now(store, stored));
        found.extend(scanned.items.into_iter().filter(fits));
        cursor = match scanned.next {
            Some(from) => Cursor { from, ..cursor },
            None => Cursor { pass: cursor.pass + 1, from: 0 },
        };
        if cursor.pass >= passes.len() {
            break;
        }
        if found.len() >= limit || looked_at >= LOOKED_AT_MAX {
            return Ok(Listed { found, unreadable, next: Some(cursor) });
        }
    }
    Ok(Listed { found, unreadable, next: None })
}

/// `GET /v1/records/{id}`
pub(super) async fn one(ask: Ask) -> Result<Response<Body>, Problem> {
    let id = ask.id()?;
    ask.query.finish()?;
    let store = &**ask.state.oncely.store();
    let stored = store.load(id).await?.ok_or_else(Problem::no_record)?;
    let query = LogQuery { intent: Some(id), limit: EVENTS_SHOWN, newest: true, after: 0 };
    let log = store.log(query).await?;
    let events: Vec<_> = log.items.iter().map(|logged| view::event(logged, log.now)).collect();
    let record = view::record(store, &stored);
    json_of(
        StatusCode::OK,
        &json!({ "record": record, "kept": view::kept(&stored.record), "events": events }),
    )
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResolveBody {
    #[serde(deserialize_with = "whole")]
    version: u64,
    verdict: VerdictWord,
    effect: Option<String>,
    result: Option<Box<RawValue>>,
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum VerdictWord {
    Succeeded,
    Rejected,
}

/// `POST /v1/records/{id}/resolve`
pub(super) async fn resolve(mut ask: Ask) -> Result<Response<Body>, Problem> {
    let id = ask.id()?;
    std::mem::take(&mut ask.query).finish()?;
    let (body, state, who): (ResolveBody, _, _) = ask.json().await?;
    let store = &**state.oncely.store();
    let stored = store.load(id).await?.ok_or_else(Problem::no_record)?;
    refuse_if_moved(&stored.record, body.version)?;
    let verdict = verdict(&state, &stored.record, body)?;
    let settled = state.oncely.resolve(&stored.record, &who.name, verdict).await?;
    json_of(StatusCode::OK, &json!({ "record": view::record(store, &settled) }))
}

fn verdict(state: &AdminState, record: &Record, body: ResolveBody) -> Result<Verdict, Problem> {
    let contradiction = |what: &str| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_body", format!("{what}; nothing was changed"))
    };
    if body.verdict == VerdictWord::Rejected {
        if body.effect.is_some() || body.result.is_some() {
            return Err(contradiction("what was rejected has neither an effect nor a result"));
        }
        let reason = body.reason.unwrap_or_else(|| "a person checked: it did not happen".to_owned());
        return Ok(Verdict::Rejected(Failure::new("RESOLVED_REJECTED", reason)));
    }
    if body.reason.is_some() {
        return Err(contradiction("a reason is given for a rejection"));
    }
    let effect = match body.effect {
        Some(word) => word.parse::<Effect>().map_err(|error| contradiction(&error))?,
        None => state.policy.tool(record.body.name.tool.as_str()).policy.effect,
    };
    let redact = |result: Box<RawValue>| {
        state.redaction.body(Some("application/json"), result.get().as_bytes()).map(|kept| kept.into_owned())
    };
    let result = body.result.and_then(redact);
    if result.as_ref().is_some_and(|result| result.len() > RESULT_BYTES_MAX) {
        return Err(contradiction(&format!("a result has at most {RESULT_BYTES_MAX} bytes")));
    }
    Ok(Verdict::Succeeded { effect, result: result.map(Payload::from) })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForgetBody {
    #[serde(deserialize_with = "whole")]
    version: u64,
}

/// `POST /v1/records/{id}/forget`
pub(super) async fn forget(mut ask: Ask) -> Result<Response<Body>, Problem> {
    let id = ask.id()?;
    std::mem::take(&mut ask.query).finish()?;
    let (body, state, who): (ForgetBody, _, _) = ask.json().await?;
    let stored = state.oncely.store().load(id).await?.ok_or_else(Problem::no_record)?;
    refuse_if_moved(&stored.record, body.version)?;
    state.oncely.forget(&stored.record, &who.name).await?;
    json_of(StatusCode::OK, &json!({ "id": id.to_string(), "forgotten": true }))
}

/// A person's word is about the record as they saw it.
fn refuse_if_moved(record: &Record, version: u64) -> Result<(), Problem> {
    if record.version == Version(version) {
        return Ok(());
    }
    let detail = "the record has changed since you looked; look again; nothing was changed";
    Err(Problem::new(StatusCode::CONFLICT, "moved", detail).about(record.intent))
}
