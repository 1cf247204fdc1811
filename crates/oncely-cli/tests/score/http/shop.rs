//! A shop over HTTP, by hand on sockets: right in one of three dialects, or wrong in one way.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Default,
    Ietf,
    Stripe,
}

/// What is wrong with a shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Keys mean nothing.
    IgnoresKeys,
    /// A key is good for any payload.
    NoFingerprint,
    /// The key is looked up before the work and written down after it.
    LooksThenLeaps,
    /// Replays are not marked.
    NoMark,
    /// Refusals are plain text.
    PlainErrors,
    /// A request without a key is executed.
    KeyOptional,
    /// Any header value is a key.
    AnyKey,
    /// A repeat is refused instead of answered.
    RefusesRepeats,
    /// All orders are answered alike.
    AnswersAlike,
    /// It acts every time, and answers from its memory.
    ActsAnyway,
    /// The connection is closed where a key is malformed.
    HangsUp,
    /// A second request waits for the first and gets its answer.
    Waits,
}

#[derive(Debug, Clone)]
enum Entry {
    Running { payload: String },
    Done { payload: String, answer: String },
}

struct Shop {
    dialect: Dialect,
    fault: Fault,
    orders: PathBuf,
    placed: AtomicUsize,
    keys: Mutex<HashMap<String, Entry>>,
    changed: Condvar,
    methods: Mutex<Vec<String>>,
    closed: AtomicBool,
}

/// A running shop; closed when dropped.
pub(crate) struct Open {
    pub(crate) address: SocketAddr,
    shop: Arc<Shop>,
}

impl Open {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The methods of all requests so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.shop.methods.lock().unwrap().clone()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shop.closed.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

pub(crate) fn open(dialect: Dialect, fault: Fault, orders: PathBuf) -> Open {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shop = Arc::new(Shop {
        dialect,
        fault,
        orders,
        placed: AtomicUsize::new(0),
        keys: Mutex::default(),
        changed: Condvar::new(),
        methods: Mutex::default(),
        closed: AtomicBool::new(false),
    });
    let inside = shop.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if inside.closed.load(Ordering::SeqCst) {
                return;
            }
            let shop = inside.clone();
            std::thread::spawn(move || shop.serve(stream.unwrap()));
        }
    });
    Open { address, shop }
}

impl Shop {
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(&stream);
        let mut line = Vec::new();
        let (mut length, mut keys, mut first) = (0, Vec::new(), String::new());
        while reader.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
            let text = line.trim_ascii_end().to_vec();
            line.clear();
            if text.is_empty() {
                break;
            }
            let lower = String::from_utf8_lossy(&text).to_ascii_lowercase();
            if first.is_empty() {
                first = String::from_utf8_lossy(&text).into_owned();
            } else if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            } else if lower.starts_with("idempotency-key:") {
                keys.push(text[16..].trim_ascii().to_vec());
            }
        }
        if first.is_empty() {
            return;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let method = first.split(' ').next().unwrap().to_owned();
        self.methods.lock().unwrap().push(method.clone());
        let answer = if method == "OPTIONS" {
            Some("HTTP/1.1 204 No Content\r\nAllow: POST, OPTIONS\r\nAccess-Control-Allow-Headers: Idempotency-Key\r\n\r\n".into())
        } else {
            self.answer(&keys, String::from_utf8_lossy(&body).into_owned())
        };
        // A caller that went away is no concern of a shop.
        let _ = answer.map(|answer: String| (&stream).write_all(answer.as_bytes()));
    }

    fn answer(&self, keys: &[Vec<u8>], payload: String) -> Option<String> {
        if payload == "nonsense" {
            return Some(self.refuse(409, "this is no order"));
        }
        let key = match self.key(keys) {
            Ok(Some(key)) => key,
            Ok(None) => return Some(response(200, "application/json", "", &self.place(&payload))),
            Err(_) if self.fault == Fault::HangsUp => return None,
            Err(what) => return Some(self.refuse(400, what)),
        };
        if self.fault == Fault::IgnoresKeys {
            return Some(response(200, "application/json", "", &self.place(&payload)));
        }
        let mut known = self.keys.lock().unwrap();
        while let Some(entry) = known.get(&key).cloned() {
            let (Entry::Running { payload: before } | Entry::Done { payload: before, .. }) = &entry;
            if *before != payload && self.fault != Fault::NoFingerprint {
                return Some(self.refuse(self.mismatch(), "idempotency_error"));
            }
            match entry {
                Entry::Running { .. } if self.fault == Fault::Waits => {
                    known = self.changed.wait(known).unwrap()
                }
                Entry::Running { .. } => return Some(self.refuse(409, "idempotency_key_in_use")),
                Entry::Done { .. } if self.fault == Fault::RefusesRepeats => {
                    return Some(self.refuse(409, "done"));
                }
                Entry::Done { answer, .. } => {
                    if self.fault == Fault::ActsAnyway {
                        drop(known);
                        self.place(&payload);
                    }
                    let mark = if self.fault == Fault::NoMark || self.dialect == Dialect::Ietf {
                        ""
                    } else {
                        "Idempotent-Replayed: true\r\n"
                    };
                    return Some(response(200, "application/json", mark, &answer));
                }
            }
        }
        if self.fault != Fault::LooksThenLeaps {
            known.insert(key.clone(), Entry::Running { payload: payload.clone() });
        }
        drop(known);
        let answer = self.place(&payload);
        self.keys.lock().unwrap().insert(key, Entry::Done { payload, answer: answer.clone() });
        self.changed.notify_all();
        Some(response(200, "application/json", "", &answer))
    }

    /// The effect: a line in a file. It takes its time, so that two requests can meet.
    fn place(&self, payload: &str) -> String {
        std::thread::sleep(Duration::from_millis(100));
        let number = self.placed.fetch_add(1, Ordering::SeqCst);
        let mut file = std::fs::OpenOptions::new().append(true).open(&self.orders).unwrap();
        file.write_all(format!("{}\n", payload.replace('\n', " ")).as_bytes()).unwrap();
        if self.fault == Fault::AnswersAlike {
            "{\"ok\":true}".into()
        } else {
            format!("{{\"order\":{number}}}")
        }
    }

    fn key(&self, keys: &[Vec<u8>]) -> Result<Option<String>, &'static str> {
        let [key] = keys else {
            let optional = self.dialect == Dialect::Stripe || self.fault == Fault::KeyOptional;
            return match keys.len() {
                0 if optional => Ok(None),
                0 => Err("a key is required"),
                _ if self.fault == Fault::AnyKey => Ok(Some("several".into())),
                _ => Err("several keys"),
            };
        };
        let text = String::from_utf8_lossy(key);
        let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(&text);
        let good = (1..=255).contains(&bare.len()) && bare.bytes().all(|byte| byte.is_ascii_graphic());
        if good || self.fault == Fault::AnyKey {
            Ok(Some(bare.to_owned()))
        } else {
            Err("the key is malformed")
        }
    }

    fn mismatch(&self) -> u16 {
        match self.dialect {
            Dialect::Default => 409,
            Dialect::Ietf => 422,
            Dialect::Stripe => 400,
        }
    }

    fn refuse(&self, status: u16, what: &str) -> String {
        if self.fault == Fault::PlainErrors {
            return response(status, "text/plain", "", what);
        }
        match self.dialect {
            Dialect::Stripe => {
                response(status, "application/json", "", &format!("{{\"error\":{{\"type\":\"{what}\"}}}}"))
            }
            _ => {
                let body = format!("{{\"type\":\"about:blank\",\"title\":\"{what}\",\"status\":{status}}}");
                response(status, "application/problem+json", "", &body)
            }
        }
    }
}

fn response(status: u16, kind: &str, extra: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
