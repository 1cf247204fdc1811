//! Callers that wait for a record to change: woken by a message on the record's channel, by writes through this handle,
//! and in any case after a bounded time. Messages can be lost; looking cannot.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncely_core::{IntentId, Version};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::keys::Keys;
use super::options::RedisServer;
use super::resp::command;
use super::router::Router;
use super::subscriber::{Heard, Subscriber};
use super::value::version_of;

/// A waiter whose channel is not listened to is woken after this time at the latest, to see whether the owner still lives.
const LOOKING_MAX: Duration = Duration::from_millis(100);
/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(20);
/// How long a channel that nobody waits for is still listened to: most who wait come back at once.
const LINGER: Duration = Duration::from_secs(2);
/// The bytes in which a value's version stands.
const HEAD_BYTES: &[u8] = b"63";

/// Where callers sign in.
pub(crate) struct Watching {
    tell: mpsc::UnboundedSender<Told>,
    waiting: Arc<AtomicUsize>,
}

enum Told {
    Watch {
        intent: IntentId,
        seen: Version,
        wake: oneshot::Sender<()>,
    },
    /// The record has this version now; `None` for no record, or an unknown one.
    Is(IntentId, Option<Version>),
    Heard(RedisServer, Heard),
}

impl Watching {
    /// Who is listened to is woken after `look_every` at the latest.
    pub(crate) fn start(router: &Arc<Router>, keys: Keys, runtime: &Handle, look_every: Duration) -> Self {
        let (tell, told) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let hub = Hub {
            router: Arc::clone(router),
            keys,
            look_every,
            waiting: Arc::clone(&waiting),
            waiters: HashMap::new(),
            channels: HashMap::new(),
            subscribers: HashMap::new(),
            tell: tell.clone(),
        };
        runtime.spawn(hub.run(told));
        Self { tell, waiting }
    }

    /// Returns when the record may have another version than this, or after a bounded time.
    pub(crate) fn watch(&self, intent: IntentId, seen: Version) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // If the hub is gone the sender is dropped, which wakes as well.
        let _ = self.tell.send(Told::Watch { intent, seen, wake });
        woken
    }

    /// This handle has written the record.
    pub(crate) fn changed(&self, intent: &IntentId, version: Option<Version>) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _ = self.tell.send(Told::Is(*intent, version));
        }
    }
}

struct Waiter {
    seen: Version,
    deadline: Instant,
    wake: oneshot::Sender<()>,
}

/// A record's channel.
struct Channel {
    server: RedisServer,
    is_open: bool,
    last_wanted: Instant,
}

struct Hub {
    router: Arc<Router>,
    keys: Keys,
    look_every: Duration,
    waiting: Arc<AtomicUsize>,
    waiters: HashMap<IntentId, Vec<Waiter>>,
    channels: HashMap<IntentId, Channel>,
    subscribers: HashMap<RedisServer, Subscriber>,
    tell: mpsc::UnboundedSender<Told>,
}

impl Hub {
    async fn run(mut self, mut told: mpsc::UnboundedReceiver<Told>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let idle = self.waiters.is_empty() && self.channels.is_empty();
            tokio::select! {
                next = told.recv() => match next {
                    Some(Told::Watch { intent, seen, wake }) => self.watch(intent, seen, wake),
                    Some(Told::Is(intent, version)) => self.wake(&intent, |waiter| Some(waiter.seen) != version),
                    Some(Told::Heard(server, heard)) => self.heard(&server, heard),
                    None => return,
                },
                _ = tick.tick(), if !idle => self.tidy(),
            }
        }
    }

    fn watch(&mut self, intent: IntentId, seen: Version, wake: oneshot::Sender<()>) {
        let is_open = self.listen(intent);
        let patience = if is_open { self.look_every } else { LOOKING_MAX };
        let waiter = Waiter { seen, deadline: Instant::now() + patience, wake };
        self.waiters.entry(intent).or_default().push(waiter);
        // Looked at after signing in, so that no change falls between; and again when the channel opens.
        self.look(intent);
    }

    /// Listens to a record's channel; answers whether it is open already.
    fn listen(&mut self, intent: IntentId) -> bool {
        let slot = self.keys.slot(self.keys.shard(&intent));
        let (Some(server), true) = (self.router.server_of(slot), !self.router.publisher().is_empty()) else {
            return false;
        };
        if let Some(channel) = self.channels.get_mut(&intent) {
            channel.last_wanted = Instant::now();
            if channel.server == server {
                return channel.is_open;
            }
            // The shard has moved.
            self.close(&intent);
        }
        let tell = self.tell.clone();
        let subscriber = self.subscribers.entry(server.clone()).or_insert_with(|| {
            let from = server.clone();
            let hear = move |heard| tell.send(Told::Heard(from.clone(), heard)).is_ok();
            Subscriber::start(Arc::clone(&self.router), server.clone(), hear)
        });
        subscriber.open(self.keys.record(&intent), intent);
        let channel = Channel { server, is_open: false, last_wanted: Instant::now() };
        self.channels.insert(intent, channel);
        false
    }

    fn close(&mut self, intent: &IntentId) {
        if let Some(channel) = self.channels.remove(intent)
            && let Some(subscriber) = self.subscribers.get(&channel.server)
        {
            subscriber.close(self.keys.record(intent));
        }
    }

    fn heard(&mut self, server: &RedisServer, heard: Heard) {
        match heard {
            Heard::Opened(intent) => {
                if let Some(channel) = self.channels.get_mut(&intent).filter(|c| c.server == *server) {
                    channel.is_open = true;
                    self.look(intent);
                }
            }
            Heard::Changed(intent) => self.wake(&intent, |_| true),
            Heard::Refused => self.channels.retain(|_, channel| channel.server != *server),
            Heard::Closed => {
                self.channels.values_mut().filter(|c| c.server == *server).for_each(|c| c.is_open = false);
            }
        }
    }

    /// Asks for the record's version, and wakes those who have seen another.
    fn look(&self, intent: IntentId) {
        let shard = self.keys.shard(&intent);
        let asked = command(&[b"GETRANGE", &self.keys.record(&intent), b"0", HEAD_BYTES]);
        let answer = self.router.ask(shard, &[asked]);
        let tell = self.tell.clone();
        tokio::spawn(async move {
            let reply = answer.await.ok().and_then(Result::ok);
            let version =
                reply.as_deref().and_then(|r| r.first()).and_then(|r| r.bytes()).and_then(version_of);
            let _ = tell.send(Told::Is(intent, version));
        });
    }

    fn wake(&mut self, intent: &IntentId, whom: impl Fn(&Waiter) -> bool) {
        let Some(waiters) = self.waiters.get_mut(intent) else { return };
        let woken: Vec<Waiter> = waiters.extract_if(.., |waiter| whom(waiter)).collect();
        if waiters.is_empty() {
            self.waiters.remove(intent);
        }
        self.send(woken);
    }

    /// Wakes those whose time is up, and leaves channels that nobody wants.
    fn tidy(&mut self) {
        let now = Instant::now();
        let mut woken = Vec::new();
        self.waiters.retain(|_, waiters| {
            woken.extend(waiters.extract_if(.., |w| w.deadline <= now || w.wake.is_closed()));
            !waiters.is_empty()
        });
        self.send(woken);
        let unwanted: Vec<IntentId> = self
            .channels
            .iter()
            .filter(|(intent, c)| now - c.last_wanted > LINGER && !self.waiters.contains_key(*intent))
            .map(|(intent, _)| *intent)
            .collect();
        unwanted.iter().for_each(|intent| self.close(intent));
    }

    fn send(&self, woken: Vec<Waiter>) {
        self.waiting.fetch_sub(woken.len(), Ordering::SeqCst);
        for waiter in woken {
            // Nobody listens any more: the call was dropped.
            let _ = waiter.wake.send(());
        }
    }
}
