//! Random bodies of gRPC-Web, and ones with random damage, keep what the fuzzer asks for: the property lives in `fuzz/`.

use oncely::tower::Class;

#[path = "../../../../fuzz/src/grpc_web.rs"]
#[allow(unreachable_pub, clippy::expect_used, reason = "it belongs to the fuzzer's library")]
mod grpc_web;

/// Bodies to start from: the more they say, the more their damage says.
const SEEDS: [&[u8]; 5] = [
    b"\0\0\0\0\x02hi\x80\0\0\0\x0fgrpc-status:0\r\n",
    b"\x80\0\0\0\x10grpc-status: 5\r\n",
    b"\0\0\0\0\0\0\0\0\0\x01x\x80\0\0\0\x24grpc-status:14\r\ngrpc-message:later\r\n",
    b"\x80\0\0\0\x49grpc-status:14\r\nidempotency-status:not-executed\r\ncache-control:no-store\r\n",
    b"AAAAAAJoaQ==gAAAAA9ncnBjLXN0YXR1czowDQo=",
];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        // Xorshift: the same numbers for the same seed, everywhere.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % end.max(1)
    }

    fn body(&mut self) -> Vec<u8> {
        let mut body = SEEDS[self.below(SEEDS.len())].to_vec();
        for _ in 0..self.below(4) {
            let (at, byte) = (self.below(body.len() + 1), u8::try_from(self.below(256)).unwrap());
            match self.below(5) {
                0 => body.insert(at, byte),
                1 => body.truncate(at),
                2 => {
                    body.drain(..at);
                }
                3 => body.extend_from_slice(SEEDS[self.below(SEEDS.len())]),
                _ => {
                    if let Some(there) = body.get_mut(at) {
                        // Most of what decides is a number below sixteen.
                        *there = if byte < 128 { byte % 16 + b'0' } else { byte };
                    }
                }
            }
        }
        body
    }
}

#[test]
fn random_bodies_of_grpc_web_never_do_harm() {
    let seed: u64 = 0x6e_7c0d;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let mut seen = [0; 3];
    for _ in 0..100_000 {
        let body = random.body();
        match grpc_web::answer(&body, random.below(body.len() + 1)) {
            Class::Succeeded => seen[0] += 1,
            Class::Rejected => seen[1] += 1,
            _ => seen[2] += 1,
        }
    }
    assert!(seen.iter().all(|count| *count > 1_000), "the bodies are not worth reading: {seen:?}");
}
