//! What clients that connect may take of us.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::web::{front, server};
use crate::world::Home;

/// As docs/limits.md has it.
const CONNECTIONS_MAX: usize = 512;

/// Posts what is no message, and leaves the connection open.
fn post(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\n{").unwrap();
    stream
}

fn is_answered(stream: &mut TcpStream) -> bool {
    let mut start = [0; 12];
    match stream.read_exact(&mut start) {
        Ok(()) => start == *b"HTTP/1.1 400",
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn beyond_the_limit_a_connection_waits_until_another_one_ends() {
    let home = Home::new();
    let server = server(&home, "json");
    let front = front(&home, &["--url", &format!("http://127.0.0.1:{}/mcp", server.port)]);
    let mut open: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| post(front.port)).collect();
    assert!(open.iter_mut().all(is_answered));
    let mut late = post(front.port);
    late.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(!is_answered(&mut late));
    open.pop();
    late.set_read_timeout(None).unwrap();
    assert!(is_answered(&mut late));
}
