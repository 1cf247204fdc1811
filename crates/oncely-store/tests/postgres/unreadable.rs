//! One record that cannot be read stops neither a purge nor a listing.

use std::sync::Arc;

use oncely_core::Store;

use crate::common::unreadable::{DAMAGED, fill, judge};
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
    judge(&store).await;
}
