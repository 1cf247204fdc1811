//! A message of a server that is long, passed on as it comes: where its beginning shows that nothing in it is for us, nobody
//! has to wait for its end, and nothing has to hold it.

use bytes::Bytes;
use tokio::io::AsyncRead;

use super::cut;
use super::frames::{Frames, TAIL};
use super::link::OwnIds;
use super::listing;
use super::opening::Opening;
use super::outlet::Outlet;
use super::session::Session;
use super::stdio::StdioLink;

/// A message of which so much has come without its end is not waited for.
pub(super) const LONG: usize = 64 * 1024;
/// More than what is looked for has characters: two pieces meet within this.
const SEAM: usize = 64;

/// Whether a message that begins like this is for the client, whatever follows.
pub(super) fn is_for_the_client(begun: &[u8], ids: &OwnIds, link: &StdioLink) -> bool {
    let opening = Opening::of(begun);
    match opening.answers() {
        Some(id) => !ids.are_in(id.as_bytes()),
        // An answer to us begins after we have asked: where nobody waits for one now, this is none.
        None => opening == Opening::Call || link.awaits_nothing(),
    }
}

/// Passes a long message on. A client that reads slowly is waited for, as the server would have to without us; what others
/// have to say waits for the end of the line, or of the server. A message over the limit is cut there, and the caller is
/// told of it when the rest has been passed over.
pub(super) async fn pass<R: AsyncRead + Unpin>(
    frames: &mut Frames<R>,
    to: &Outlet,
    (ids, link, session): (&OwnIds, &StdioLink, &Session),
    limit: usize,
) {
    let mut out = to.begin().await;
    // Where nobody waits for an answer to us, it does not matter whether this looks like one in the end.
    let ids_of_ours = (!link.awaits_nothing()).then_some(ids);
    let mut watch = Watch { ids: ids_of_ours, tail: Vec::new(), names_us: false, names_change: false };
    let (mut head, mut length) = (None, 0);
    // A server whose output cannot be read has ended, which whoever reads next is told.
    while let Ok(Some(piece)) = frames.piece().await {
        length += piece.len();
        let is_last = piece.last() == Some(&b'\n');
        let head = head.get_or_insert_with(|| Bytes::copy_from_slice(&piece[..piece.len().min(LONG)]));
        if length > limit {
            out.cut().await;
            return frames.pass_over_from(&piece, head.clone());
        }
        watch.see(&piece);
        out.write(piece).await;
        if is_last {
            break;
        }
    }
    drop(out);
    if watch.names_change {
        // Whether it says so, or only speaks of it: to ask once more is harmless.
        session.guard.catalog.changed();
    }
    if watch.names_us
        && let Some(id) = cut::id_at_end(&watch.tail).and_then(|id| ids.somewhere_in(id.as_bytes()))
    {
        link.unreadable(&id);
    }
}

/// What is looked for in a message that passes.
struct Watch<'a> {
    ids: Option<&'a OwnIds>,
    /// The end of what has passed.
    tail: Vec<u8>,
    /// Whether an id of ours is in it.
    names_us: bool,
    /// Whether it may say that the server's tools have changed.
    names_change: bool,
}

impl Watch<'_> {
    fn see(&mut self, piece: &[u8]) {
        let mut seam = self.tail[self.tail.len().saturating_sub(SEAM)..].to_vec();
        seam.extend_from_slice(&piece[..piece.len().min(SEAM)]);
        for bytes in [&seam, piece] {
            self.names_us |= self.ids.is_some_and(|ids| ids.are_in(bytes));
            self.names_change |= listing::may_concern(bytes);
        }
        if piece.len() < TAIL {
            self.tail.drain(..(self.tail.len() + piece.len()).saturating_sub(TAIL));
        } else {
            self.tail.clear();
        }
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(TAIL)..]);
    }
}

#[cfg(test)]
mod tests {
    use super::{Watch, is_for_the_client};
    use crate::mcp::link::{Link, OwnIds};
    use crate::mcp::stdio::StdioLink;

    #[tokio::test]
    async fn what_may_be_an_answer_to_us_is_never_passed_on_in_pieces() {
        let ids = OwnIds::new().unwrap();
        let (to, _server) = tokio::io::duplex(1_000);
        let link = StdioLink::new(Box::new(to));
        let passes = |begun: &str| is_for_the_client(begun.as_bytes(), &ids, &link);
        let id = ids.next();
        let ours = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{"#);
        let escaped = ours.replace("oncely", "\\u006fncely");
        let (first, later, call) = (r#"{"id":1,"result":{"#, r#"{"result":{"#, r#"{"method":"x","params":{"#);
        assert!(passes(first) && passes(later) && passes(call) && !passes(&ours) && !passes(&escaped));
        {
            let mut calling = std::pin::pin!(link.call(id.clone(), b"{}\n".to_vec()));
            tokio::select! {
                biased;
                reply = &mut calling => panic!("{reply:?}"),
                () = std::future::ready(()) => {}
            }
            assert!(passes(first) && !passes(later) && passes(call) && !passes(&ours) && !passes("["));
        }
        assert!(passes(first) && !passes(later), "the answer to a call that was given up may still come");
        link.unreadable(&id);
        assert!(passes(later));
    }

    #[test]
    fn what_is_looked_for_is_found_however_it_is_cut() {
        let ids = OwnIds::new().unwrap();
        let text = format!(r#"{{"id":1,"a":"list_changed","id":"{}"}}"#, ids.next());
        for first in 0..text.len() {
            for second in first..text.len() {
                let mut watch =
                    Watch { ids: Some(&ids), tail: Vec::new(), names_us: false, names_change: false };
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    watch.see(piece.as_bytes());
                }
                assert!(watch.names_us && watch.names_change, "{first} {second}");
                assert_eq!(watch.tail, text.as_bytes());
            }
        }
        let mut watch = Watch { ids: None, tail: Vec::new(), names_us: false, names_change: false };
        watch.see(&[b'x'; 100_000]);
        watch.see(b"end");
        assert!(watch.tail.len() <= super::TAIL && watch.tail.ends_with(b"xend"));
        assert!(!watch.names_us && !watch.names_change);
    }
}
