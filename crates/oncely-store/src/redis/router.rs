//! Which server keeps which shard, and what is done when that changes.
//!
//! On a single server all shards are there. In a cluster the map is read from `CLUSTER SLOTS`, again whenever a server
//! says that a shard has moved, or does not answer. A request that a server refused without beginning it is sent where it
//! belongs; one that may have been carried out is never sent a second time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use oncely_core::limits::AUDIT_FOR_MS;
use oncely_core::{Gate, Millis, StoreError, StoreErrorKind};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::checks::{self, Profile};
use super::connect::{Dialer, Wire};
use super::drive::drive;
use super::errors::Redirect;
use super::head::{self, Head};
use super::keys::Keys;
use super::link::{Answer, Asks, Request, Terms, Writes};
use super::options::{RedisKind, RedisServer, server};
use super::outstanding::Outstanding;
use super::queue::Node;
use super::scripts::{self, Flags, Names, Script};
use super::slots::{Ranges, look_anywhere, primaries, ranges};
use crate::courier::Reply;

/// How often a request is sent elsewhere before it is given up.
const HOPS_MAX: u32 = 40;
/// Hops that are taken at once; later ones after a pause: the cluster needs time.
const HOPS_AT_ONCE: u32 = 4;
/// The pause before a request is sent again.
const HOP_PAUSE: Duration = Duration::from_millis(50);
/// The map is read again at most this often.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The way to the servers.
pub(crate) struct Router {
    pub(crate) dialer: Dialer,
    pub(crate) names: Names,
    pub(crate) outstanding: Arc<Outstanding>,
    runtime: Handle,
    /// Replicas that have to confirm a write.
    replicas: AtomicU32,
    /// Whether the servers have what came with Redis 7.
    flags: Flags,
    /// When the server that was started last was started, by its own clock.
    started_at: AtomicU64,
    /// What the ledger is, once that is known; a server that says otherwise is refused.
    ledger: OnceLock<Ledger>,
    map: Mutex<Map>,
    looking: AtomicBool,
    /// Connections that were made while the servers were found: the first ones to be used.
    spare: Mutex<HashMap<RedisServer, Wire>>,
}

/// What the ledger is, and what all calls of its scripts have in common.
struct Ledger {
    head: Head,
    keys: Keys,
    /// By shard: the keys that are the same for all its records.
    shared: Vec<Vec<Vec<u8>>>,
    /// The arguments that are the same for all records.
    arguments: Vec<Vec<u8>>,
}

#[derive(Default)]
struct Map {
    ranges: Ranges,
    nodes: HashMap<RedisServer, Arc<Node>>,
}

impl Map {
    fn at(&self, slot: u16) -> Option<&RedisServer> {
        self.ranges.iter().rev().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|(_, _, s)| s)
    }
}

impl Router {
    /// Finds the servers, and makes sure that they are fit for a ledger.
    pub(crate) async fn find(dialer: Dialer, runtime: Handle) -> Result<Arc<Self>, StoreError> {
        let options = &dialer.options;
        let ranges = ranges(&dialer).await?;
        let primaries = primaries(&ranges);
        let (mut names, mut profiles, mut spare) = (None, Vec::new(), HashMap::new());
        for server in &primaries {
            let mut wire = dialer.dial(server).await?;
            let profile = checks::look(&mut wire, options, server).await?;
            profile.check(options, server)?;
            profiles.push(profile);
            spare.insert(server.clone(), wire);
        }
        let is_seven = profiles.iter().all(Profile::is_seven);
        let flags = if is_seven { Flags::Known } else { Flags::Unknown };
        for (server, wire) in &mut spare {
            names = Some(scripts::load(wire, options, server, flags).await?);
        }
        let nobody =
            || StoreError::before(StoreErrorKind::Unavailable, "no server of the cluster keeps any slots");
        let names = names.ok_or_else(nobody)?;
        let replicas = wanted_replicas(options.wait, &profiles);
        Ok(Arc::new(Self {
            dialer,
            names,
            outstanding: Arc::default(),
            runtime,
            replicas: AtomicU32::new(replicas),
            flags,
            started_at: AtomicU64::new(
                profiles.iter().map(|profile| profile.started_at.0).max().unwrap_or(0),
            ),
            ledger: OnceLock::new(),
            map: Mutex::new(Map { ranges, nodes: HashMap::new() }),
            looking: AtomicBool::new(false),
            spare: Mutex::new(spare),
        }))
    }

    /// What the ledger is, and how its keys are named: known once it is open.
    pub(crate) fn set_ledger(&self, head: Head, keys: Keys) {
        let shared = (0..keys.shards())
            .map(|shard| vec![keys.log(shard), keys.order(shard), keys.due(shard), keys.head(shard)])
            .collect();
        let shards = u64::from(keys.shards());
        // What the log counts besides milliseconds: a single shard needs nothing to be in order.
        let unit = if shards == 1 { "" } else { "us" };
        let bound = self.dialer.options.audit_max.div_ceil(shards).to_string();
        let arguments =
            [head.mark(), bound, unit.to_owned(), AUDIT_FOR_MS.to_string(), self.publisher().to_owned()];
        let arguments = arguments.map(String::into_bytes).to_vec();
        // Set once, by who opens it.
        let _ = self.ledger.set(Ledger { head, keys, shared, arguments });
    }

    /// What all calls of a script for records of this shard have in common.
    pub(crate) fn terms(&self, shard: u16, script: Script) -> Terms<'_> {
        let ledger = self.ledger.get();
        Terms {
            name: self.names.get(script),
            keys: ledger.and_then(|ledger| ledger.shared.get(usize::from(shard))).map_or(&[], Vec::as_slice),
            arguments: ledger.map_or(&[], |ledger| &ledger.arguments),
        }
    }

    /// What the head of a shard has to say while the gate is open.
    pub(crate) fn mark(&self) -> &[u8] {
        self.ledger.get().and_then(|ledger| ledger.arguments.first()).map_or(&[], Vec::as_slice)
    }

    /// What the head of a shard has to say while the gate stands like this.
    pub(crate) fn mark_of(&self, format: u32, gate: &Gate) -> String {
        self.ledger.get().map(|ledger| ledger.head.mark_of(format, gate)).unwrap_or_default()
    }

    /// The log's bound and unit, as scripts take them.
    pub(crate) fn log_terms(&self) -> &[Vec<u8>] {
        self.ledger.get().and_then(|ledger| ledger.arguments.get(1..3)).unwrap_or(&[])
    }

    /// Since when all servers that were met have run: before that, their clocks may have been others.
    pub(crate) fn started_at(&self) -> Millis {
        Millis(self.started_at.load(Ordering::Acquire))
    }

    /// How many replicas have to confirm a write.
    pub(crate) fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// How a change is told to those who wait elsewhere; empty: it is not, they look by themselves. Without channels
    /// that belong to shards, a message in a cluster would go to every server.
    pub(crate) fn publisher(&self) -> &'static str {
        match (self.dialer.options.kind, self.flags) {
            (RedisKind::Single, _) => "PUBLISH",
            (RedisKind::Cluster, Flags::Known) => "SPUBLISH",
            (RedisKind::Cluster, Flags::Unknown) => "",
        }
    }

    /// The servers that were used, and whether they serve slots now.
    pub(crate) fn nodes(&self) -> Vec<(Arc<Node>, bool)> {
        let map = self.lock();
        let serves = |server: &RedisServer| map.ranges.iter().any(|(_, _, serving)| serving == server);
        map.nodes.values().map(|node| (Arc::clone(node), serves(&node.server))).collect()
    }

    /// Who serves a slot now.
    pub(crate) fn server_of(&self, slot: u16) -> Option<RedisServer> {
        self.lock().at(slot).cloned()
    }

    /// Hands in a request, at once; the result is for its answer.
    pub(crate) fn submit(
        self: &Arc<Self>,
        shard: u16,
        asks: Asks,
        writes: Writes,
    ) -> oneshot::Receiver<Answer> {
        let (caller, answer) = Reply::homeward();
        let ticket = self.outstanding.enter();
        self.send(Request { shard, asks, writes, hops: 0, asking: false, caller, ticket });
        answer
    }

    /// Hands in commands that are carried out before there is a ledger, or only read.
    pub(crate) fn ask(self: &Arc<Self>, shard: u16, commands: &[Vec<u8>]) -> oneshot::Receiver<Answer> {
        self.submit(shard, Asks::Plain { bytes: commands.concat(), replies: commands.len() }, Writes::No)
    }

    /// Queues a request for the server of its shard.
    fn send(self: &Arc<Self>, request: Request) {
        let slot = self.slot(request.shard);
        let server = self.lock().at(slot).cloned();
        match server {
            Some(server) => self.send_to(request, &server),
            None => {
                self.look_again();
                let message =
                    format!("no server of the cluster keeps slot {slot}; nothing was written; try again");
                request.answer(Err(StoreError::before(StoreErrorKind::Unavailable, message)));
            }
        }
    }

    fn slot(&self, shard: u16) -> u16 {
        match self.ledger.get() {
            Some(ledger) => ledger.keys.slot(shard),
            // Before the ledger is known, all that is asked for are heads.
            None => Keys::new(&self.dialer.options.prefix, shard + 1).slot(shard),
        }
    }

    fn send_to(self: &Arc<Self>, request: Request, server: &RedisServer) {
        let node = self.node(server);
        node.push(request, self.dialer.options.queue_max);
    }

    fn node(self: &Arc<Self>, server: &RedisServer) -> Arc<Node> {
        let mut map = self.lock();
        if let Some(node) = map.nodes.get(server) {
            return Arc::clone(node);
        }
        let node = Arc::new(Node::new(server.clone()));
        map.nodes.insert(server.clone(), Arc::clone(&node));
        for _ in 0..self.dialer.options.connections {
            self.runtime.spawn(drive(Arc::clone(&node), Arc::clone(self)));
        }
        node
    }

    /// Connects, and makes sure that the server is fit and still has the ledger.
    pub(crate) async fn connect(&self, server: &RedisServer) -> Result<Wire, StoreError> {
        let options = &self.dialer.options;
        if let Some(wire) = self.spare.lock().unwrap_or_else(PoisonError::into_inner).remove(server) {
            return Ok(wire);
        }
        let mut wire = self.dialer.dial(server).await?;
        let profile = checks::look(&mut wire, options, server).await?;
        profile.check(options, server)?;
        self.started_at.fetch_max(profile.started_at.0, Ordering::AcqRel);
        if options.wait.is_none() && profile.replicas > 0 {
            // Once a replica was seen, it is waited for: only ever more.
            self.replicas.fetch_max(1, Ordering::AcqRel);
        }
        scripts::load(&mut wire, options, server, self.flags).await?;
        if let Some(Ledger { head, keys, .. }) = self.ledger.get() {
            let here = |shard: &u16| self.lock().at(keys.slot(*shard)) == Some(server);
            let shards: Vec<u16> = (0..keys.shards()).filter(here).collect();
            head::verify(&mut wire, options, server, head, keys, &shards).await?;
        }
        Ok(wire)
    }

    /// A request could not be sent at all.
    pub(crate) fn unreached(self: &Arc<Self>, batch: Vec<Request>, error: &StoreError) {
        self.look_again();
        batch.into_iter().for_each(|request| request.answer(Err(error.clone())));
    }

    /// A connection broke.
    pub(crate) fn lost(self: &Arc<Self>) {
        self.look_again();
    }

    /// Sends a request elsewhere that a server refused without beginning it.
    pub(crate) fn reroute(self: &Arc<Self>, mut request: Request, to: Redirect, refusal: StoreError) {
        request.hops += 1;
        let is_cluster = self.dialer.options.kind == RedisKind::Cluster;
        // A single server that has become a replica has no primary that we know of.
        if request.hops > HOPS_MAX || (!is_cluster && to != Redirect::NoScript) {
            return request.answer(Err(refusal));
        }
        let target = match &to {
            Redirect::Moved(address) => {
                let Ok(server) = self.read_server(address) else { return request.answer(Err(refusal)) };
                let slot = self.slot(request.shard);
                let mut map = self.lock();
                // Many are told so at once.
                if map.at(slot) != Some(&server) {
                    map.ranges.push((slot, slot, server));
                }
                drop(map);
                self.look_again();
                None
            }
            Redirect::Ask(address) => match self.read_server(address) {
                Ok(server) => Some(server),
                Err(_) => return request.answer(Err(refusal)),
            },
            Redirect::Lost => {
                self.look_again();
                None
            }
            Redirect::Again | Redirect::NoScript => None,
        };
        let again = matches!(to, Redirect::Again | Redirect::Lost);
        request.asking = target.is_some();
        let router = Arc::clone(self);
        let go = move |request| match target {
            Some(server) => router.send_to(request, &server),
            None => router.send(request),
        };
        if again || request.hops > HOPS_AT_ONCE {
            self.runtime.spawn(async move {
                tokio::time::sleep(HOP_PAUSE).await;
                go(request);
            });
        } else {
            go(request);
        }
    }

    /// A server as a redirection names it; without a host it is the one that was asked.
    fn read_server(&self, address: &str) -> Result<RedisServer, StoreError> {
        match address.strip_prefix(':') {
            Some(_) => server(&format!("{}{address}", self.dialer.options.servers[0].host)),
            None => server(address),
        }
    }

    /// Reads the map again, in the background.
    fn look_again(self: &Arc<Self>) {
        if self.dialer.options.kind == RedisKind::Single || self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let router = Arc::clone(self);
        self.runtime.spawn(async move {
            let servers = router.who_knows();
            if let Ok(ranges) = look_anywhere(&router.dialer, &servers).await {
                router.lock().ranges = ranges;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
            router.looking.store(false, Ordering::Release);
        });
    }

    /// Whom to ask for the map, one after the other: first those that serve slots as far as is known, last those that did
    /// once. Some of them may be gone for good, and each takes its time not to answer.
    fn who_knows(&self) -> Vec<RedisServer> {
        let map = self.lock();
        let mut servers = primaries(&map.ranges);
        for server in self.dialer.options.servers.iter().chain(map.nodes.keys()) {
            if !servers.contains(server) {
                servers.push(server.clone());
            }
        }
        servers
    }

    fn lock(&self) -> MutexGuard<'_, Map> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// By the address, or one if any primary has a replica: a cluster may have lost one of them just now.
fn wanted_replicas(asked: Option<u32>, profiles: &[Profile]) -> u32 {
    asked.unwrap_or_else(|| u32::from(profiles.iter().any(|profile| profile.replicas > 0)))
}
