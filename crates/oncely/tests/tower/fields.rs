//! Keys that are made of fields of the body.

use oncely::Policy;
use oncely_core::select::Selector;
use tower_layer::Layer as _;

use crate::{Counted, layer, post, send, text};

#[tokio::test]
async fn equal_fields_for_two_accounts_are_two_intents() {
    let policy = Policy { key: vec![Selector::parse("order").unwrap()], ..Policy::default() };
    let accounts = ["x-account".parse().unwrap()];
    let told = [
        layer().await.policy(policy.clone()).fingerprint_headers(accounts.clone()),
        layer().await.fingerprint_headers(accounts).policy(policy),
    ];
    for layer in told {
        let counted =
            Counted::new(|run, _| async move { Ok(text(201, if run == 1 { "one" } else { "two" })) });
        let service = layer.layer(counted.clone());
        let pay = |account: &'static str, body: &'static str| {
            let mut request = post(None, body);
            request.headers_mut().insert("x-account", account.parse().unwrap());
            send(&service, request)
        };
        assert_eq!(pay("a", r#"{"order":1,"note":"x"}"#).await.unwrap().body, "one");
        let retried = pay("a", r#"{"order":1,"note":"worded anew"}"#).await.unwrap();
        assert!(retried.replayed() && retried.body == "one");
        let other = pay("b", r#"{"order":1,"note":"x"}"#).await.unwrap();
        assert!(
            !other.replayed() && other.body == "two",
            "another account's answer was given: {}",
            other.body
        );
        assert_eq!(counted.runs(), 2);
    }
}
