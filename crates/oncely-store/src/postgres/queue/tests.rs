//! Who is woken for what, and what leaves before what.

use oncely_core::IntentId;

use super::super::request::Job;
use super::*;

/// Requests that have waited for so many milliseconds, in a lane. What they ask for does not matter here.
fn queue_up(state: &mut State, lane: Lane, count: usize, waited_ms: u64) {
    let asked = Instant::now() + Duration::from_secs(60) - Duration::from_millis(waited_ms);
    for _ in 0..count {
        let request = Request::Load { intent: IntentId([0; 32]) };
        let ticket = Tickets::draw(&Arc::default());
        let (reply, _) = Reply::homeward();
        state.lanes[lane as usize].push_back(Op { request, reply, asked, bytes: 0, _ticket: ticket });
    }
}

#[test]
fn while_a_write_is_under_way_few_wait_for_it_and_many_do_not() {
    for under_way in [Lane::Create, Lane::Put] {
        let mut state = State { quick: true, ..State::default() };
        queue_up(&mut state, Lane::Put, 1, 2000);
        queue_up(&mut state, Lane::Create, WORTHWHILE - 2, 1000);
        assert_eq!(state.next_lane(), Some(Lane::Put), "nothing is under way");
        state.active[under_way as usize] = 1;
        assert_eq!(state.next_lane(), None);
        queue_up(&mut state, Lane::Create, 1, 1000);
        assert_eq!(state.next_lane(), Some(Lane::Put));
        state.active[under_way as usize] = 2;
        assert_eq!(state.next_lane(), None);
    }
}

#[test]
fn a_few_ends_do_not_wait_for_ever_behind_many_begins() {
    for quick in [true, false] {
        let mut state = State { quick, ..State::default() };
        queue_up(&mut state, Lane::Create, 10 * WORTHWHILE, 1000);
        queue_up(&mut state, Lane::Put, 1, 2000);
        for under_way in 0..10 {
            state.active[Lane::Create as usize] = under_way;
            assert_eq!(state.next_lane(), Some(Lane::Put), "{under_way} under way");
        }
    }
}

#[test]
fn neither_reads_nor_jobs_wait_for_a_write() {
    for lane in [Lane::Load, Lane::Job] {
        let mut state = State { quick: true, ..State::default() };
        (state.active[Lane::Create as usize], state.active[Lane::Put as usize]) = (1, 1);
        queue_up(&mut state, Lane::Create, 1, 2000);
        queue_up(&mut state, lane, 1, 1000);
        assert_eq!(state.next_lane(), Some(lane));
    }
}

fn claim(queue: &Queue, number: u8) {
    // Whoever asked has gone; a worker is woken for it all the same.
    drop(queue.submit(Request::Load { intent: IntentId([number; 32]) }).map_err(drop));
}

#[test]
fn where_writes_take_long_an_end_does_not_wait_for_a_begin() {
    let queue = Queue::new(10, 2);
    for (took, waits) in [(QUICK, true), (QUICK * 2, false), (QUICK + QUICK_EACH * 3, true)] {
        queue.lock().active[Lane::Create as usize] = 2;
        queue.finish(Lane::Create, 3, took);
        let mut state = queue.lock();
        state.lanes[Lane::Put as usize].clear();
        queue_up(&mut state, Lane::Put, 1, 1000);
        assert_eq!(state.next_lane(), (!waits).then_some(Lane::Put), "{took:?}");
    }
}

#[tokio::test]
async fn whoever_is_idle_is_woken_for_what_another_was_to_do() {
    let queue = Queue::new(10, 2);
    let (first, second) = (queue.bell(), queue.bell());
    for bell in [&second, &first] {
        assert!(queue.take_or_park(bell).is_none());
    }
    claim(&queue, 1);
    // The first is rung, and cannot: its connection is lost.
    first.rings().await;
    queue.nudge();
    second.rings().await;
    assert!(queue.take_or_park(&second).is_some());
}

async fn is_rung(bell: &Bell) -> bool {
    tokio::time::timeout(Duration::ZERO, bell.rings()).await.is_ok()
}

#[tokio::test]
async fn the_longest_serving_is_woken_and_wakes_the_next_for_what_it_leaves() {
    let queue = Queue::new(10, 3);
    let bells = [queue.bell(), queue.bell(), queue.bell()];
    for bell in bells.iter().rev() {
        assert!(queue.take_or_park(bell).is_none());
    }
    claim(&queue, 1);
    claim(&queue, 2);
    drop(queue.submit(Request::Job(Job::Now)).map_err(drop));
    assert!(is_rung(&bells[0]).await);
    assert!(!is_rung(&bells[1]).await && !is_rung(&bells[2]).await, "one has not looked yet");
    let (both, job) = (queue.take_or_park(&bells[0]), bells[1].rings());
    assert_eq!(both.map(|batch| batch.lane), Some(Lane::Load));
    job.await;
    assert_eq!(queue.take_or_park(&bells[1]).map(|batch| batch.lane), Some(Lane::Job));
    assert!(!is_rung(&bells[2]).await, "nothing is left");
}

#[tokio::test]
async fn who_comes_back_to_work_is_woken_before_those_who_came_later() {
    let queue = Queue::new(10, 2);
    let (first, second) = (queue.bell(), queue.bell());
    assert!(queue.take_or_park(&second).is_none());
    claim(&queue, 1);
    second.rings().await;
    assert!(queue.take_or_park(&second).is_some());
    queue.finish(Lane::Load, 1, Duration::ZERO);
    assert!(queue.take_or_park(&first).is_none() && queue.take_or_park(&second).is_none());
    claim(&queue, 2);
    first.rings().await;
    assert!(!is_rung(&second).await);
}

#[tokio::test]
async fn what_waits_when_the_ledger_is_closed_still_finds_somebody() {
    let queue = Queue::new(10, 2);
    let bell = queue.bell();
    {
        let mut state = queue.lock();
        (state.quick, state.active[Lane::Create as usize]) = (true, 1);
        queue_up(&mut state, Lane::Put, 1, 1000);
    }
    queue.close();
    assert!(queue.take_or_park(&bell).is_none(), "it waits for the write that is under way");
    assert!(!queue.is_done(), "so that nobody may go");
    // That one takes long, and is no reason to wait any more.
    queue.finish(Lane::Create, 1, Duration::from_secs(1));
    queue.nudge();
    bell.rings().await;
    assert!(queue.take_or_park(&bell).is_some() && queue.is_done());
}
