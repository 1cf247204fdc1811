//! How processes take turns at writing, and the few words of shared memory that they keep beside the ledger.
//!
//! **Turns.** SQLite's own lock is not fair: a process that polls for it can starve. So a writer takes lock G
//! (`<ledger>-turn`), then lock M (`<ledger>-lock`), lets go of G, writes, and lets go of M. Whoever holds G is next;
//! the kernel queues the others in order. The locks go with the process that held them.
//!
//! **Words**, in `<ledger>-turn`, written only under M, read by anyone with one `pread`:
//!
//! - *commits* grows with every commit that changed a record: waiters of other processes look at it.
//! - *epochs*: one word for each group of intents. It says until when what was read of a succeeded record may be kept in
//!   memory. Before a commit that removes or changes a succeeded record, the word of its group is made odd, and after
//!   it even again, two higher than it was. *changing* is set for as long as words may be odd.
//!
//! Why a cached record is current: an entry carries the epoch that was read, even, *before* its row was read. If a
//! later look at the word finds the same even number, no change to a succeeded record of that group was committed
//! between the two: the word would have moved before the commit. An odd word says that a commit may be happening now:
//! the cache is passed by. A process that dies in between leaves the word odd; the next to hold M finds *changing* set
//! and makes all words even, higher than they were. The words are not synced: after a loss of power no process is left
//! that could hold an entry.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncely_core::IntentId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

const GROUPS: usize = 1024;
const COMMITS_AT: u64 = 0;
const CHANGING_AT: u64 = 8;
const EPOCHS_AT: u64 = 16;
const FILE_BYTES: usize = EPOCHS_AT as usize + GROUPS * 8;

/// How long a process that opens the ledger waits for another one's turn to end. Turns last milliseconds: a longer one
/// is that of a stopped process.
const OPENING_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The shared words, for reading.
#[derive(Debug, Clone)]
pub(crate) struct Board(Arc<OwnedFd>);

impl Board {
    /// The words in this file, which is made long enough for all of them under lock M.
    pub(crate) fn new(turn: OwnedFd, lock: &OwnedFd) -> Result<Self, Errno> {
        let size = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|s| s.st_size as u64);
        if size(&turn)? < FILE_BYTES as u64 {
            lock_within(lock, OPENING_PATIENCE)?;
            // Written out, not just extended: a word must never fail to be written for want of space.
            let missing = FILE_BYTES.saturating_sub(size(&turn)? as usize);
            let written = write_at(&turn, (FILE_BYTES - missing) as u64, &vec![0; missing]);
            flock(lock, FlockOperation::Unlock)?;
            written?;
        }
        Ok(Self(Arc::new(turn)))
    }

    /// How often records were changed.
    pub(crate) fn commits(&self) -> Result<u64, Errno> {
        self.word(COMMITS_AT)
    }

    /// The epoch of an intent's group, unless a change is being committed.
    pub(crate) fn settled_epoch(&self, intent: &IntentId) -> Option<u64> {
        self.word(epoch_at(intent)).ok().filter(|epoch| epoch % 2 == 0)
    }

    fn word(&self, at: u64) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        retry(|| rustix::io::pread(&*self.0, &mut bytes, at))?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn set(&self, at: u64, value: u64) -> Result<(), Errno> {
        write_at(&self.0, at, &value.to_le_bytes())
    }
}

/// One thread's place in the queue of writers. Each has its own: the kernel counts locks by open file.
#[derive(Debug)]
pub(crate) struct Turnstile {
    turn: OwnedFd,
    lock: OwnedFd,
    board: Board,
}

impl Turnstile {
    pub(crate) fn new(turn: OwnedFd, lock: OwnedFd, board: Board) -> Self {
        Self { turn, lock, board }
    }

    /// Waits for the turn. Nobody else writes until the result is dropped.
    pub(crate) fn enter(&mut self) -> Result<Turn<'_>, Errno> {
        retry(|| flock(&self.turn, FlockOperation::LockExclusive))?;
        let entered = retry(|| flock(&self.lock, FlockOperation::LockExclusive));
        let left = flock(&self.turn, FlockOperation::Unlock);
        entered?;
        let turn = Turn { stile: Held::Borrowed(self) };
        left?;
        turn.repair()?;
        Ok(turn)
    }

    /// The same, but only if nobody else has the turn or waits for it.
    pub(crate) fn enter_if_free(&mut self) -> Result<Option<Turn<'_>>, Errno> {
        if !try_lock(&self.turn)? {
            return Ok(None);
        }
        let entered = try_lock(&self.lock);
        let left = flock(&self.turn, FlockOperation::Unlock);
        if !entered? {
            return left.map(|()| None);
        }
        let turn = Turn { stile: Held::Borrowed(self) };
        left?;
        turn.repair()?;
        Ok(Some(turn))
    }

    /// The same for one turn only, which keeps the place; and not for ever: whoever waits may be the one who holds it.
    pub(crate) fn into_turn(self, patience: Duration) -> Result<Turn<'static>, Errno> {
        lock_within(&self.turn, patience)?;
        let entered = lock_within(&self.lock, patience);
        let left = flock(&self.turn, FlockOperation::Unlock);
        entered?;
        let turn = Turn { stile: Held::Owned(self) };
        left?;
        turn.repair()?;
        Ok(turn)
    }

    /// Waits for the turn only for as long as one may take to open the ledger. Not in the order of the queue: whoever
    /// opens has nothing to lose.
    pub(crate) fn enter_for_opening(&mut self) -> Result<Turn<'_>, Errno> {
        lock_within(&self.lock, OPENING_PATIENCE)?;
        let turn = Turn { stile: Held::Borrowed(self) };
        turn.repair()?;
        Ok(turn)
    }
}

/// Takes a lock if nobody has it.
fn try_lock(lock: &OwnedFd) -> Result<bool, Errno> {
    match retry(|| flock(lock, FlockOperation::NonBlockingLockExclusive)) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        answered => answered.map(|()| true),
    }
}

fn lock_within(lock: &OwnedFd, patience: Duration) -> Result<(), Errno> {
    let deadline = Instant::now() + patience;
    loop {
        if try_lock(lock)? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Errno::TIMEDOUT);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// A turn at writing: lock M is held.
pub(crate) struct Turn<'a> {
    stile: Held<'a>,
}

/// A place that others use later, or one for this turn only.
enum Held<'a> {
    Borrowed(&'a Turnstile),
    Owned(Turnstile),
}

impl std::ops::Deref for Held<'_> {
    type Target = Turnstile;

    fn deref(&self) -> &Turnstile {
        match self {
            Self::Borrowed(stile) => stile,
            Self::Owned(stile) => stile,
        }
    }
}

impl Turn<'_> {
    /// Announces that succeeded records of these intents are about to change: nothing cached of their groups is
    /// current any more. To be ended by [`Turn::settle`], whatever became of the commit.
    pub(crate) fn unsettle(&self, intents: &[IntentId]) -> Result<(), Errno> {
        if intents.is_empty() {
            return Ok(());
        }
        let board = &self.stile.board;
        board.set(CHANGING_AT, 1)?;
        for at in groups(intents) {
            board.set(at, board.word(at)? | 1)?;
        }
        Ok(())
    }

    /// Ends what [`Turn::unsettle`] began.
    pub(crate) fn settle(&self, intents: &[IntentId]) -> Result<(), Errno> {
        if intents.is_empty() {
            return Ok(());
        }
        let board = &self.stile.board;
        for at in groups(intents) {
            board.set(at, (board.word(at)? | 1).wrapping_add(1))?;
        }
        board.set(CHANGING_AT, 0)
    }

    /// Tells waiters of other processes that records have changed.
    pub(crate) fn announce_commit(&self) -> Result<(), Errno> {
        let board = &self.stile.board;
        board.set(COMMITS_AT, board.commits()?.wrapping_add(1))
    }

    /// Makes words even again that a dead process left odd.
    fn repair(&self) -> Result<(), Errno> {
        let board = &self.stile.board;
        if board.word(CHANGING_AT)? == 0 {
            return Ok(());
        }
        for group in 0..GROUPS as u64 {
            let at = EPOCHS_AT + group * 8;
            let epoch = board.word(at)?;
            if epoch % 2 == 1 {
                board.set(at, epoch.wrapping_add(1))?;
            }
        }
        board.set(CHANGING_AT, 0)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // It can only fail on a bad handle, and then the lock is not held.
        let _ = flock(&self.stile.lock, FlockOperation::Unlock);
    }
}

fn groups(intents: &[IntentId]) -> Vec<u64> {
    let mut groups: Vec<u64> = intents.iter().map(epoch_at).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn epoch_at(intent: &IntentId) -> u64 {
    // The ids are digests: any two bytes are spread evenly.
    let group = usize::from(u16::from_le_bytes([intent.0[30], intent.0[31]])) % GROUPS;
    EPOCHS_AT + group as u64 * 8
}

fn write_at(fd: &OwnedFd, at: u64, bytes: &[u8]) -> Result<(), Errno> {
    match retry(|| rustix::io::pwrite(fd, bytes, at))? {
        written if written == bytes.len() => Ok(()),
        _ => Err(Errno::NOSPC),
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Board, Turnstile, epoch_at};
    use oncely_core::IntentId;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    fn open(directory: &Path, name: &str) -> OwnedFd {
        let path = directory.join(name);
        std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap()
            .into()
    }

    fn stile(directory: &Path) -> Turnstile {
        let board = Board::new(open(directory, "turn"), &open(directory, "lock")).unwrap();
        Turnstile::new(open(directory, "turn"), open(directory, "lock"), board)
    }

    const A: IntentId = IntentId([1; 32]);
    const B: IntentId = IntentId([2; 32]);

    #[test]
    fn an_epoch_is_unsettled_during_a_change_and_higher_after_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut stile = stile(directory.path());
        let board = stile.board.clone();
        assert_eq!(board.settled_epoch(&A), Some(0));
        let turn = stile.enter().unwrap();
        turn.unsettle(&[A]).unwrap();
        assert_eq!(board.settled_epoch(&A), None);
        assert_eq!(board.settled_epoch(&B), Some(0), "another group is not touched");
        turn.settle(&[A]).unwrap();
        assert_eq!(board.settled_epoch(&A), Some(2));
    }

    #[test]
    fn the_next_writer_repairs_what_a_dead_one_left() {
        let directory = tempfile::tempdir().unwrap();
        let mut dead = stile(directory.path());
        dead.enter().unwrap().unsettle(&[A, B]).unwrap();
        let mut next = stile(directory.path());
        assert_eq!(next.board.settled_epoch(&A), None);
        drop(next.enter().unwrap());
        assert_eq!((next.board.settled_epoch(&A), next.board.settled_epoch(&B)), (Some(2), Some(2)));
        assert_ne!(epoch_at(&A), epoch_at(&B));
    }

    #[test]
    fn a_turn_that_is_only_taken_if_free_waits_for_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let (mut first, mut second) = (stile(directory.path()), stile(directory.path()));
        let turn = first.enter().unwrap();
        assert!(second.enter_if_free().unwrap().is_none(), "another has it");
        drop(turn);
        drop(second.enter_if_free().unwrap().expect("nobody has it"));
        let queued = open(directory.path(), "turn");
        rustix::fs::flock(&queued, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert!(second.enter_if_free().unwrap().is_none(), "another is next");
        drop(queued);
        assert!(first.enter_if_free().unwrap().is_some(), "and none of these kept anything");
    }

    #[test]
    fn only_one_turn_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let (mut first, mut second) = (stile(directory.path()), stile(directory.path()));
        let turn = first.enter().unwrap();
        let (entered, was) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let _turn = second.enter().unwrap();
                entered.send(()).unwrap();
            });
            assert!(was.try_recv().is_err());
            drop(turn);
            was.recv().unwrap();
        });
    }
}
