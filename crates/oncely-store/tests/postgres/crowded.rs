//! A server that has no room for all the connections that the pool would like to have.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use crate::{claim, open, server, with};

/// The way to a server that takes so many connections and refuses the others, as one does whose `max_connections` are used
/// up. How many were refused.
fn with_room_for(connections: usize, port: u16) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (address, refused) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&refused);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            if number >= connections {
                count.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            for (mut from, mut to) in
                [(stream.try_clone().unwrap(), server.try_clone().unwrap()), (server, stream)]
            {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    (address.port(), refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_room_for_one_more_connection_is_not_asked_for_it_without_a_pause() {
    let address = server().fresh_database().unwrap();
    let port = address.rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let (through, refused) = with_room_for(2, port.parse().unwrap());
    let address = with(&address.replace(&format!(":{port}"), &format!(":{through}")), "pool=8&queue=5000");
    let store = open(&address).await;
    let began = Instant::now();
    for round in 0..20 {
        let mut calls = JoinSet::new();
        for number in 0..500 {
            let store = Arc::clone(&store);
            calls.spawn(async move { claim(&*store, &format!("{round}-{number}")).await });
        }
        while let Some(claimed) = calls.join_next().await {
            claimed.unwrap().unwrap();
        }
    }
    // All that lack ask at once, and then wait for two seconds.
    let most = 7 * (1 + began.elapsed().as_secs() as usize / 2 + 1);
    let refused = refused.load(Ordering::Relaxed);
    assert!((1..=most).contains(&refused), "{refused} were refused in {:?}", began.elapsed());
}
