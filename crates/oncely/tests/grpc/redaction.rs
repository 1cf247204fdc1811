//! Rules about what is not stored, where the answers are messages that no rule can be applied to.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use oncely::redact::Redaction;
use tonic::Code;
use tower_layer::Layer as _;

use crate::World;
use crate::bodies::{Says, layer, send};
use crate::shop::{PLACE, WATCH, WRAPPING, assert_refused, metadata};

/// Whether this text is in any file of the ledger.
fn is_stored(directory: &Path, text: &str) -> bool {
    let mut files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.any(|file| {
        file.file_name().unwrap().to_str().unwrap().starts_with("ledger")
            && std::fs::read(file).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
    })
}

#[tokio::test]
async fn with_rules_about_bodies_no_message_is_stored() {
    for rules in [Redaction::default(), Redaction::new(&["/card/number"], &[]).unwrap()] {
        let is_redacted = !rules.is_empty();
        let world = World::new(|layer| layer.redact(rules)).await;
        let place = || world.client.place("tea", "wrapped", &[("idempotency-key", "k")]);
        let first = place().await.unwrap().into_inner();
        assert_eq!(first.wrapping, WRAPPING, "the first caller gets all of it");
        let again = place().await;
        assert_eq!(metadata(&again)["idempotent-replayed"], "true");
        match again {
            Ok(again) => assert_eq!((again.into_inner(), is_redacted), (first, false)),
            Err(status) => {
                assert_eq!((status.code(), is_redacted), (Code::AlreadyExists, true));
                assert!(status.message().contains("not kept"), "{status:?}");
            }
        }
        assert_eq!(is_stored(world.directory.path(), WRAPPING), !is_redacted);
        assert_eq!(world.shop.placed(), 1);
    }
}

#[tokio::test]
async fn nor_is_one_that_was_evidence_of_a_doubt_and_a_status_alone_is_kept() {
    for rules in [Redaction::default(), Redaction::new(&["/card/number"], &[]).unwrap()] {
        let is_redacted = !rules.is_empty();
        let policy = oncely::Policy { max_retries: 0, ..oncely::Policy::default() };
        let world = World::new(|layer| layer.redact(rules).policy(policy)).await;
        let watch = || world.client.place_at(WATCH, "tea", "13", &[("idempotency-key", "k")]);
        watch().await.unwrap_err();
        assert_refused(&watch().await, Code::Unknown, "outcome_unknown", "-1");
        assert_eq!(is_stored(world.directory.path(), WRAPPING), !is_redacted);
        for replayed in [false, true] {
            let missing = world.client.place("tea", "5", &[("idempotency-key", "m")]).await;
            assert_eq!(metadata(&missing).contains_key("idempotent-replayed"), replayed);
            assert_eq!(missing.unwrap_err().details(), b"\x01details\xff");
        }
    }
}

#[tokio::test]
async fn the_trailers_of_grpc_web_are_in_the_body_and_any_rule_is_about_it() {
    const BODY: &[u8] = b"\0\0\0\0\0\x80\0\0\0\x1agrpc-status:0\r\nx-card:42\r\n";
    let kind = "application/grpc-web";
    for (header, is_kept) in [(None, true), (Some("x-card"), false)] {
        let rules = Redaction::new(&[], header.as_slice()).unwrap();
        let says = Says { kind, body: BODY, runs: Arc::default() };
        let service = layer().await.redact(rules).layer(says.clone());
        assert_eq!(send(&service, PLACE, kind, b"").await.body, BODY);
        let again = send(&service, PLACE, kind, b"").await;
        assert_eq!(again.headers["idempotent-replayed"], "true");
        assert_eq!(again.body == BODY, is_kept, "{again:?}", again = again.body);
        assert_eq!(says.runs.load(Ordering::SeqCst), 1);
    }
}
