//! What makes keys on a server a ledger: a head in every shard, which says the format, the number of shards, which
//! ledger this is, and whether its gate is open. A server that comes back empty, or with another ledger, is refused
//! instead of believed.

use std::sync::Arc;

use oncely_core::name::hex;
use oncely_core::{Gate, StoreError, StoreErrorKind};

use super::connect::Wire;
use super::errors::odd;
use super::gate;
use super::keys::Keys;
use super::options::{RedisKind, RedisOptions, RedisServer, SHARDS_MAX};
use super::resp::{Value, command};
use super::router::Router;

/// The first format, which ledgers are made in.
const FORMAT: u32 = 1;
/// The format of a ledger that a move has filled, whose log tells times of its own; and of one whose gate is not open. To
/// programs that know only the first one, such a ledger is too new.
pub(crate) const FORMAT_MOVED: u32 = 2;
/// Shards of a new ledger in a cluster.
const SHARDS_IN_CLUSTER: u16 = 64;
/// Sets a key if it still holds what it is known to hold.
const IF_STILL: &[u8] =
    b"if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) end return 1";

/// What a head says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) shards: u16,
    pub(crate) ledger: String,
    /// Its format while its gate is open.
    pub(crate) format: u32,
    pub(crate) gate: Gate,
    /// The last id of the shard's log, while that is shut.
    pub(crate) last: Option<String>,
    /// Whether all shards have their heads. Said by the first shard only.
    is_ready: bool,
}

impl Head {
    fn is_same(&self, other: &Self) -> bool {
        self.ledger == other.ledger && self.shards == other.shards
    }

    /// The words that stand in the head of every shard of this ledger, and of no other, while its gate is open.
    pub(crate) fn mark(&self) -> String {
        format!(" {} {} ", self.shards, self.ledger)
    }

    /// The words that stand in the head of every shard of this ledger while its gate stands like this.
    pub(crate) fn mark_of(&self, format: u32, gate: &Gate) -> String {
        match gate::text(gate) {
            None => self.mark(),
            Some(gate) => format!(" {} {}/{format}/{gate}/", self.shards, self.ledger),
        }
    }

    /// The head of a shard with another gate: what stands before the last id of its log and after it; nothing stands after
    /// it if the gate is open.
    pub(crate) fn turned(&self, shard: u16, format: u32, gate: &Gate) -> (String, String) {
        let state = if shard == 0 { "ready" } else { "making" };
        let mark = self.mark_of(format, gate);
        match gate {
            Gate::Open => (format!("oncely {format}{mark}{state}"), String::new()),
            _ => (format!("oncely {FORMAT_MOVED}{mark}"), format!(" {state}")),
        }
    }

    /// The text of a head that is new.
    fn text(&self) -> String {
        let state = if self.is_ready { "ready" } else { "making" };
        format!("oncely {FORMAT} {} {} {state}", self.shards, self.ledger)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        let foreign = || {
            let message = format!("the key that tells of the ledger holds {text:?}; choose another ?prefix=");
            StoreError::before(StoreErrorKind::Foreign, message)
        };
        let parts: Vec<&str> = text.split(' ').collect();
        let ["oncely", format, shards, ledger, state] = parts.as_slice() else { return Err(foreign()) };
        let format: u32 = format.parse().map_err(|_| foreign())?;
        if format > FORMAT_MOVED {
            let message = format!(
                "the ledger has format {format}; this program knows up to {FORMAT_MOVED}; use a newer one"
            );
            return Err(StoreError::before(StoreErrorKind::TooNew, message));
        }
        let shards: u16 = shards.parse().map_err(|_| foreign())?;
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(foreign());
        }
        let is_ready = *state == "ready";
        let Some((ledger, gated)) = ledger.split_once('/') else {
            let ledger = (*ledger).to_owned();
            return Ok(Self { shards, ledger, format, gate: Gate::Open, last: None, is_ready });
        };
        let (format, rest) = gated.split_once('/').ok_or_else(foreign)?;
        let (gate, last) = rest.rsplit_once('/').ok_or_else(foreign)?;
        Ok(Self {
            shards,
            ledger: ledger.to_owned(),
            format: format.parse().map_err(|_| foreign())?,
            gate: gate::parse(gate).ok_or_else(foreign)?,
            last: Some(last.to_owned()),
            is_ready,
        })
    }
}

/// Finds the ledger, or makes it where there is none.
pub(crate) async fn open(router: &Arc<Router>) -> Result<(Head, Keys), StoreError> {
    let options = &router.dialer.options;
    let first = Keys::new(&options.prefix, 1).head(0);
    let mut head = match get(router, 0, &first).await? {
        Some(text) => Head::parse(&text)?,
        None => propose(router, &first).await?,
    };
    let keys = Keys::new(&options.prefix, head.shards);
    if head.is_ready {
        let asked: Vec<_> = (1..head.shards)
            .map(|shard| (shard, router.ask(shard, &[command(&[b"GET", &keys.head(shard)])])))
            .collect();
        for (shard, asked) in asked {
            let there = answer(asked).await?.text().map(Head::parse).transpose()?;
            if there.is_none_or(|there| !there.is_same(&head)) {
                return Err(lost(&options.describe(), shard));
            }
        }
        return Ok((head, keys));
    }
    // Whoever finds a ledger half made, completes it: with the same words, however many do so.
    let of_others = head.text();
    for shard in (1..head.shards).rev() {
        let key = keys.head(shard);
        set_if_none(router, shard, &key, &of_others).await?;
        let there = get(router, shard, &key).await?.as_deref().map(Head::parse).transpose()?;
        if there.is_none_or(|there| !there.is_same(&head)) {
            return Err(lost(&options.describe(), shard));
        }
    }
    head.is_ready = true;
    let text = head.text();
    // Unless somebody was faster: since then the gate may have been turned.
    let done = command(&[b"EVAL", IF_STILL, b"1", &first, of_others.as_bytes(), text.as_bytes()]);
    answer(router.ask(0, &[done])).await?;
    Ok((head, keys))
}

/// Says which ledger is being made here, unless somebody else is faster.
async fn propose(router: &Arc<Router>, first: &[u8]) -> Result<Head, StoreError> {
    let options = &router.dialer.options;
    // Records without a first head are a ledger that has lost it: making a new one would forget what they know.
    let all = Keys::new(&options.prefix, SHARDS_MAX);
    let asked: Vec<_> =
        (1..SHARDS_MAX).map(|shard| router.ask(shard, &[command(&[b"GET", &all.head(shard)])])).collect();
    for head in asked {
        if answer(head).await? != Value::Nil {
            return Err(lost(&options.describe(), 0));
        }
    }
    let in_cluster = options.kind == RedisKind::Cluster;
    let shards = options.shards.unwrap_or(if in_cluster { SHARDS_IN_CLUSTER } else { 1 });
    let mut id = [0_u8; 16];
    getrandom::fill(&mut id).map_err(|e| {
        StoreError::before(StoreErrorKind::Unavailable, format!("the system gives no random numbers: {e}"))
    })?;
    let proposed =
        Head { shards, ledger: hex(&id), format: FORMAT, gate: Gate::Open, last: None, is_ready: false };
    set_if_none(router, 0, first, &proposed.text()).await?;
    match get(router, 0, first).await? {
        Some(text) => Head::parse(&text),
        None => Err(lost(&options.describe(), 0)),
    }
}

/// Makes sure, over a new connection, that a server still has the shards that it is to serve.
pub(crate) async fn verify(
    wire: &mut Wire,
    options: &RedisOptions,
    server: &RedisServer,
    head: &Head,
    keys: &Keys,
    shards: &[u16],
) -> Result<(), StoreError> {
    let commands: Vec<Vec<u8>> = shards.iter().map(|shard| command(&[b"GET", &keys.head(*shard)])).collect();
    let replies = wire.ask(&commands, options.timeout, server).await?;
    for (shard, reply) in shards.iter().zip(&replies) {
        match reply {
            // It serves another slot by now: it will say so to the requests as well.
            Value::Error(words) if super::errors::redirect(words).is_some() => {}
            Value::Error(_) => return Err(odd(reply, &server.to_string())),
            other => {
                let there = other.text().map(Head::parse).transpose()?;
                if there.is_none_or(|there| !there.is_same(head)) {
                    return Err(lost(&server.to_string(), *shard));
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn lost(server: &str, shard: u16) -> StoreError {
    let message = format!(
        "shard {shard} of the ledger in {server} has lost its head: the server was emptied, came back without its \
         data, or holds another ledger; nothing was written, since keys that it has forgotten would run again; restore \
         its data, or begin a new ledger under another ?prefix="
    );
    StoreError::before(StoreErrorKind::Corrupt, message)
}

async fn get(router: &Arc<Router>, shard: u16, key: &[u8]) -> Result<Option<String>, StoreError> {
    let reply = answer(router.ask(shard, &[command(&[b"GET", key])])).await?;
    Ok(reply.text().map(str::to_owned))
}

async fn set_if_none(router: &Arc<Router>, shard: u16, key: &[u8], text: &str) -> Result<(), StoreError> {
    let done = router.ask(shard, &[command(&[b"SET", key, text.as_bytes(), b"NX"])]);
    answer(done).await.map(drop)
}

async fn answer(answer: tokio::sync::oneshot::Receiver<super::link::Answer>) -> Result<Value, StoreError> {
    let closed = || StoreError::before(StoreErrorKind::Unavailable, "the ledger is closed");
    Ok(answer.await.map_err(|_| closed())??.pop().unwrap_or(Value::Nil))
}

#[cfg(test)]
mod tests {
    use super::{FORMAT_MOVED, Head};
    use oncely_core::{Gate, Millis, Move, StoreErrorKind};

    fn head() -> Head {
        Head { shards: 64, ledger: "ab12".into(), format: 1, gate: Gate::Open, last: None, is_ready: true }
    }

    #[test]
    fn a_head_reads_back_and_strangers_are_refused() {
        assert_eq!(head().text(), "oncely 1 64 ab12 ready");
        assert_eq!(Head::parse(&head().text()).unwrap(), head());
        for (text, kind) in [
            ("hello", StoreErrorKind::Foreign),
            ("oncely 1 65 ab ready", StoreErrorKind::Foreign),
            ("oncely 2 64 ab/1/9/x/1-1 ready", StoreErrorKind::Foreign),
            ("oncely 3 64 ab ready", StoreErrorKind::TooNew),
        ] {
            assert_eq!(Head::parse(text).unwrap_err().kind, kind, "{text}");
        }
    }

    #[test]
    fn a_head_whose_gate_is_not_open_reads_back_and_lacks_the_mark_of_an_open_one() {
        let of = Move {
            id: [7; 16],
            run: u64::MAX,
            other: "redis+cluster://a b/ü".into(),
            shift_ms: i64::MIN,
            steady_since: Millis(77),
        };
        for gate in [Gate::Closing(of.clone()), Gate::Closed(of.clone()), Gate::Filling(of)] {
            let (before, after) = head().turned(0, FORMAT_MOVED, &gate);
            let text = format!("{before}12-3{after}");
            let expected =
                Head { gate: gate.clone(), format: FORMAT_MOVED, last: Some("12-3".into()), ..head() };
            assert_eq!(Head::parse(&text).unwrap(), expected);
            assert!(text.contains(&head().mark_of(FORMAT_MOVED, &gate)), "{text}");
            assert!(!text.contains(&head().mark()), "programs that do not know of gates would claim: {text}");
            // Such programs read five words and a format that is too new for them.
            assert_eq!(text.split(' ').collect::<Vec<_>>()[..2], ["oncely", "2"]);
            assert_eq!(text.split(' ').count(), 5);
            let (open, nothing) = expected.turned(0, 1, &Gate::Open);
            assert_eq!((open, nothing), (head().text(), String::new()));
        }
    }
}
