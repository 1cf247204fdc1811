//! One record that cannot be read stops neither a purge nor a listing.

use std::sync::Arc;

use oncely_core::{StateName, Store};

use crate::common::unreadable::{DAMAGED, STATE_AT, fill, judge};
use crate::{database, open, server};

#[tokio::test]
async fn a_record_that_cannot_be_read_stops_no_other() {
    let address = server().fresh_database().unwrap();
    let store: Arc<dyn Store> = open(&address).await;
    fill(&store).await;
    for key in DAMAGED {
        let damage = format!("UPDATE oncely.record SET body = '\\x09' WHERE key = '{key}'");
        server().psql_in(database(&address), &damage).unwrap();
    }
    judge(&store, StateName::Succeeded).await;
}

#[tokio::test]
async fn a_state_that_only_a_newer_version_knows_stops_no_other() {
    let address = server().fresh_database().unwrap();
    let store: Arc<dyn Store> = open(&address).await;
    fill(&store).await;
    for (key, at) in DAMAGED.into_iter().zip(STATE_AT) {
        let token = format!("position('\\x{}'::bytea in body) - 1", "09".repeat(16));
        let known = format!("SELECT get_byte(body, {token} + {at}) FROM oncely.record WHERE key = '{key}'");
        let known = server().psql_in(database(&address), &known).unwrap();
        assert!(["1", "2"].contains(&known.trim()), "{known}");
        let damage = format!(
            "UPDATE oncely.record SET state = 5, body = set_byte(body, {token} + {at}, 5) WHERE key = '{key}'"
        );
        server().psql_in(database(&address), &damage).unwrap();
    }
    judge(&store, StateName::Running).await;
}
