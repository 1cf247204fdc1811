//! How far the log is settled: up to there every place is filled, or never will be. Whoever reads on from a place must not
//! have passed over an empty one that somebody is still to fill.
//!
//! A statement draws its place before it commits, and others draw later ones and commit earlier. But it holds a lock on the
//! log's table from before it draws until all can see what it wrote: so those who hold one are asked for, and when each of
//! them has ended, all that was drawn until then is settled. Transaction ids would not tell as much: a claim that waits for
//! another one of its key has drawn its place, and has no id yet. Nor would times: a caller's own transaction may stay open for
//! as long as it likes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::errors::Trouble;
use super::schema::literal;
use super::session::Session;
use super::shared::Shared;
use crate::wire::Damaged;

/// How long those who write are waited for: most are done in a moment. What follows them is told later.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether they are done.
const LOOK: Duration = Duration::from_millis(10);

/// What is known of the log.
#[derive(Default)]
pub(crate) struct Settled(Mutex<State>);

#[derive(Default)]
struct State {
    timeline: u64,
    upto: i64,
    open: Option<Open>,
}

/// Who was writing at a look, and the last place that was to be seen then. Remembered until they have ended: were others
/// waited for who came since, there would always be somebody.
#[derive(Clone)]
struct Open {
    upto: i64,
    writers: Vec<String>,
    since: Instant,
}

impl Settled {
    /// Up to where it is settled, on this timeline.
    pub(crate) fn upto(&self, timeline: u64) -> i64 {
        self.on(timeline, |state| state.upto)
    }

    fn ended(&self, timeline: u64, upto: i64) {
        self.on(timeline, |state| {
            state.upto = state.upto.max(upto);
            state.open.take_if(|open| open.upto <= upto);
        });
    }

    fn on<T>(&self, timeline: u64, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.timeline != timeline {
            // A server that has taken over may have lost the last places, and draws them again.
            *state = State { timeline, ..State::default() };
        }
        look(&mut state)
    }
}

/// Brings what is settled up to now, or as far as those allow who are writing; answers up to where it is.
pub(crate) async fn settle(shared: &Shared, session: &mut Session) -> Result<i64, Trouble> {
    let (settled, timeline, started) = (&shared.settled, session.timeline(), Instant::now());
    let mut looked = false;
    while started.elapsed() < PATIENCE {
        match settled.on(timeline, |state| state.open.clone()) {
            Some(open) if !are_writing(session, &open.writers).await? => settled.ended(timeline, open.upto),
            Some(open) if open.since.elapsed() < PATIENCE => tokio::time::sleep(LOOK).await,
            Some(_) => break,
            None if looked => break,
            None => {
                looked = true;
                let (upto, writers) = look(session).await?;
                match writers.is_empty() {
                    true => settled.ended(timeline, upto),
                    false => {
                        let open = Open { upto, writers, since: Instant::now() };
                        settled.on(timeline, |state| state.open = Some(open));
                    }
                }
            }
        }
    }
    Ok(settled.upto(timeline))
}

/// The locks of those who write to the log.
fn locks(schema: &str) -> String {
    let table = literal(&format!("{schema}.audit"));
    format!(
        "pg_locks l WHERE l.locktype = 'relation' AND l.relation = {table}::regclass AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.mode = 'RowExclusiveLock'"
    )
}

/// The last place that is to be seen, and who was writing after that. To a ledger that is closed for a move nobody writes
/// any more: its turn has waited for those who did.
async fn look(session: &mut Session) -> Result<(i64, Vec<String>), Trouble> {
    let schema = session.statements().schema.clone();
    let sql = format!(
        "SELECT (SELECT coalesce(max(seq), 0) FROM {schema}.audit), ARRAY(
  SELECT DISTINCT l.virtualtransaction FROM {locks} AND NOT EXISTS (SELECT FROM {schema}.gate WHERE phase = 2)
)",
        locks = locks(&schema)
    );
    let rows = session.read_sql(&sql, &[]).await?;
    let row = rows.first().ok_or(Damaged("the server does not tell who writes"))?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// Whether one of these is still at it. One that was prepared to be committed later has another name since, so that all of
/// those count.
async fn are_writing(session: &mut Session, writers: &[String]) -> Result<bool, Trouble> {
    let sql = format!(
        "SELECT EXISTS (SELECT FROM {} AND (l.virtualtransaction = ANY($1) OR l.virtualtransaction LIKE '-1/%'))",
        locks(&session.statements().schema)
    );
    let rows = session.read_sql(&sql, &[(&writers, Type::TEXT_ARRAY)]).await?;
    let row = rows.first().ok_or(Damaged("the server does not tell who writes"))?;
    Ok(row.try_get(0)?)
}
