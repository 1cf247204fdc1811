//! A stream of messages whose reader stays awake for a moment: while it does, it asks the stream itself whether more has
//! come, and nobody has to be told by the event loop first.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::coop;

use super::alert::Alert;
use super::stdio::Input;

/// How much is read at a time. Where more has come than that, it is read in the usual way, which copies nothing.
const HELD: usize = 32 * 1024;
/// So many messages at a time are a crowd.
const CROWD: usize = 4;
/// After a crowd it rests for so long, so that the next one is no smaller: every piece has to be written, too, and wakes
/// somebody.
const REST: Duration = Duration::from_micros(10);

/// A stream that is read by whoever stays awake.
struct Wakeful {
    from: Input,
    /// The same stream.
    itself: OwnedFd,
    held: Box<[u8]>,
    /// Whether more has come than is held.
    is_flood: bool,
    /// Until when it rests.
    rests: Option<Instant>,
    /// How often something had come to anybody when something last came here.
    found: u64,
    alert: Arc<Alert>,
}

/// A stream whose reader stays awake when that is worth it; `itself` is the same stream. One that would be waited for when it is
/// asked stays as it is.
pub(super) fn wakeful(from: Input, itself: Option<OwnedFd>, alert: &Arc<Alert>) -> Input {
    let answers_at_once = |fd: &OwnedFd| fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
    match itself.filter(answers_at_once) {
        Some(itself) => {
            let held = vec![0; HELD].into();
            Box::new(Wakeful {
                from,
                itself,
                held,
                is_flood: false,
                rests: None,
                found: 0,
                alert: alert.clone(),
            })
        }
        None => from,
    }
}

impl AsyncRead for Wakeful {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.is_flood {
            let read = this.poll_usual(context, into);
            this.is_flood = read.is_ready();
            if this.is_flood {
                return read;
            }
        }
        if let Some(until) = this.rests {
            if Instant::now() < until {
                return look_again(context);
            }
            this.rests = None;
        }
        // Whoever always finds something lets others run, too.
        let turn = ready!(coop::poll_proceed(context));
        let room = into.remaining().min(HELD);
        // What is amiss is met again in the usual way.
        if has_come(&this.itself)
            && let Ok(count) = rustix::io::read(&this.itself, &mut this.held[..room])
        {
            let read = &this.held[..count];
            into.put_slice(read);
            this.is_flood = count == HELD;
            let is_crowd = memchr::memchr_iter(b'\n', read).nth(CROWD - 1).is_some();
            this.rests = is_crowd.then(|| Instant::now() + REST);
            this.found = this.alert.came();
            turn.made_progress();
            return Poll::Ready(Ok(()));
        }
        drop(turn);
        if this.alert.looks_on(this.found, context.waker()) {
            return look_again(context);
        }
        this.poll_usual(context, into)
    }
}

impl Wakeful {
    /// As the event loop has it.
    fn poll_usual(&mut self, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.from).poll_read(context, into);
        if read.is_ready() {
            self.found = self.alert.came();
        }
        read
    }
}

/// Whether there is anything to read, or the end. Nobody waits for what is not there, also where somebody who shares the
/// stream has switched it back to being waited for.
fn has_come(stream: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&at_once)).is_ok_and(|count| count > 0)
}

/// Others first, in this process or not; then whatever has come.
fn look_again(context: &Context<'_>) -> Poll<io::Result<()>> {
    std::thread::yield_now();
    context.waker().wake_by_ref();
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use rustix::fs::{Mode, OFlags, open};
    use tokio::io::AsyncReadExt;
    use tokio::net::unix::pipe::Receiver;

    use super::{Alert, HELD, Input, wakeful};

    /// A pipe whose reader stays awake.
    fn pipe() -> (Input, File) {
        let (from, to) = std::io::pipe().unwrap();
        let itself = from.try_clone().unwrap().into();
        let from = Box::new(Receiver::from_owned_fd(from.into()).unwrap());
        (wakeful(from, Some(itself), &Arc::new(Alert::default())), File::from(OwnedFd::from(to)))
    }

    #[tokio::test]
    async fn everything_comes_in_order_however_much_there_is_at_a_time() {
        let (mut from, mut to) = pipe();
        let all: Vec<u8> = (0..40 * HELD).map(|at| (at / 3 % 251) as u8).collect();
        let sent = all.clone();
        let sending = std::thread::spawn(move || {
            let mut rest = &sent[..];
            for length in (0..).map(|turn| [1, 300, HELD - 1, HELD, HELD + 1, 5 * HELD][turn % 6]) {
                let (piece, after) = rest.split_at(length.min(rest.len()));
                to.write_all(piece).unwrap();
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
        });
        let mut seen = bytes::BytesMut::new();
        loop {
            seen.reserve(2 * HELD);
            if from.read_buf(&mut seen).await.unwrap() == 0 {
                break;
            }
        }
        assert!(seen == all, "{} of {}", seen.len(), all.len());
        sending.join().unwrap();
    }

    #[tokio::test]
    async fn what_is_not_read_any_more_is_not_held_open() {
        let (from, mut to) = pipe();
        to.write_all(b"x").unwrap();
        drop(from);
        assert_eq!(to.write_all(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn a_stream_that_is_switched_back_by_whoever_shares_it_is_not_waited_for() {
        let (from, to) = std::io::pipe().unwrap();
        let shared: OwnedFd = from.try_clone().unwrap().into();
        let itself = from.try_clone().unwrap().into();
        let from = Box::new(Receiver::from_owned_fd(from.into()).unwrap());
        let mut from = wakeful(from, Some(itself), &Arc::new(Alert::default()));
        rustix::fs::fcntl_setfl(&shared, OFlags::empty()).unwrap();
        let mut to = File::from(OwnedFd::from(to));
        tokio::select! {
            biased;
            read = from.read_u8() => panic!("{read:?}"),
            () = std::future::ready(()) => {}
        }
        to.write_all(b"x").unwrap();
        assert_eq!(from.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn whoever_always_finds_something_lets_others_run() {
        let zero = open("/dev/zero", OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        let mut from = wakeful(Box::new(tokio::io::empty()), Some(zero), &Arc::new(Alert::default()));
        let reading = tokio::spawn(async move { while from.read(&mut [1]).await.unwrap() > 0 {} });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        reading.abort();
    }

    #[tokio::test]
    async fn a_stream_that_would_have_to_be_waited_for_is_not_asked() {
        let (itself, _to) = std::io::pipe().unwrap();
        let (from, _other) = tokio::io::duplex(8);
        let mut from = wakeful(Box::new(from), Some(itself.into()), &Arc::new(Alert::default()));
        tokio::select! {
            biased;
            read = from.read_u8() => panic!("{read:?}"),
            () = std::future::ready(()) => {}
        }
    }
}
