//! How waiters learn of what other machines do: by message where one connection can listen, else by looking often.

use std::sync::Arc;
use std::time::Duration;

use oncely_core::StoreError;
use tokio::sync::mpsc;
use tokio_postgres::Notification;

use super::request::{Answer, Job, Request};
use super::rows::Half;
use super::schema::quoted;
use super::shared::Shared;

/// How often waiters' records are looked at where no messages arrive.
const LOOK_OFTEN: Duration = Duration::from_millis(20);
/// How long a listener waits for its server, and then for its own word to come back, before it is sure that it hears nothing.
const ECHO_WITHIN: Duration = Duration::from_secs(3);
/// How long to wait before another try to listen; doubled up to the last.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(30);
/// Most records looked at with one statement.
const LOOK_MAX: usize = 500;

/// Looks at what is waited for, for as long as somebody waits.
pub(crate) async fn look_out(shared: Arc<Shared>) {
    loop {
        let intents = shared.watchers.intents();
        if intents.is_empty() {
            shared.watchers.came.notified().await;
            shared.listen.notify_one();
            continue;
        }
        for some in intents.chunks(LOOK_MAX) {
            if let Ok(Answer::Versions(versions)) = shared.ask_job(Job::Look { intents: some.to_vec() }).await
            {
                shared.watchers.looked(some, &versions);
            }
        }
        shared.watchers.wake_overdue();
        let pause = if shared.watchers.hears() { shared.door.options.look_every } else { LOOK_OFTEN };
        // Whoever begins to wait now has its record looked at now.
        let _ = tokio::time::timeout(pause, shared.watchers.came.notified()).await;
        shared.watchers.wake_overdue();
    }
}

/// Listens from the first wait on. A connection that is lost, or hears nothing, is replaced; meanwhile waiters are
/// looked after by [`look_out`].
pub(crate) async fn listen(shared: Arc<Shared>) {
    shared.listen.notified().await;
    let mut pause = RETRY_FIRST;
    loop {
        let heard = hear(&shared, &mut pause).await;
        shared.watchers.set_hears(false);
        drop(heard);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_LAST);
    }
}

async fn hear(shared: &Shared, pause: &mut Duration) -> Result<(), StoreError> {
    let mut link = shared.door.open_to_listen().await?;
    let listen = format!("LISTEN {}", quoted(&shared.channel));
    if !matches!(tokio::time::timeout(ECHO_WITHIN, link.client.batch_execute(&listen)).await, Ok(Ok(()))) {
        return Ok(());
    }
    // A pooler takes the command and gives the session to somebody else: believe only what is heard.
    let word = format!("hello {}", std::process::id());
    shared.queue.submit(Request::Job(Job::Say(word.clone())))?;
    let echoed = tokio::time::timeout(ECHO_WITHIN, await_word(&mut link.heard, &word)).await;
    if !matches!(echoed, Ok(true)) {
        *pause = RETRY_LAST;
        return Ok(());
    }
    *pause = RETRY_FIRST;
    shared.watchers.set_hears(true);
    // A server that another one has taken over from may still be there, and has nothing to tell any more.
    let replaced = shared.door.newest.passes(link.server.timeline);
    let hearing = async {
        while let Some(message) = link.heard.recv().await {
            shared.watchers.heard_of(&heads(&message));
        }
    };
    tokio::select! {
        () = hearing => {}
        () = replaced => {}
    }
    Ok(())
}

async fn await_word(heard: &mut mpsc::Receiver<Notification>, word: &str) -> bool {
    while let Some(message) = heard.recv().await {
        if message.payload() == word {
            return true;
        }
    }
    false
}

/// The records that a message names; what is not understood is another version's.
fn heads(message: &Notification) -> Vec<Half> {
    let head = |text: &str| u128::from_str_radix(text, 16).ok().map(|number| Half(number.to_be_bytes()));
    message.payload().split(' ').filter_map(head).collect()
}
