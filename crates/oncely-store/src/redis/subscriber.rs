//! A connection that listens to channels of one server. When it breaks it is made again, with all its channels.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oncely_core::IntentId;
use tokio::sync::mpsc;

use super::connect::Wire;
use super::options::{RedisKind, RedisServer};
use super::resp::{Value, command};
use super::router::Router;

/// First pause after a failure, doubled up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LAST: Duration = Duration::from_secs(5);

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// This record's channel is listened to from here on.
    Opened(IntentId),
    /// This record has changed.
    Changed(IntentId),
    /// No channel is listened to for now; all are opened again.
    Closed,
    /// The channels have to be ordered anew, perhaps elsewhere.
    Refused,
}

/// Where channels are ordered.
pub(crate) struct Subscriber(mpsc::UnboundedSender<Order>);

enum Order {
    Open(Vec<u8>, IntentId),
    Close(Vec<u8>),
}

impl Subscriber {
    /// Starts listening to a server; `hear` answers whether anybody still wants to know.
    pub(crate) fn start(
        router: Arc<Router>,
        server: RedisServer,
        hear: impl Fn(Heard) -> bool + Send + Sync + 'static,
    ) -> Self {
        let (send, orders) = mpsc::unbounded_channel();
        tokio::spawn(run(router, server, orders, hear));
        Self(send)
    }

    pub(crate) fn open(&self, channel: Vec<u8>, intent: IntentId) {
        let _ = self.0.send(Order::Open(channel, intent));
    }

    pub(crate) fn close(&self, channel: Vec<u8>) {
        let _ = self.0.send(Order::Close(channel));
    }
}

async fn run(
    router: Arc<Router>,
    server: RedisServer,
    mut orders: mpsc::UnboundedReceiver<Order>,
    hear: impl Fn(Heard) -> bool,
) {
    let mut channels = HashMap::new();
    let mut pause = PAUSE_FIRST;
    loop {
        // Nothing to listen to: wait for it, without a connection.
        while channels.is_empty() {
            match orders.recv().await {
                Some(order) => apply(&mut channels, order),
                None => return,
            }
        }
        if let Ok(mut wire) = router.dialer.dial(&server).await {
            let heard_something = listen(&router, &mut wire, &mut channels, &mut orders, &hear).await;
            if heard_something {
                pause = PAUSE_FIRST;
            }
        }
        if !hear(Heard::Closed) || orders.is_closed() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_LAST);
    }
}

fn apply(channels: &mut HashMap<Vec<u8>, IntentId>, order: Order) {
    match order {
        Order::Open(channel, intent) => drop(channels.insert(channel, intent)),
        Order::Close(channel) => drop(channels.remove(&channel)),
    }
}

/// Listens until the connection breaks; answers whether it ever worked.
async fn listen(
    router: &Router,
    wire: &mut Wire,
    channels: &mut HashMap<Vec<u8>, IntentId>,
    orders: &mut mpsc::UnboundedReceiver<Order>,
    hear: &impl Fn(Heard) -> bool,
) -> bool {
    let (open, close): (&[u8], &[u8]) = match router.dialer.options.kind {
        RedisKind::Single => (b"SUBSCRIBE", b"UNSUBSCRIBE"),
        RedisKind::Cluster => (b"SSUBSCRIBE", b"SUNSUBSCRIBE"),
    };
    let all: Vec<Vec<u8>> = channels.keys().map(|channel| command(&[open, channel])).collect();
    if wire.send(&all.concat()).await.is_err() {
        return false;
    }
    let mut worked = false;
    loop {
        let sent = tokio::select! {
            order = orders.recv() => {
                let Some(order) = order else { return worked };
                let bytes = match &order {
                    Order::Open(channel, _) => command(&[open, channel]),
                    Order::Close(channel) => command(&[close, channel]),
                };
                apply(channels, order);
                wire.send(&bytes).await
            }
            message = wire.receive() => match message {
                // Refused, most likely since the shard has moved: whoever still waits orders it elsewhere.
                Ok(Value::Error(_)) => {
                    channels.clear();
                    hear(Heard::Refused);
                    return worked;
                }
                Ok(message) => {
                    worked = true;
                    if let Some(heard) = read(&message, channels) {
                        hear(heard);
                    }
                    Ok(())
                }
                Err(broken) => Err(broken),
            },
        };
        if sent.is_err() {
            return worked;
        }
    }
}

fn read(message: &Value, channels: &HashMap<Vec<u8>, IntentId>) -> Option<Heard> {
    let [kind, channel, ..] = message.items() else { return None };
    let intent = *channels.get(channel.bytes()?)?;
    match kind.bytes()? {
        b"subscribe" | b"ssubscribe" => Some(Heard::Opened(intent)),
        b"message" | b"smessage" => Some(Heard::Changed(intent)),
        _ => None,
    }
}
