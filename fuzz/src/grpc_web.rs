//! What must hold for any body of an answer in gRPC-Web: no panic, one reading in both spellings, and nothing proved that its
//! last frame does not say.

use http::Response;
use oncely::tower::{Class, Dialect, Rules};

/// The flag of a frame that holds trailers.
const TRAILERS: u8 = 0x80;

/// A body, and where to cut it in two for base64, which may be several texts one after the other. Says what it was taken for.
pub fn answer(body: &[u8], cut: usize) -> Class {
    let class = class_of("application/grpc-web", body);
    let (start, end) = body.split_at(cut.min(body.len()));
    let text = [base64(start), base64(end)].concat();
    assert_eq!(class_of("application/grpc-web-text+proto", &text), class, "base64 is read as what it says");
    // As a text of its own it is anything.
    class_of("application/grpc-web-text", body);
    if class == Class::Unknown {
        return class;
    }
    let frames = frames(body).expect("what proves something can be read");
    let ((flag, last), before) = frames.split_last().expect("it has an end");
    assert_eq!(*flag, TRAILERS, "the end is trailers");
    assert!(before.iter().all(|(flag, _)| *flag != TRAILERS), "there is one end");
    let says = |text: &str| last.to_ascii_lowercase().windows(text.len()).any(|part| part == text.as_bytes());
    match class {
        Class::Succeeded => assert!(says("grpc-status")),
        Class::Rejected => assert!((says("grpc-status") && before.is_empty()) || says("not-executed")),
        other => panic!("no rule makes it {other:?}"),
    }
    class
}

fn class_of(kind: &str, body: &[u8]) -> Class {
    let answer = Response::builder().header("content-type", kind).body(()).expect("a response");
    Rules::default().class(&answer.into_parts().0, Some(body), None, Dialect::Default)
}

fn frames(mut body: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let mut frames = Vec::new();
    while let Some((flag, rest)) = body.split_first() {
        let (length, rest) = rest.split_first_chunk()?;
        let (frame, after) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        frames.push((*flag, frame));
        body = after;
    }
    Some(frames)
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= group.len() { digit } else { b'=' });
        }
    }
    text
}
