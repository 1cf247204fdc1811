//! The demo's payment service: a real server on loopback that charges, and then sometimes loses the answer.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The service, as long as it is not dropped.
pub struct Service {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

struct State {
    /// Charges by order: the service's own book.
    book: HashMap<String, u32>,
    seed: u64,
    asked: HashMap<String, u32>,
}

/// What the service does with a request.
enum Fate {
    Answer,
    /// It charges, and the answer is lost.
    LoseAnswer,
    /// It is busy and charges nothing.
    Busy,
}

impl Service {
    /// Starts on a free port.
    pub async fn start(seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State { book: HashMap::new(), seed, asked: HashMap::new() }));
        let shared = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = shared.clone();
                tokio::spawn(async move {
                    // A client that goes away in the middle is the client's affair.
                    let _ = serve(stream, &shared).await;
                });
            }
        });
        Ok(Self { address, state, task })
    }

    /// How many charges there were, and how many orders were charged more than once.
    pub fn book(&self) -> (u32, usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.book.values().sum(), state.book.values().filter(|count| **count > 1).count())
    }
}

/// Sends one request and returns the answer; an error if the answer is lost.
pub async fn ask(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{request}\n").as_bytes()).await?;
    let mut answer = String::new();
    if BufReader::new(stream).read_line(&mut answer).await? == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was lost"));
    }
    Ok(answer.trim().to_owned())
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let answer = match line.trim().split_once(' ') {
        Some(("charge", order)) => state.lock().unwrap_or_else(PoisonError::into_inner).charge(order),
        Some(("find", order)) => Some(state.lock().unwrap_or_else(PoisonError::into_inner).find(order)),
        _ => Some("what?".to_owned()),
    };
    match answer {
        Some(answer) => stream.write_all(format!("{answer}\n").as_bytes()).await,
        None => Ok(()),
    }
}

impl State {
    fn charge(&mut self, order: &str) -> Option<String> {
        let fate = self.fate(order);
        if matches!(fate, Fate::Busy) {
            return Some("busy".to_owned());
        }
        *self.book.entry(order.to_owned()).or_default() += 1;
        match fate {
            Fate::LoseAnswer => None,
            _ => Some(self.find(order)),
        }
    }

    fn find(&self, order: &str) -> String {
        if self.book.contains_key(order) { format!("charged ch_{order}") } else { "not charged".to_owned() }
    }

    /// Decided by seed, order and number of the request alone: both sides meet the same service.
    fn fate(&mut self, order: &str) -> Fate {
        let asked = self.asked.entry(order.to_owned()).or_default();
        *asked += 1;
        let mut hash = self.seed ^ u64::from(*asked).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in order.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash ^= hash >> 29;
        match (hash % 10, *asked) {
            (_, 4..) => Fate::Answer,
            (0..4, _) => Fate::LoseAnswer,
            (4, _) => Fate::Busy,
            _ => Fate::Answer,
        }
    }
}
