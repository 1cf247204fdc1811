//! How many connections are kept, counted by the service at their other end.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use oncely::tower::Body;

use super::{IDLE_MAX, Reuse, Timeouts, Upstream, idle_share};
use crate::gateway::config::THREADS_MAX;

#[test]
fn the_shares_of_all_lanes_are_no_more_than_what_may_be_kept() {
    for lanes in 1..=THREADS_MAX {
        let share = idle_share(lanes);
        assert!(share >= 1 && share * lanes <= IDLE_MAX, "{lanes} lanes keep {share} each");
    }
}

/// Answers one request on each of `count` connections once all of them are there, and then says how each of them ends.
fn service(listener: TcpListener, count: usize, ended: mpsc::Sender<()>) {
    let mut clients: Vec<_> = (0..count).map(|_| listener.accept().unwrap().0).collect();
    for client in &mut clients {
        let mut head = Vec::new();
        let mut byte = [0; 1];
        while !head.ends_with(b"\r\n\r\n") {
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
    }
    for mut client in clients {
        client.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        let ended = ended.clone();
        std::thread::spawn(move || {
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest);
            let _ = ended.send(());
        });
    }
}

#[tokio::test]
async fn no_more_idle_connections_are_kept_than_allowed() {
    const MOST: usize = 3;
    const REQUESTS: usize = 8;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let (ended, ends) = mpsc::channel();
    let serving = std::thread::spawn(move || service(listener, REQUESTS, ended));
    // None of them is closed because of its age.
    let timeouts = Timeouts { idle: Duration::from_secs(3600), ..Timeouts::default() };
    let upstream = Upstream::new(address, None, timeouts, MOST, Arc::default());
    let sent = (0..REQUESTS).map(|_| {
        let upstream = upstream.clone();
        tokio::spawn(async move {
            let request = Request::get("/").header("host", "up").body(Body::whole(Bytes::new())).unwrap();
            upstream.send(request, Reuse::Allowed, None).await.unwrap().status()
        })
    });
    for sent in sent.collect::<Vec<_>>() {
        assert_eq!(sent.await.unwrap(), 204);
    }
    serving.join().unwrap();
    // What is not kept ends; a build that keeps more leaves this waiting.
    for _ in MOST..REQUESTS {
        ends.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    assert!(ends.try_recv().is_err(), "those that may be kept are kept");
    drop(upstream);
    for _ in 0..MOST {
        ends.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
