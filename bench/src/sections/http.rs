//! `oncely serve`: against nginx as a plain proxy, against Restate, and its memory.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::report::{Row, Target};
use crate::stats::{Series, Unit};
use crate::web::{self, Keys, Load, Loaded, Server};
use crate::{Result, progress};

/// Connections where throughput is measured.
const CONNECTIONS: usize = 64;
/// How long connections may take to be found idle.
const REST_PATIENCE: Duration = Duration::from_secs(60);

/// Who is asked.
struct World {
    upstream: Server,
    nginx: Server,
    bare: Server,
    gateway: Server,
    restate: Option<Server>,
    load: Load,
}

pub(crate) fn measure(bench: &mut Bench) -> Result<(Vec<Row>, String)> {
    let oncely =
        bench.oncely.canonicalize().map_err(|e| format!("cannot find {}: {e}", bench.oncely.display()))?;
    let (dir, ledger) = (bench.fresh(), bench.fresh());
    std::fs::create_dir(&dir)?;
    let dir = dir.canonicalize()?;
    let upstream = web::upstream()?;
    let load = Load { script: bench.root.join("bench/http/load.lua").canonicalize()? };
    let world = World {
        nginx: web::nginx(&dir, upstream.address)?,
        bare: web::bare(upstream.address)?,
        gateway: web::gateway(&oncely, &dir, &ledger, upstream.address)?.0,
        // Where it does not start, the rest is measured all the same.
        restate: web::restate(&bench.restate, &dir).unwrap_or_else(|error| {
            progress(&format!("without Restate: {error}"));
            None
        }),
        upstream,
        load,
    };
    world.prepare()?;
    let mut seen = Seen::default();
    for round in 1..=bench.rounds {
        progress(&format!("HTTP requests, round {round} of {}", bench.rounds));
        let mut turns = Seen::default();
        for _ in 0..bench.duration.as_secs().max(1) {
            turns.push(&world, bench.keys())?;
        }
        seen.push_medians(&mut turns);
    }
    drop(world);
    bench.remove(&ledger)?;
    let mut rows = seen.rows();
    rows.push(memory(bench, &oncely, &dir)?);
    std::fs::remove_dir_all(&dir)?;
    let how = format!(
        "wrk, POSTs of 1 KiB answered with 1 KiB by a service that does nothing else; load, proxies and service share the \
         cores. {CONNECTIONS} connections unless said otherwise. Replays: 1000 keys in turn. nginx {}, Restate {}.",
        version("/usr/sbin/nginx", "-v"),
        if seen.restate.median().is_nan() { "not installed" } else { "1.7, one node, its defaults" },
    );
    Ok((rows, how))
}

fn version(program: &str, flag: &str) -> String {
    let output = std::process::Command::new(program).arg(flag).output();
    let text = output.map(|out| String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned());
    text.ok().and_then(|text| Some(text.trim().rsplit_once('/')?.1.to_owned())).unwrap_or_default()
}

impl World {
    /// Makes what is replayed later, and looks at every kind of answer once.
    fn prepare(&self) -> Result<()> {
        let all = [
            (&self.nginx, "/pass"),
            (&self.bare, "/pass"),
            (&self.gateway, "/pass"),
            (&self.gateway, "/guard"),
        ];
        for (to, path) in all {
            self.load.run(to.address, path, Keys::Same, "replay", CONNECTIONS)?;
        }
        if let Some(restate) = &self.restate {
            self.load.run(restate.address, "/orders/make", Keys::Same, "replay", 1)?;
        }
        let body = format!("{{\"amount\":\"{}\"}}", "x".repeat(1011));
        let request = format!(
            "POST /guard HTTP/1.1\r\nhost: bench\r\nconnection: close\r\nauthorization: Bearer bench\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\nidempotency-key: replay-1\r\n\r\n{body}",
            body.len()
        );
        let again = web::ask(self.gateway.address, &request)?;
        if !again.contains("idempotent-replayed: true") {
            return Err(format!("this is no replay: {again}").into());
        }
        Ok(())
    }

    fn load(&self, to: &Server, path: &str, connections: usize) -> Result<Loaded> {
        self.load.run(to.address, path, Keys::Same, "replay", connections)
    }

    fn fresh(&self, to: &Server, path: &str, keys: u64) -> Result<Loaded> {
        self.load.run(to.address, path, Keys::Fresh, &format!("fresh-{keys}"), CONNECTIONS)
    }
}

/// Figures, turn by turn or round by round.
#[derive(Default)]
struct Seen {
    nginx: Series,
    nginx_p99: Series,
    bare: Series,
    pass: Series,
    pass_p99: Series,
    replay: Series,
    fresh: Series,
    fresh_p50: Series,
    fresh_p99: Series,
    restate: Series,
    one_direct: Series,
    one_nginx: Series,
    one_bare: Series,
    one_pass: Series,
    one_replay: Series,
}

impl Seen {
    /// One turn: everybody in turn, as short as wrk can, so that whatever else the machine does falls on all of them.
    fn push(&mut self, world: &World, keys: u64) -> Result<()> {
        let nginx = world.load(&world.nginx, "/pass", CONNECTIONS)?;
        let pass = world.load(&world.gateway, "/pass", CONNECTIONS)?;
        self.nginx.push(nginx.rate);
        self.nginx_p99.push(nginx.p99);
        self.pass.push(pass.rate);
        self.pass_p99.push(pass.p99);
        self.bare.push(world.load(&world.bare, "/pass", CONNECTIONS)?.rate);
        self.replay.push(world.load(&world.gateway, "/guard", CONNECTIONS)?.rate);
        let fresh = world.fresh(&world.gateway, "/guard", keys)?;
        self.fresh.push(fresh.rate);
        self.fresh_p50.push(fresh.p50);
        self.fresh_p99.push(fresh.p99);
        if let Some(restate) = &world.restate {
            self.restate.push(world.fresh(restate, "/orders/make", keys)?.rate);
        }
        self.one_direct.push(world.load(&world.upstream, "/pass", 1)?.p50);
        self.one_nginx.push(world.load(&world.nginx, "/pass", 1)?.p50);
        self.one_bare.push(world.load(&world.bare, "/pass", 1)?.p50);
        self.one_pass.push(world.load(&world.gateway, "/pass", 1)?.p50);
        self.one_replay.push(world.load(&world.gateway, "/guard", 1)?.p50);
        Ok(())
    }

    fn all(&mut self) -> [&mut Series; 15] {
        [
            &mut self.nginx,
            &mut self.nginx_p99,
            &mut self.bare,
            &mut self.pass,
            &mut self.pass_p99,
            &mut self.replay,
            &mut self.fresh,
            &mut self.fresh_p50,
            &mut self.fresh_p99,
            &mut self.restate,
            &mut self.one_direct,
            &mut self.one_nginx,
            &mut self.one_bare,
            &mut self.one_pass,
            &mut self.one_replay,
        ]
    }

    /// One round: the middle of its turns.
    fn push_medians(&mut self, turns: &mut Self) {
        for (series, turns) in self.all().into_iter().zip(turns.all()) {
            if !turns.median().is_nan() {
                series.push(turns.median());
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        let passed = self.pass.over(&self.nginx);
        let tail = self.pass_p99.over(&self.nginx_p99);
        let replayed = self.replay.over(&self.nginx);
        let guarded = self.fresh.over(&self.pass);
        let added = self.one_pass.less(&self.one_direct);
        let mut rows = vec![
            Row::new("passed through", &self.pass, Unit::PerSecond)
                .against("nginx", &self.nginx, Unit::PerSecond)
                .ratio(&passed, Unit::Times)
                .target(Target::AtLeast(0.95, Unit::Times), &passed),
            Row::new("passed through, p99", &self.pass_p99, Unit::Time)
                .against("nginx", &self.nginx_p99, Unit::Time)
                .ratio(&tail, Unit::Times)
                .target(Target::AtMost(1.0, Unit::Times), &tail),
            Row::new("passed through, against hyper alone", &self.pass, Unit::PerSecond)
                .against("a bare proxy on hyper", &self.bare, Unit::PerSecond)
                .ratio(&self.pass.over(&self.bare), Unit::Times),
            Row::new("replayed", &self.replay, Unit::PerSecond)
                .against("asking the service through nginx", &self.nginx, Unit::PerSecond)
                .ratio(&replayed, Unit::Times)
                .target(Target::AtLeast(1.5, Unit::Times), &replayed),
            Row::new("fresh keys, durable", &self.fresh, Unit::PerSecond)
                .against("passed through", &self.pass, Unit::PerSecond)
                .ratio(&guarded, Unit::Times)
                .target(Target::AtLeast(0.25, Unit::Times), &guarded),
            Row::new("fresh keys, p99", &self.fresh_p99, Unit::Time).against(
                "p50",
                &self.fresh_p50,
                Unit::Time,
            ),
        ];
        if !self.restate.median().is_nan() {
            let times = self.fresh.over(&self.restate);
            rows.push(
                Row::new("fresh keys, durable, against Restate", &self.fresh, Unit::PerSecond)
                    .against("Restate, idempotent invocations", &self.restate, Unit::PerSecond)
                    .ratio(&times, Unit::Times)
                    .target(Target::AtLeast(8.0, Unit::Times), &times),
            );
        }
        rows.extend([
            Row::new(
                "one connection, passed through, p50: more than the service itself",
                &self.one_pass,
                Unit::Time,
            )
            .against("the service itself", &self.one_direct, Unit::Time)
            .ratio(&added, Unit::Time)
            .target(Target::AtMost(80e-6, Unit::Time), &added),
            Row::new("one connection, passed through, p50, against hyper alone", &self.one_pass, Unit::Time)
                .against("a bare proxy on hyper", &self.one_bare, Unit::Time)
                .ratio(&self.one_pass.over(&self.one_bare), Unit::Times),
            Row::new("one connection, replayed, p50", &self.one_replay, Unit::Time)
                .against("asking the service through nginx", &self.one_nginx, Unit::Time)
                .ratio(&self.one_replay.over(&self.one_nginx), Unit::Times)
                .target(Target::AtMost(120e-6, Unit::Time), &self.one_replay),
        ]);
        rows
    }
}

/// What idle connections take that have each carried a guarded request and one that passed through.
fn memory(bench: &mut Bench, oncely: &Path, dir: &Path) -> Result<Row> {
    let (count, records) = (bench.sizes.connections, bench.sizes.large);
    let ledger = bench.ledger(records)?;
    let upstream = web::upstream()?;
    let (gateway, admin) = web::gateway(oncely, dir, &ledger, upstream.address)?;
    progress(&format!("{count} connections"));
    let mut open = Vec::with_capacity(count);
    for number in 0..count {
        let mut stream = TcpStream::connect(gateway.address)?;
        for (path, key) in [("/pass", 0), ("/guard", number % 100)] {
            exchange(&mut stream, path, key)?;
        }
        open.push(stream);
    }
    wait_for_rest(admin, count)?;
    let (idle, peak) = (gateway.memory("VmRSS")?, gateway.memory("VmHWM")?);
    drop(open);
    let [idle, peak]: [Series; 2] = [idle, peak].map(|bytes| [bytes].into_iter().collect());
    let what = format!("memory with {count} idle connections that have been used, {records} records");
    Ok(Row::new(what, &idle, Unit::Megabytes)
        .against("at most, while they were used", &peak, Unit::Megabytes)
        .target(Target::AtMost(64e6, Unit::Megabytes), &idle))
}

fn exchange(stream: &mut TcpStream, path: &str, key: usize) -> Result<()> {
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer bench\r\nidempotency-key: idle-{key}\r\n\
         content-length: 2\r\n\r\n{{}}"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    // The service's answer ends with the end of its JSON.
    while !answer.ends_with(b"\"}") {
        match stream.read(&mut piece)? {
            0 => return Err(format!("no whole answer: {}", String::from_utf8_lossy(&answer)).into()),
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    if answer.starts_with(b"HTTP/1.1 200") {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&answer).into())
}

fn wait_for_rest(admin: SocketAddr, count: usize) -> Result<()> {
    let deadline = Instant::now() + REST_PATIENCE;
    while web::metric(admin, "oncely_http_connections_resting")? < count as f64 {
        if Instant::now() > deadline {
            return Err("the connections do not come to rest".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
