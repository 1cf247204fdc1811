//! Passwords and certificates.

use oncely_core::{Store, StoreErrorKind};
use oncely_testkit::servers::Postgres;

use crate::{claim, open, refusal, with};

#[tokio::test]
async fn a_password_is_used_and_never_shown() {
    let server = Postgres::builder().password("s3cret").start().unwrap();
    let address = server.url("postgres");
    let store = open(&address).await;
    claim(&*store, "k").await.unwrap();
    assert!(!store.describe().contains("s3cret"), "{}", store.describe());
    let wrong = address.replace("s3cret", "wr0ng");
    let error = refusal(&wrong).await;
    assert_eq!(error.kind, StoreErrorKind::BadAddress, "{error}");
    assert!(error.message.contains("check the user, the password"), "{error}");
    assert!(!error.message.contains("wr0ng"), "{error}");
    let missing = refusal(&with(&address, "colour=red")).await;
    assert!(!missing.message.contains("s3cret"), "{missing}");
    let unknown = oncely_store::open("postgrse://u:s3cret@h/d").await.unwrap_err();
    assert!(!unknown.message.contains("s3cret"), "{unknown}");
}

#[tokio::test]
async fn a_certificate_is_checked_where_that_is_asked_for() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let elsewhere = rcgen::generate_simple_self_signed(["db.example.com".to_owned()]).unwrap();
    let server =
        Postgres::builder().tls(&made.cert.pem(), &made.signing_key.serialize_pem()).start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.to_string_lossy().into_owned()
    };
    let address = server.url("postgres");
    let error = refusal(&with(&address, "sslmode=disable")).await;
    assert!(error.message.contains("no encryption"), "{error}");
    for mode in ["prefer", "require"] {
        let store = open(&with(&address, &format!("sslmode={mode}"))).await;
        claim(&*store, mode).await.unwrap();
    }
    let trusted = file("right.pem", made.cert.pem());
    let store = open(&with(&address, &format!("sslmode=verify-full&sslrootcert={trusted}"))).await;
    claim(&*store, "verified").await.unwrap();
    assert!(server.psql("SELECT bool_and(ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.client_port > 0")
        .unwrap()
        .trim()
        == "t");
    for pem in [other.cert.pem(), elsewhere.cert.pem()] {
        let untrusted = file("wrong.pem", pem);
        let error = refusal(&with(&address, &format!("sslmode=verify-full&sslrootcert={untrusted}"))).await;
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(error.message.contains("TLS"), "{error}");
    }
    let error = refusal(&with(&address, "sslmode=verify-full&sslrootcert=/nowhere.pem")).await;
    assert!(error.message.contains("/nowhere.pem"), "{error}");
}

#[tokio::test]
async fn hostile_names_of_schemas_are_names() {
    let address = crate::server().fresh_database().unwrap();
    for schema in ["a\"b", "a'b; DROP TABLE x", "ünï", "select"] {
        let encoded: String = schema.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let store = open(&with(&address, &format!("schema={encoded}"))).await;
        claim(&*store, "k").await.unwrap();
        assert!(store.load(crate::common::id("k")).await.unwrap().is_some(), "{schema}");
    }
}
