//! One record that cannot be read stops neither a purge nor a listing.

use oncely_testkit::servers::Redis;

use crate::common::id;
use crate::common::unreadable::{DAMAGED, fill, judge};
use crate::foreign::raw;
use crate::{fresh, open};

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_stops_no_other() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    fill(&store).await;
    // The first byte after the version and the trail says how the rest is packed.
    let damage = r"
local value = redis.call('GET', KEYS[1])
local line = string.find(value, '\n', 1, true)
redis.call('SETRANGE', KEYS[1], string.find(value, '\n', line + 1, true), '\9')
return 1";
    for key in DAMAGED {
        let record = [format!("{{{prefix}:0}}:r:").as_bytes(), &id(key).0].concat();
        raw(server, &[b"EVAL", damage.as_bytes(), b"1", &record]);
    }
    judge(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_one_stays_counted_as_rejected_and_one_without_a_version_is_told_of() {
    let server = Redis::shared().unwrap();
    let prefix = fresh();
    let store = open(&format!("{}?prefix={prefix}", server.url())).await;
    let (record, due) = (
        [format!("{{{prefix}:0}}:r:").as_bytes(), &id("k").0].concat(),
        format!("{{{prefix}:0}}:due").into_bytes(),
    );
    crate::common::finish(&store, "k").await;
    raw(server, &[b"SET", &record, b"garbage"]);
    // Where rejected records are filed, at the first moment of all.
    raw(server, &[b"ZADD", &due, b"4503599627370500", &id("k").0]);
    let report = store.purge(10).await.unwrap();
    assert_eq!((report.unreadable, report.records_removed), (1, 0));
    assert_eq!(store.purge(10).await.unwrap().unreadable, 0);
    let page = store.scan(Default::default(), 0, 10).await.unwrap();
    assert_eq!(page.unreadable.len(), 1);
    assert_eq!(page.unreadable[0].version, None);
    assert_eq!(page.unreadable[0].state, oncely_core::StateName::Rejected);
}
