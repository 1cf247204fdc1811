//! Bodies: whole where a guarded call was buffered, passed on untouched where nothing had to be known of it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;
use tokio::time::Sleep;

/// Any error of a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

pin_project_lite::pin_project! {
    /// A body of a request or a response behind the layer.
    pub struct Body<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project_lite::pin_project! {
    #[project = KindProjected]
    enum Kind<B> {
        Whole { data: Option<Bytes>, trailers: Option<HeaderMap> },
        Passed { #[pin] body: B },
        Relayed { frames: mpsc::Receiver<Piece>, ended: bool },
    }
}

impl<B> Body<B> {
    /// A body that is known as a whole.
    pub fn whole(data: impl Into<Bytes>) -> Self {
        Self::with_trailers(data.into(), None)
    }

    /// A body of somebody else, untouched.
    pub fn passed(body: B) -> Self {
        Self { kind: Kind::Passed { body } }
    }

    /// The data of a body that is known as a whole; empty where it has none.
    pub fn as_whole(&self) -> Option<Bytes> {
        match &self.kind {
            Kind::Whole { data, .. } => Some(data.clone().unwrap_or_default()),
            _ => None,
        }
    }

    pub(super) fn with_trailers(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { kind: Kind::Whole { data: (!data.is_empty()).then_some(data), trailers } }
    }

    /// A body whose frames arrive from the task that runs the effect.
    pub(super) fn relayed(frames: mpsc::Receiver<Piece>) -> Self {
        Self { kind: Kind::Relayed { frames, ended: false } }
    }
}

impl<B> http_body::Body for Body<B>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.project().kind.project() {
            KindProjected::Whole { data, trailers } => {
                let frame = data.take().map(Frame::data).or_else(|| trailers.take().map(Frame::trailers));
                Poll::Ready(frame.map(Ok))
            }
            KindProjected::Passed { body } => body.poll_frame(context).map_err(Into::into),
            KindProjected::Relayed { ended: true, .. } => Poll::Ready(None),
            KindProjected::Relayed { frames, ended } => frames.poll_recv(context).map(|piece| match piece {
                Some(Piece::Frame(frame)) => Some(Ok(frame)),
                Some(Piece::Broken(error)) => Some(Err(error)),
                Some(Piece::End) => {
                    *ended = true;
                    None
                }
                // Whoever stops without a word has not come to the end.
                None => {
                    *ended = true;
                    Some(Err("the answer broke off".into()))
                }
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole { data, trailers } => data.is_none() && trailers.is_none(),
            Kind::Passed { body } => body.is_end_stream(),
            Kind::Relayed { .. } => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole { data, .. } => SizeHint::with_exact(data.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Passed { body } => body.size_hint(),
            Kind::Relayed { .. } => SizeHint::default(),
        }
    }
}

/// A piece of an answer on its way to the client.
pub(super) enum Piece {
    Frame(Frame<Bytes>),
    Broken(BoxError),
    /// It is whole.
    End,
}

/// What comes next in a body.
pub(super) enum Next {
    Frame(Frame<Bytes>),
    End,
    Broken(BoxError),
    Stalled,
}

/// What a future resolves to, if it does so in time. What is ready at once, as a short body usually is, needs no timer.
pub(super) async fn in_time<F: Future>(patience: Duration, future: F) -> Option<F::Output> {
    let (mut future, mut limit) = (pin!(future), pin!(None::<Sleep>));
    poll_fn(|context| {
        if let Poll::Ready(done) = future.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        if limit.is_none() {
            limit.set(Some(tokio::time::sleep(patience)));
        }
        match limit.as_mut().as_pin_mut() {
            Some(limit) => limit.poll(context).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

/// The next frame of a body, if it comes in time.
pub(super) async fn next_frame<B>(mut body: Pin<&mut B>, stall: Duration) -> Next
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match in_time(stall, body.frame()).await {
        Some(Some(Ok(frame))) => Next::Frame(frame),
        Some(Some(Err(error))) => Next::Broken(error.into()),
        Some(None) => Next::End,
        None => Next::Stalled,
    }
}

/// So many pieces of a body are kept as they came, however small.
const PIECES_AS_THEY_CAME: usize = 16;
/// From then on a piece of fewer bytes is copied to those before it.
const SMALL_PIECE: usize = 4 * 1024;

/// A body while it is being collected.
#[derive(Default)]
pub(super) struct Collected {
    chunks: Vec<Bytes>,
    /// Small pieces, joined. A piece keeps all of the buffer in memory that it was read into, and there may be one for every
    /// byte.
    joined: Vec<u8>,
    len: usize,
    pub(super) trailers: Option<HeaderMap>,
}

/// How collecting a body ended.
pub(super) enum Collecting {
    /// It is all there.
    Complete,
    /// There is more than allowed.
    TooLong,
    /// It broke off.
    Broken(BoxError),
    /// Nothing came for too long.
    Stalled,
    /// There is no room for what came.
    NoRoom,
}

impl Collected {
    /// Adds frames until the end, or until the body is longer than `max`. Asks with every frame whether there is room for
    /// all that has come so far.
    pub(super) async fn fill<B>(
        &mut self,
        mut body: Pin<&mut B>,
        max: usize,
        stall: Duration,
        mut has_room: impl FnMut(usize) -> bool,
    ) -> Collecting
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        loop {
            match next_frame(body.as_mut(), stall).await {
                Next::Frame(frame) => self.add(frame),
                Next::End => return Collecting::Complete,
                Next::Broken(error) => return Collecting::Broken(error),
                Next::Stalled => return Collecting::Stalled,
            }
            if self.len > max {
                return Collecting::TooLong;
            }
            if !has_room(self.held()) {
                return Collecting::NoRoom;
            }
        }
    }

    /// Adds a frame. Trailers are the end: what follows them is no part of the body. (tonic leaves a message behind them that
    /// was too long to be sent.)
    pub(super) fn add(&mut self, frame: Frame<Bytes>) {
        if self.trailers.is_some() {
            return;
        }
        match frame.into_data() {
            Ok(data) => {
                self.len += data.len();
                if self.chunks.len() >= PIECES_AS_THEY_CAME && data.len() < SMALL_PIECE {
                    self.joined.extend_from_slice(&data);
                } else {
                    self.push_joined();
                    self.chunks.push(data);
                }
            }
            Err(frame) => self.trailers = frame.into_trailers().ok(),
        }
    }

    fn push_joined(&mut self) {
        if !self.joined.is_empty() {
            // Without the room to grow that it had.
            self.chunks.push(std::mem::take(&mut self.joined).into_boxed_slice().into());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// What it takes in memory: a body that comes byte by byte takes more than its bytes.
    pub(super) fn held(&self) -> usize {
        let spare = self.joined.capacity() - self.joined.len();
        self.len + self.chunks.len().saturating_sub(1) * size_of::<Bytes>() + spare
    }

    /// What has come so far, in pieces. It is no longer held here.
    pub(super) fn take_chunks(&mut self) -> Vec<Bytes> {
        self.push_joined();
        self.len = 0;
        std::mem::take(&mut self.chunks)
    }

    /// What has come so far, in one piece. It is no longer held here.
    pub(super) fn take_bytes(&mut self) -> Bytes {
        let len = self.len;
        let mut chunks = self.take_chunks();
        if chunks.len() <= 1 {
            return chunks.pop().unwrap_or_default();
        }
        let mut whole = BytesMut::with_capacity(len);
        chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        whole.freeze()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body::Frame;
    use http_body_util::{BodyExt as _, Full};
    use tokio::sync::mpsc;

    use super::{Body, Collected, PIECES_AS_THEY_CAME, Piece, SMALL_PIECE};

    #[test]
    fn a_body_that_comes_byte_by_byte_is_few_pieces_and_the_same_bytes() {
        let mut collected = Collected::default();
        let mut expected = Vec::new();
        for number in 0..50_000 {
            // Now and then a piece that is not small, which must not change places with those before it.
            let data = vec![number as u8; if number % 10_000 == 9_999 { SMALL_PIECE } else { 1 }];
            expected.extend_from_slice(&data);
            collected.add(Frame::data(data.into()));
        }
        assert_eq!(collected.len(), expected.len());
        assert!(collected.held() < 3 * expected.len(), "{}", collected.held());
        let pieces = collected.take_chunks();
        assert!(pieces.len() <= PIECES_AS_THEY_CAME + 10, "{}", pieces.len());
        assert_eq!(pieces.concat(), expected);
        assert_eq!((collected.len(), collected.held()), (0, 0), "nothing is left");
        for data in pieces {
            collected.add(Frame::data(data));
        }
        assert_eq!(collected.take_bytes(), expected);
    }

    #[tokio::test]
    async fn a_relayed_body_ends_only_where_its_end_was_said() {
        for (says_end, whole) in [(true, true), (false, false)] {
            let (sender, frames) = mpsc::channel(4);
            let _ = sender.send(Piece::Frame(Frame::data(Bytes::from_static(b"half")))).await;
            if says_end {
                let _ = sender.send(Piece::End).await;
            }
            drop(sender);
            let body: Body<Full<Bytes>> = Body::relayed(frames);
            assert_eq!(body.collect().await.is_ok(), whole);
        }
    }
}
