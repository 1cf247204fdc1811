//! What a browser needs to read an answer of another origin.

use tower_layer::Layer as _;

use crate::{Counted, layer, post, send, text};

#[tokio::test]
async fn a_replay_has_the_headers_of_cors_where_they_are_listed() {
    const LISTED: [&str; 3] =
        ["access-control-allow-origin", "access-control-allow-credentials", "access-control-expose-headers"];
    for listed in [true, false] {
        let counted = Counted::new(|_, _| async {
            let mut answer = text(201, "made");
            for name in LISTED {
                answer.headers_mut().insert(name, "shop".parse().unwrap());
            }
            Ok(answer)
        });
        let names = LISTED.iter().filter(|_| listed).map(|name| name.parse().unwrap());
        let service = layer().await.replay_headers(names).layer(counted.clone());
        for replayed in [false, true] {
            let seen = send(&service, post(Some("k"), "{}")).await.unwrap();
            assert_eq!((seen.replayed(), seen.body.as_str()), (replayed, "made"));
            for name in LISTED {
                assert_eq!(seen.headers.contains_key(name), !replayed || listed, "{name}");
            }
        }
        assert_eq!(counted.runs(), 1);
    }
}
