//! Statuses, read and written.

use http::{HeaderMap, HeaderValue, StatusCode};

use super::{End, STATUSES, refusal};
use crate::tower::problem::{Code, Dialect, Problem, Reader};

fn said(status: &[&'static str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    for status in status {
        headers.append("grpc-status", HeaderValue::from_static(status));
    }
    headers
}

#[test]
fn a_status_is_a_number_without_ornaments_said_once() {
    for (number, (name, http)) in STATUSES.iter().enumerate() {
        let head = said(&[number.to_string().leak()]);
        let end = End::of(&head, b"", None).unwrap();
        assert_eq!((end.name(), end.counts_as()), (Some(*name), StatusCode::from_u16(*http).ok()));
    }
    for wrong in
        [&[][..], &["0", "0"], &["17"], &["20"], &["00"], &["+0"], &[" 0"], &["0 "], &["OK"], &[""], &["-1"]]
    {
        let head = said(wrong);
        assert_eq!(End::of(&head, b"", None).unwrap().counts_as(), None, "{wrong:?}");
    }
}

#[test]
fn trailers_count_before_the_head() {
    let (head, trailers) = (said(&["0"]), said(&["13"]));
    assert_eq!(End::of(&head, b"", Some(&trailers)).unwrap().name(), Some("INTERNAL"));
    assert_eq!(End::of(&head, b"", Some(&HeaderMap::new())).unwrap().name(), None);
    assert!(End::of(&HeaderMap::new(), b"", Some(&trailers)).is_none(), "it is no answer of gRPC");
}

#[test]
fn what_clients_retry_by_themselves_is_said_only_where_nothing_ran_and_it_may_work_later() {
    let reader = Reader::of(&said(&[]), Dialect::Default);
    for code in Code::ALL {
        let response = Problem::new(code, "why").into_response(reader);
        let status = response.headers()["grpc-status"].to_str().unwrap().to_owned();
        assert_eq!(["8", "14"].contains(&status.as_str()), code.is_retryable(), "{code:?}");
        let pushback = response.headers()["grpc-retry-pushback-ms"].to_str().unwrap();
        assert_eq!(pushback, if code.is_retryable() { "1000" } else { "-1" }, "{code:?}");
        let for_good = Problem::new(code, "why").for_good().into_response(reader);
        assert_ne!(for_good.headers()["grpc-status"], "14", "{code:?}");
        assert_eq!(for_good.headers()["grpc-retry-pushback-ms"], "-1", "{code:?}");
    }
    let patient = Problem::new(Code::InProgress, "").retry_after_ms(u64::MAX).into_response(reader);
    assert_eq!(patient.headers()["grpc-retry-pushback-ms"], i32::MAX.to_string().as_str());
}

#[test]
fn a_message_is_percent_encoded() {
    for (text, encoded) in
        [("plain, 1 + 1", "plain, 1 + 1"), ("100 %", "100 %25"), ("a\nb\u{7f}\u{e9}", "a%0Ab%7F%C3%A9")]
    {
        assert_eq!(refusal::message(text), encoded);
    }
}
