//! Statuses, read and written.

use http::{HeaderMap, HeaderValue, StatusCode};

use super::{End, STATUSES, refusal, web};
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
        let end = End::of(&head, Some(b""), None).unwrap();
        assert_eq!((end.name(), end.counts_as()), (Some(*name), StatusCode::from_u16(*http).ok()));
    }
    for wrong in
        [&[][..], &["0", "0"], &["17"], &["20"], &["00"], &["+0"], &[" 0"], &["0 "], &["OK"], &[""], &["-1"]]
    {
        let head = said(wrong);
        assert_eq!(End::of(&head, Some(b""), None).unwrap().counts_as(), None, "{wrong:?}");
    }
}

#[test]
fn an_error_after_a_message_counts_as_nothing() {
    for (number, (name, http)) in STATUSES.iter().enumerate() {
        let head = said(&[number.to_string().leak()]);
        // Too long to be held, it was there all the same.
        for body in [Some(&b"\0"[..]), None] {
            let end = End::of(&head, body, None).unwrap();
            let expected = (*http == 200).then_some(StatusCode::OK);
            assert_eq!((end.name(), end.counts_as()), (Some(*name), expected), "{name}");
        }
    }
}

#[test]
fn a_frame_with_more_names_than_a_map_holds_is_no_trailers() {
    let framed = |count: u32| {
        let lines: String = (0..count).map(|number| format!("a{number:x}:\n")).collect();
        let length = u32::try_from(lines.len()).unwrap().to_be_bytes();
        [&[0x80], &length[..], lines.as_bytes()].concat()
    };
    assert_eq!(web::Content::of(&framed(1_000)).trailers.unwrap().len(), 1_000);
    let crowded = web::Content::of(&framed(30_000));
    assert!(crowded.trailers.is_none() && crowded.has_data);
}

#[test]
fn what_is_no_trailers_is_data() {
    let has_data = |body: &[u8]| web::Content::of(body).has_data;
    assert!(!has_data(b"") && !has_data(b"\x80\0\0\0\x0fgrpc-status:0\r\n"));
    for body in [
        &b"\0\0\0\0\x02hi\x80\0\0\0\x0fgrpc-status:5\r\n"[..],
        b"\0\0\0\0\0\x80\0\0\0\x0fgrpc-status:5\r\n",
        b"\x01\0\0\0\0\x80\0\0\0\x0fgrpc-status:5\r\n",
        b"\x80\0\0\0\x0fgrpc-status:5",
        b"\x80\0\0\0\x0fgrpc-status:5\r\n\0\0\0\0\0",
        b"nonsense",
    ] {
        assert!(has_data(body), "{body:?}");
    }
    assert!(web::Content::of_text(b"!!!!").has_data && !web::Content::of_text(b"").has_data);
}

#[test]
fn trailers_count_before_the_head() {
    let (head, trailers) = (said(&["0"]), said(&["13"]));
    let (nothing, body) = (HeaderMap::new(), Some(&b""[..]));
    assert_eq!(End::of(&head, body, Some(&trailers)).unwrap().name(), Some("INTERNAL"));
    assert_eq!(End::of(&head, body, Some(&nothing)).unwrap().name(), None);
    assert!(End::of(&nothing, body, Some(&trailers)).is_none(), "it is no answer of gRPC");
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
