//! Answers that are brought to where they are awaited together.
//!
//! To wake a task of another thread costs a system call, and tasks that are woken one after the other run one after the
//! other, each with all that it does next. Who serves many callers is better off if it hears of a commit once: then all of
//! them go on in step, and what they ask for next leaves together, too.
//!
//! There are two ways. A thread that serves runs [`bring_answers_together`], which says so by itself. To others a ledger
//! with a runtime of its own brings the answers by a task on theirs ([`Reply::homeward`]); if that has no turn soon, because
//! its threads are all blocked, they are given out from where they are.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

thread_local! {
    /// Who brings answers to this thread, if somebody does.
    static HERE: RefCell<Option<Courier>> = const { RefCell::new(None) };
}

/// The way to a thread that has its answers brought.
#[derive(Clone)]
struct Courier(mpsc::UnboundedSender<Box<dyn Parcel>>);

impl Courier {
    fn here() -> Option<Self> {
        HERE.try_with(|here| here.borrow().clone()).ok().flatten()
    }
}

/// How an answer gets to who awaits it.
enum Way {
    /// By itself.
    Alone,
    By(Courier),
    /// To a task of this runtime, most likely.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    Home(home::Home),
}

impl Way {
    fn is_shared_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::By(one), Self::By(other)) => one.0.same_channel(&other.0),
            #[cfg(any(feature = "postgres", feature = "redis"))]
            (Self::Home(one), Self::Home(other)) => one.is(other),
            _ => false,
        }
    }
}

/// Answers, each with whom it is for.
type Letters<T> = Vec<(oneshot::Sender<T>, T)>;

/// Whom to answer, and how to get there.
pub(crate) struct Reply<T> {
    to: oneshot::Sender<T>,
    way: Way,
}

impl<T: Send + 'static> Reply<T> {
    /// For the thread that asks. Answered by anybody.
    #[cfg(feature = "sqlite")]
    pub(crate) fn channel() -> (Self, oneshot::Receiver<T>) {
        Self::by(Courier::here().map_or(Way::Alone, Way::By))
    }

    /// For the thread that asks, or the runtime that it works for. Answered by somebody on a runtime.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn homeward() -> (Self, oneshot::Receiver<T>) {
        let home = || home::Home::here().map_or(Way::Alone, Way::Home);
        Self::by(Courier::here().map_or_else(home, Way::By))
    }

    fn by(way: Way) -> (Self, oneshot::Receiver<T>) {
        let (to, answer) = oneshot::channel();
        (Self { to, way }, answer)
    }

    /// Whether nobody awaits the answer any more.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_closed(&self) -> bool {
        self.to.is_closed()
    }

    /// Answers this one by itself.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn send(self, answer: T) {
        give(self.to, answer);
    }
}

fn give<T>(to: oneshot::Sender<T>, answer: T) {
    // The caller is gone; what it asked for is done all the same.
    let _ = to.send(answer);
}

/// Answers that leave together, when it is dropped.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) struct Answers<T: Send + 'static>(Vec<(Reply<T>, T)>);

#[cfg(any(feature = "postgres", feature = "redis"))]
impl<T: Send + 'static> Answers<T> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add(&mut self, reply: Reply<T>, answer: T) {
        self.0.push((reply, answer));
    }
}

#[cfg(any(feature = "postgres", feature = "redis"))]
impl<T: Send + 'static> Drop for Answers<T> {
    fn drop(&mut self) {
        answer(self.0.drain(..));
    }
}

/// Answers all of them: those that have the same way together, the others one by one.
pub(crate) fn answer<T: Send + 'static>(all: impl IntoIterator<Item = (Reply<T>, T)>) {
    let mut bags: Vec<(Way, Letters<T>)> = Vec::new();
    for (Reply { to, way }, answer) in all {
        match bags.iter_mut().find(|(other, _)| other.is_shared_with(&way)) {
            Some((_, bag)) => bag.push((to, answer)),
            None if matches!(way, Way::Alone) => give(to, answer),
            None => bags.push((way, vec![(to, answer)])),
        }
    }
    for (way, answers) in bags {
        let bag = Bag(Mutex::new(answers));
        match way {
            // If its thread has ended, the bag comes back and is emptied here.
            Way::By(courier) => drop(courier.0.send(Box::new(bag))),
            #[cfg(any(feature = "postgres", feature = "redis"))]
            Way::Home(home) => home.bring(bag),
            Way::Alone => drop(bag),
        }
    }
}

/// Something to be dropped elsewhere.
trait Parcel: Send {}

impl<T: Send> Parcel for Bag<T> {}

/// Answers on their way. They are given out when it is dropped, wherever that is: none can be lost.
struct Bag<T>(Mutex<Letters<T>>);

impl<T> Bag<T> {
    fn answers(&self) -> MutexGuard<'_, Letters<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_out(&self) {
        // Whom an answer wakes may come here at once.
        let answers = std::mem::take(&mut *self.answers());
        for (to, answer) in answers {
            give(to, answer);
        }
    }
}

impl<T> Drop for Bag<T> {
    fn drop(&mut self) {
        self.give_out();
    }
}

/// The way to a runtime, from one of our own.
#[cfg(any(feature = "postgres", feature = "redis"))]
mod home {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::runtime::Handle;

    use super::Bag;

    /// Fewer answers are given out one by one.
    pub(super) const SOME: usize = 4;
    /// How long a runtime may take to give out the answers that were brought to it.
    const SOON: Duration = Duration::from_millis(10);

    /// The runtime that a caller works for.
    pub(super) struct Home(Handle);

    impl Home {
        pub(super) fn here() -> Option<Self> {
            Handle::try_current().ok().map(Self)
        }

        pub(super) fn is(&self, other: &Self) -> bool {
            self.0.id() == other.0.id()
        }

        /// Has the runtime give out answers, and sees to it that they are given out.
        pub(super) fn bring<T: Send + 'static>(&self, bag: Bag<T>) {
            let (true, Ok(ours)) = (bag.answers().len() >= SOME, Handle::try_current()) else {
                return drop(bag);
            };
            let bag = Arc::new(bag);
            let late = Late(Arc::clone(&bag));
            self.0.spawn(async move { bag.give_out() });
            ours.spawn(async move {
                tokio::time::sleep(SOON).await;
                drop(late);
            });
        }
    }

    /// Gives out what is left of answers when it is dropped: in time, or when our own runtime ends.
    struct Late<T>(Arc<Bag<T>>);

    impl<T> Drop for Late<T> {
        fn drop(&mut self) {
            self.0.give_out();
        }
    }
}

/// Brings the answers of ledgers to what this thread asks of them, for as long as it runs: all of a commit at once. To be
/// run on a runtime that has this thread only, beside the tasks that ask: they are answered when it has its turn. So
/// nothing on this thread may block until it is answered, but has to await it.
pub async fn bring_answers_together() {
    let (courier, mut bags) = mpsc::unbounded_channel();
    let _post = Post::open(Courier(courier));
    while let Some(bag) = bags.recv().await {
        drop(bag);
    }
}

/// Says that answers are brought to this thread, until it is dropped.
struct Post(Courier);

impl Post {
    fn open(courier: Courier) -> Self {
        HERE.set(Some(courier.clone()));
        Self(courier)
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        // Where it is dropped by another thread, ours finds nobody at the end of the way, and answers are given out at once.
        let _ = HERE.try_with(|here| {
            let mut here = here.borrow_mut();
            if here.as_ref().is_some_and(|courier| courier.0.same_channel(&self.0.0)) {
                *here = None;
            }
        });
    }
}

#[cfg(test)]
#[cfg(all(feature = "sqlite", any(feature = "postgres", feature = "redis")))]
mod tests {
    use tokio::sync::oneshot;

    use super::home::SOME;
    use super::{Reply, answer, bring_answers_together};

    type Channel = (Reply<usize>, oneshot::Receiver<usize>);
    type Channels = (Vec<(Reply<usize>, usize)>, Vec<oneshot::Receiver<usize>>);

    fn some(channel: fn() -> Channel) -> Channels {
        (0..SOME).map(|n| (n, channel())).map(|(n, (reply, answer))| ((reply, n), answer)).unzip()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    fn are_answered(answers: &mut [oneshot::Receiver<usize>]) -> bool {
        let answered = answers.iter_mut().filter_map(|answer| answer.try_recv().ok()).count();
        assert!([0, answers.len()].contains(&answered), "{answered} of {}", answers.len());
        answered > 0
    }

    #[test]
    fn answers_wait_for_the_courier_of_the_thread_that_asked() {
        runtime().block_on(async {
            let courier = tokio::spawn(bring_answers_together());
            tokio::task::yield_now().await;
            for channel in [Reply::channel, Reply::homeward] {
                let (replies, mut answers) = some(channel);
                let (alone, mut of_another_thread) = std::thread::spawn(channel).join().unwrap();
                answer(replies.into_iter().chain([(alone, 7)]));
                assert_eq!(of_another_thread.try_recv(), Ok(7), "nobody brings it anything");
                assert!(!are_answered(&mut answers), "the courier had no turn yet");
                tokio::task::yield_now().await;
                assert!(are_answered(&mut answers), "one turn of the courier is enough");
            }
            courier.abort();
        });
    }

    #[test]
    fn no_answer_is_lost_with_a_courier() {
        let runtime = runtime();
        let [(on_its_way, mut first), (too_late, mut second)]: [Channel; 2] = runtime.block_on(async {
            tokio::spawn(bring_answers_together());
            tokio::task::yield_now().await;
            [Reply::channel(), Reply::channel()]
        });
        answer([(on_its_way, 1)]);
        assert!(first.try_recv().is_err(), "it waits for a runtime that does nothing");
        drop(runtime);
        assert!(first.try_recv().is_ok());
        answer([(too_late, 2)]);
        assert!(second.try_recv().is_ok());
        let (reply, mut third): Channel = Reply::channel();
        answer([(reply, 3)]);
        assert!(third.try_recv().is_ok(), "the thread is like any other again");
    }

    /// What is asked for on a runtime.
    fn asked_on(caller: &tokio::runtime::Runtime) -> Channels {
        let ask = || caller.block_on(async { some(Reply::homeward) });
        std::thread::scope(|scope| scope.spawn(ask).join().unwrap())
    }

    /// Answers that the ledger's runtime, which is the test's, brings to another one.
    fn brought_to(caller: &tokio::runtime::Runtime) -> Vec<oneshot::Receiver<usize>> {
        let (replies, answers) = asked_on(caller);
        answer(replies);
        answers
    }

    #[tokio::test]
    async fn a_runtime_gives_out_what_its_tasks_asked_for() {
        let caller = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        for (at, answer) in brought_to(&caller).into_iter().enumerate() {
            assert_eq!(answer.await, Ok(at));
        }
        caller.shutdown_background();
    }

    #[tokio::test]
    async fn a_runtime_that_is_blocked_or_gone_keeps_no_answer() {
        let caller = runtime();
        let mut answers = brought_to(&caller);
        assert!(!are_answered(&mut answers), "it has had no turn");
        for (at, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.await, Ok(at), "they were given out without it");
        }
        let on_their_way = brought_to(&caller);
        caller.shutdown_background();
        for (at, answer) in on_their_way.into_iter().enumerate() {
            assert_eq!(answer.await, Ok(at), "they are not lost with it");
        }
    }

    #[tokio::test]
    async fn a_few_answers_are_given_out_at_once() {
        let caller = runtime();
        let (mut replies, mut answers) = asked_on(&caller);
        replies.truncate(SOME - 1);
        answers.truncate(SOME - 1);
        answer(replies);
        assert!(are_answered(&mut answers));
        caller.shutdown_background();
    }
}
