//! Encryption at rest: what a ledger keeps of results, rejections and doubts is sealed before any store sees it.
//!
//! One place for every door and every store: [`Sealed`] stands between the engine and a ledger. It seals the bytes that
//! doors stored (a result, the detail of a rejection, the evidence of a doubt) with XChaCha20-Poly1305. Names, keys,
//! states and messages stay readable: listings and audits need no secret. Bound to each seal are the intent, the
//! generation, the attempt and which of the three it is, so that a row copied over another one does not open.
//!
//! Keys have ids. The first seals, all open: to change the key, put a new one in front, and take the old one away when
//! the last record under it has expired. What was stored before sealing began is read as it is. What is sealed and
//! cannot be opened is an error: nothing runs, and nobody is told sealed bytes for a result. A program without keys that
//! meets sealed bytes keeps no results from then on, rather than storing them in plain.
//!
//! ```
//! use oncely_store::sealed::{Keys, Sealed};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let keys = Keys::parse("2026-11 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f")?;
//! let store = Sealed::new(oncely_store::open("memory:").await?, keys);
//! # Ok(())
//! # }
//! ```

mod keys;
mod store;
mod within;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use chacha20poly1305::aead::{Aead, KeyInit, Payload as Text};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use oncely_core::limits::PAGE_MAX;
use oncely_core::{Body, Filter, IntentId, Payload, State, Store, StoreError, StoreErrorKind};

pub use self::keys::{Keys, KeysError};
pub use self::within::SealedWithin;

/// What sealed bytes start with. No JSON, no text and no other form that a door stores starts like this.
const MARK: &[u8; 8] = b"\xffoncely\x01";
/// Bytes of the nonce: random ones never meet in practice.
const NONCE_BYTES: usize = 24;

/// A ledger whose results are sealed.
pub struct Sealed {
    store: Arc<dyn Store>,
    keys: Keys,
    /// Sealed bytes have been met: others seal here, so nothing may be written in plain.
    met: AtomicBool,
}

/// Which of a record's bytes.
#[derive(Clone, Copy)]
enum Part {
    Result = 1,
    Detail = 2,
    Evidence = 3,
}

/// What stops sealed bytes from being opened.
enum Closed {
    /// A key that is not given.
    NoKey(String),
    /// The bytes were changed, belong to another record, or were sealed under another key of that id.
    Damaged,
}

impl Sealed {
    /// Seals what is written to this ledger with the first key, and opens with any. Without keys nothing is sealed, and
    /// what was sealed before cannot be read.
    pub fn new(store: Arc<dyn Store>, keys: Keys) -> Self {
        Self { store, keys, met: AtomicBool::new(false) }
    }

    /// Looks whether anything among the first records is sealed, so that a program that was started without its keys
    /// knows from the start. Says whether it would now store results in plain beside sealed ones: it does not, it keeps
    /// none.
    pub async fn look_for_seals(&self) -> Result<bool, StoreError> {
        let (mut place, mut left) = (0, PAGE_MAX);
        while !self.met.load(Ordering::Relaxed) {
            let page = self.scan(Filter::default(), place, left).await?;
            left = left.saturating_sub(page.items.len() + page.unreadable.len());
            match page.next {
                // Large records make a page end early.
                Some(next) if left > 0 => place = next,
                _ => break,
            }
        }
        Ok(self.keys.first().is_none() && self.met.load(Ordering::Relaxed))
    }

    /// Seals what a body keeps.
    fn seal_body(&self, intent: IntentId, body: &mut Body) -> Result<(), StoreError> {
        let Some((id, key)) = self.keys.first() else {
            if self.met.load(Ordering::Relaxed) {
                drop_kept(&mut body.state);
            }
            return Ok(());
        };
        let bound = Bound::of(intent, body);
        let Some((part, bytes)) = part_of(&mut body.state) else { return Ok(()) };
        *bytes = seal(id, key, &bound, part, bytes)?;
        Ok(())
    }

    /// Opens what a body keeps.
    fn open_body(&self, intent: IntentId, body: &mut Body) -> Result<(), StoreError> {
        let bound = Bound::of(intent, body);
        let Some((part, bytes)) = part_of(&mut body.state) else { return Ok(()) };
        if !bytes.starts_with(MARK) {
            return Ok(());
        }
        *bytes = open(&self.keys, &bound, part, bytes).map_err(|closed| closed.at(intent))?;
        Ok(())
    }
}

impl Closed {
    fn at(self, intent: IntentId) -> StoreError {
        let id = intent.short();
        let message = match self {
            Self::NoKey(key) => format!(
                "the result of record {id} is encrypted under the key {key:?}, which is not given; nothing ran. Give it \
                 with the other keys"
            ),
            Self::Damaged => format!(
                "the result of record {id} cannot be decrypted: it was changed, belongs to another record, or its key \
                 is not the one that it was encrypted with; nothing ran"
            ),
        };
        StoreError::before(StoreErrorKind::Corrupt, message)
    }
}

/// What a seal is bound to.
struct Bound {
    intent: IntentId,
    generation: u32,
    attempts: u32,
}

impl Bound {
    fn of(intent: IntentId, body: &Body) -> Self {
        Self { intent, generation: body.generation, attempts: body.attempts }
    }

    fn bytes(&self, head: &[u8], part: Part) -> Vec<u8> {
        let mut bytes = head.to_vec();
        bytes.extend(self.intent.0);
        bytes.extend(self.generation.to_be_bytes());
        bytes.extend(self.attempts.to_be_bytes());
        bytes.push(part as u8);
        bytes
    }
}

/// What must not be stored in plain is not stored: it happened, and that is remembered.
fn drop_kept(state: &mut State) {
    match state {
        State::Succeeded { result, .. } => *result = None,
        State::Rejected { failure, .. } => failure.detail = None,
        State::InDoubt { doubt, .. } => doubt.evidence = None,
        State::Running { .. } => {}
    }
}

/// The bytes that a state keeps, if any.
fn part_of(state: &mut State) -> Option<(Part, &mut Payload)> {
    match state {
        State::Succeeded { result, .. } => result.as_mut().map(|bytes| (Part::Result, bytes)),
        State::Rejected { failure, .. } => failure.detail.as_mut().map(|bytes| (Part::Detail, bytes)),
        State::InDoubt { doubt, .. } => doubt.evidence.as_mut().map(|bytes| (Part::Evidence, bytes)),
        State::Running { .. } => None,
    }
}

/// `MARK`, the length of the key's id, the id, the nonce, the sealed bytes.
fn seal(id: &str, key: &[u8; 32], bound: &Bound, part: Part, plain: &[u8]) -> Result<Payload, StoreError> {
    let mut nonce = [0u8; NONCE_BYTES];
    let failed = |why: String| StoreError::before(StoreErrorKind::Unavailable, why);
    getrandom::fill(&mut nonce).map_err(|e| failed(format!("the system gives no random numbers: {e}")))?;
    let mut head = MARK.to_vec();
    head.push(u8::try_from(id.len()).unwrap_or(u8::MAX));
    head.extend(id.as_bytes());
    let text = Text { msg: plain, aad: &bound.bytes(&head, part) };
    let sealed = XChaCha20Poly1305::new(key.into())
        .encrypt(&XNonce::from(nonce), text)
        .map_err(|_| failed("a result could not be encrypted".to_owned()))?;
    head.extend(nonce);
    head.extend(sealed);
    Ok(head.into())
}

fn open(keys: &Keys, bound: &Bound, part: Part, bytes: &[u8]) -> Result<Payload, Closed> {
    let rest = bytes.strip_prefix(MARK).ok_or(Closed::Damaged)?;
    let (length, rest) = rest.split_first().ok_or(Closed::Damaged)?;
    let (id, rest) = rest.split_at_checked(usize::from(*length)).ok_or(Closed::Damaged)?;
    let (nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(Closed::Damaged)?;
    let id = std::str::from_utf8(id).map_err(|_| Closed::Damaged)?;
    let key = keys.get(id).ok_or_else(|| Closed::NoKey(id.escape_default().to_string()))?;
    let head = &bytes[..MARK.len() + 1 + id.len()];
    let text = Text { msg: sealed, aad: &bound.bytes(head, part) };
    let plain = XChaCha20Poly1305::new(key.into()).decrypt(&XNonce::from(*nonce), text);
    plain.map(Payload::from).map_err(|_| Closed::Damaged)
}
