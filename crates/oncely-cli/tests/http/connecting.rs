//! Connections to services that are slow to come about.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use crate::client::{self, read_answer};
use crate::gateway::{Gateway, order};
use crate::upstream::Upstream;

/// A gateway that speaks TLS, and with it HTTP/2, to whoever asks it; its certificate is beside its configuration.
fn behind_tls(home: &Path, upstream: &Upstream) -> Gateway {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(home.join("cert.pem"), certified.cert.pem()).unwrap();
    std::fs::write(home.join("key.pem"), certified.signing_key.serialize_pem()).unwrap();
    let config = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\ntls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n[[route]]\nmatch = \
         \"/**\"\nupstream = \"{}\"\n",
        upstream.url()
    );
    Gateway::start_with(home, &config)
}

/// Accepts connections, says nothing on the first, and is a wire to `to` for all others. Tells when the first is there.
fn silent_at_first(to: SocketAddr) -> (SocketAddr, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut clients = listener.incoming().flatten();
        // Kept open by whoever hears of it.
        tell.send(clients.next().unwrap()).unwrap();
        for client in clients {
            let server = TcpStream::connect(to).unwrap();
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                thread::spawn(move || {
                    // However it ends, the other side hears of it.
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, told)
}

#[test]
fn a_first_connection_that_does_not_come_about_leaves_the_service_reachable() {
    let (home, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let inner = behind_tls(home.path(), &upstream);
    let (address, first) = silent_at_first(inner.address);
    let outer_home = tempfile::tempdir().unwrap();
    let config = format!(
        "[server]\nadmin = \"off\"\nthreads = 1\nupstream_roots = \"{}\"\n[[route]]\nmatch = \"/**\"\nupstream = \
         \"https://localhost:{}\"\nconnect_timeout = \"2s\"\n",
        home.path().join("cert.pem").display(),
        address.port()
    );
    let outer = Gateway::start_with(outer_home.path(), &config);
    let mut opener = client::open(outer.address, &order("first", ""));
    let _silent = first.recv().unwrap();
    // These find that somebody else is connecting already.
    let mut others: Vec<_> =
        (0..8).map(|n| client::open(outer.address, &order(&format!("other-{n}"), ""))).collect();
    read_answer(&mut opener).unwrap().expect_code(502, "upstream_unreachable");
    let mut made = 0;
    for other in &mut others {
        let answer = read_answer(other).unwrap();
        match answer.status {
            201 => made += 1,
            // It had waited for as long as it may.
            _ => answer.expect_code(502, "upstream_unreachable"),
        }
    }
    assert_eq!(upstream.total(), made, "what is said to have happened has happened, and nothing else");
    // Nothing is left of it. A machine so slow that it takes 2 s to connect gets more than one chance.
    let mut tries = (0..30).map(|n| outer.order(&format!("again-{n}"), ""));
    let again = tries.find(|answer| answer.status != 502).expect("the service is reachable again");
    assert_eq!((again.status, again.header("idempotent-replayed")), (201, None));
    assert_eq!(upstream.total(), made + 1);
    assert!(upstream.effects().values().all(|count| *count == 1), "{:?}", upstream.effects());
    assert!(inner.connections() >= 1);
}
