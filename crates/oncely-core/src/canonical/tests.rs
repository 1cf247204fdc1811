//! Canonical JSON: spelling does not matter, meaning does, and what means two things is refused.

use super::{PayloadError, parse};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof, proptest};

fn canonical(text: &str) -> String {
    String::from_utf8(parse(text.as_bytes()).unwrap().to_canonical()).unwrap()
}

#[test]
fn spelling_does_not_matter() {
    for (a, b) in [
        ("1.0", "1"),
        ("1e0", "1"),
        ("-0.0", "0"),
        ("100000000000000000000", "1e20"),
        ("9007199254740992.0", "9007199254740992"),
        (r#"{"b":1,"a":2}"#, r#" { "a" : 2 , "b" : 1 } "#),
        (r#""\u0061\/""#, r#""a/""#),
        (r#""\ud83d\ude00""#, "\"😀\""),
    ] {
        assert_eq!(canonical(a), canonical(b), "{a} and {b}");
    }
}

#[test]
fn meaning_does() {
    for (a, b) in [
        ("[1,2]", "[2,1]"),
        ("9007199254740993", "9007199254740992"),
        ("18446744073709551615", "18446744073709551614"),
        ("\"1\"", "1"),
        ("null", "{}"),
        ("\"é\"", "\"e\u{301}\""),
    ] {
        assert_ne!(canonical(a), canonical(b), "{a} and {b}");
    }
}

#[test]
fn the_examples_of_rfc_8785_come_out_as_printed_there() {
    let input = r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
        "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#;
    let expected = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
        \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    assert_eq!(canonical(input), expected);
    let order = r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#;
    assert_eq!(canonical(order), "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}");
}

#[test]
fn what_means_two_things_is_refused() {
    for bad in
        ["", "{", "1 2", "nul", "1e999", r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":1}"#, "\"\\ud800\"", "[1,]"]
    {
        assert!(matches!(parse(bad.as_bytes()), Err(PayloadError::Malformed(_))), "{bad}");
    }
    assert!(parse(b"\"\xff\"").is_err());
    assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    let deep = format!("{}{}", "[".repeat(119), "]".repeat(119));
    assert!(parse(deep.as_bytes()).is_ok());
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
            prop::collection::hash_map(any::<String>(), inner, 0..8)
                .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn canonical_text_is_a_fixed_point_and_spelled_the_same_from_pretty_text(value in any_json()) {
        let plain = serde_json::to_string(&value).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let once = canonical(&plain);
        assert_eq!(once, canonical(&pretty));
        assert_eq!(once, canonical(&once));
    }

    #[test]
    fn no_input_panics(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = parse(&bytes);
    }
}
