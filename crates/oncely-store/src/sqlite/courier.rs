//! Answers that are brought to a thread together.
//!
//! To wake a task of another thread costs a system call, and tasks that are woken one after the other run one after the
//! other, each with all that it does next. A thread that serves many callers is better off if it hears of a commit once:
//! then all of them go on in step, and what they write leaves in a row. Such a thread runs [`bring_answers_together`].

use std::cell::RefCell;

use oncely_core::StoreError;
use tokio::sync::{mpsc, oneshot};

use super::batch::Answer;

thread_local! {
    /// Who brings answers to this thread, if somebody does.
    static HERE: RefCell<Option<Courier>> = const { RefCell::new(None) };
}

/// What a request is answered with.
pub(crate) type Answered = Result<Answer, StoreError>;

/// The way to a thread that has its answers brought.
#[derive(Clone)]
struct Courier(mpsc::UnboundedSender<Bag>);

impl Courier {
    fn here() -> Option<Self> {
        HERE.try_with(|here| here.borrow().clone()).ok().flatten()
    }
}

/// Whom to answer, and how to get there.
pub(crate) struct Reply {
    to: oneshot::Sender<Answered>,
    by: Option<Courier>,
}

impl Reply {
    /// For the thread that asks.
    pub(crate) fn channel() -> (Self, oneshot::Receiver<Answered>) {
        let (to, answer) = oneshot::channel();
        (Self { to, by: Courier::here() }, answer)
    }
}

/// Answers all of them: those of one courier together, the others one by one.
pub(crate) fn answer(all: impl IntoIterator<Item = (Reply, Answered)>) {
    let mut bags: Vec<(Courier, Bag)> = Vec::new();
    for (Reply { to, by }, answered) in all {
        let Some(by) = by else {
            // The caller is gone; what it asked for is done all the same.
            let _ = to.send(answered);
            continue;
        };
        match bags.iter_mut().find(|(courier, _)| courier.0.same_channel(&by.0)) {
            Some((_, bag)) => bag.0.push((to, answered)),
            None => bags.push((by, Bag(vec![(to, answered)]))),
        }
    }
    for (courier, bag) in bags {
        // If its thread has ended, the bag comes back and is emptied here.
        let _ = courier.0.send(bag);
    }
}

/// Answers on their way. They are given out when it is dropped, wherever that is: none can be lost.
struct Bag(Vec<(oneshot::Sender<Answered>, Answered)>);

impl Drop for Bag {
    fn drop(&mut self) {
        for (to, answered) in self.0.drain(..) {
            let _ = to.send(answered);
        }
    }
}

/// Brings the answers of SQLite ledgers to what this thread asks of them, for as long as it runs: all of a commit at
/// once. To be run on a runtime that has this thread only, beside the tasks that ask: they are answered when it has its
/// turn. So nothing on this thread may block until it is answered, but has to await it.
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
mod tests {
    use super::{Answered, Reply, answer, bring_answers_together};
    use crate::sqlite::batch::Answer;

    fn done(replies: Vec<Reply>) -> Vec<(Reply, Answered)> {
        replies.into_iter().map(|reply| (reply, Ok(Answer::Done))).collect()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn answers_wait_for_the_courier_of_the_thread_that_asked() {
        let runtime = runtime();
        runtime.block_on(async {
            let courier = tokio::spawn(bring_answers_together());
            tokio::task::yield_now().await;
            let (replies, mut answers): (Vec<_>, Vec<_>) = (0..3).map(|_| Reply::channel()).unzip();
            let (alone, mut of_another_thread) = std::thread::spawn(Reply::channel).join().unwrap();
            answer(done(replies.into_iter().chain([alone]).collect()));
            assert!(of_another_thread.try_recv().is_ok(), "nobody brings it anything");
            assert!(
                answers.iter_mut().all(|answer| answer.try_recv().is_err()),
                "the courier had no turn yet"
            );
            tokio::task::yield_now().await;
            assert!(
                answers.iter_mut().all(|answer| answer.try_recv().is_ok()),
                "one turn of the courier is enough"
            );
            courier.abort();
        });
    }

    #[test]
    fn no_answer_is_lost_with_a_courier() {
        let runtime = runtime();
        let [(on_its_way, mut first), (too_late, mut second)] = runtime.block_on(async {
            tokio::spawn(bring_answers_together());
            tokio::task::yield_now().await;
            [Reply::channel(), Reply::channel()]
        });
        answer(done(vec![on_its_way]));
        assert!(first.try_recv().is_err(), "it waits for a runtime that does nothing");
        drop(runtime);
        assert!(first.try_recv().is_ok());
        answer(done(vec![too_late]));
        assert!(second.try_recv().is_ok());
        let (reply, mut third) = Reply::channel();
        answer(done(vec![reply]));
        assert!(third.try_recv().is_ok(), "the thread is like any other again");
    }
}
