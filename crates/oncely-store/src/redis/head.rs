//! What makes keys on a server a ledger: a head in every shard, which says the format, the number of shards, and which
//! ledger this is. A server that comes back empty, or with another ledger, is refused instead of believed.

use std::sync::Arc;

use oncely_core::name::hex;
use oncely_core::{StoreError, StoreErrorKind};

use super::connect::Wire;
use super::errors::odd;
use super::keys::Keys;
use super::options::{RedisKind, RedisOptions, RedisServer, SHARDS_MAX};
use super::resp::{Value, command};
use super::router::Router;

const FORMAT: u32 = 1;
/// Shards of a new ledger in a cluster.
const SHARDS_IN_CLUSTER: u16 = 64;

/// What a head says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) shards: u16,
    pub(crate) ledger: String,
    /// Whether all shards have their heads. Said by the first shard only.
    is_ready: bool,
}

impl Head {
    fn is_same(&self, other: &Self) -> bool {
        self.ledger == other.ledger && self.shards == other.shards
    }

    /// The words that stand in the head of every shard of this ledger, and of no other.
    pub(crate) fn mark(&self) -> String {
        format!(" {} {} ", self.shards, self.ledger)
    }

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
        if *format != FORMAT.to_string() {
            let message =
                format!("the ledger has format {format}; this program knows {FORMAT}; use a newer one");
            return Err(StoreError::before(StoreErrorKind::TooNew, message));
        }
        let shards: u16 = shards.parse().map_err(|_| foreign())?;
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(foreign());
        }
        Ok(Self { shards, ledger: (*ledger).to_owned(), is_ready: *state == "ready" })
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
        let there = get(router, shard, &key).await?;
        if there.as_deref() != Some(&*of_others) {
            return Err(lost(&options.describe(), shard));
        }
    }
    head.is_ready = true;
    let text = head.text();
    let done = router.ask(0, &[command(&[b"SET", &first, text.as_bytes()])]);
    answer(done).await?;
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
    let proposed = Head { shards, ledger: hex(&id), is_ready: false };
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

fn lost(server: &str, shard: u16) -> StoreError {
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
    use super::Head;
    use oncely_core::StoreErrorKind;

    #[test]
    fn a_head_reads_back_and_strangers_are_refused() {
        let head = Head { shards: 64, ledger: "ab12".into(), is_ready: true };
        assert_eq!(head.text(), "oncely 1 64 ab12 ready");
        assert_eq!(Head::parse(&head.text()).unwrap(), head);
        for (text, kind) in [
            ("hello", StoreErrorKind::Foreign),
            ("oncely 1 65 ab ready", StoreErrorKind::Foreign),
            ("oncely 2 64 ab ready", StoreErrorKind::TooNew),
        ] {
            assert_eq!(Head::parse(text).unwrap_err().kind, kind, "{text}");
        }
    }
}
