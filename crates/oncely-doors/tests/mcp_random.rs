//! Random bytes, and messages with random damage, keep what the fuzzer asks for: the properties live in `fuzz/`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../../../fuzz/src/properties.rs"]
#[allow(unreachable_pub, reason = "it belongs to the fuzzer's library")]
mod properties;

/// Messages to start from: the more they say, the more their damage says.
const SEEDS: [&str; 18] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","arguments":{"amount":5,"idempotency_key":"k","dry_run":true},"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
    r#"{"jsonrpc":"2.0","id":"a\u0041","method":"to\u006fls/call","params":{"name":"pay","arguments":null,"requestState":"s","inputResponses":{}}}"#,
    r#"{"id":-3,"method":"tools/call","params":{"name":"x","arguments":{"a":12345678901234567890123,"b":1.50,"c":[[[{}]]]},"task":{"ttl":1}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
    r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"id":2,"result":{}}]"#,
    r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Input validation error: x"}],"isError":true}}"#,
    r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params","data":{"x":1}}}"#,
    r#"{"result":{"resultType":"input_required","inputRequests":{}},"jsonrpc":"2.0","id":"z"}"#,
    r#"{"name":"pay","annotations":{"readOnlyHint":false},"inputSchema":{"type":"object","properties":{"a":{"x-mcp-header":"A"}},"additionalProperties":false}}"#,
    r##"{"name":"pay","inputSchema":{"$ref":"#/$defs/a~1b","required":["dry_run"],"$defs":{"a/b":{"properties":{"idempotency_key":{"type":"string"},"dry_run":{"type":"boolean"}}}}}}"##,
    r#"{"name":"pay","inputSchema":{"allOf":[{"properties":{"a":{}}},{"oneOf":[{"properties":{"action":{"const":"plan"},"dry_run":{"type":"boolean"}}},{"required":["idempotency_key"]}]}]}}"#,
    r##"{"name":"pay","inputSchema":{"if":{"$ref":"#/$defs/loop"},"then":{"anyOf":[true,{"$ref":"#"}]},"else":{"properties":{"dry_run":{}}},"$defs":{"loop":{"$ref":"#/$defs/loop"}}}}"##,
    "{\n  \"content\": [\n    {\"type\": \"text\", \"text\": \"re_1\"}\r\n  ],\n  \"_meta\": {\n  }\n}\n",
    r#"{"structuredContent":{"id":"re_1"},"isError":false}"#,
    r#"{"task":{"taskId":"t","status":"working"},"resultType":"task"}"#,
    "event: message\r\nid: 7\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nretry: 5\n\ndata:x\n\n",
    "{\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\r{\"id\":2,\"method\":\"tools/call\"}\n}}",
    "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"é\\ud83d\\ude00\",\"arguments\":{\"\":{}}}}",
];
/// Pieces that a damaged message may get.
const PIECES: [&str; 20] = [
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\\",
    "\\u0000",
    "\n",
    "\r",
    "null",
    "\"id\":",
    "\"method\":",
    "\"name\":\"q\"",
    "1e999",
    "\"$ref\":\"#\"",
    "\"dry_run\"",
    "\"allOf\":[",
    "\"content\":[]",
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

    fn message(&mut self) -> Vec<u8> {
        let mut bytes = SEEDS[self.below(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..self.below(5) {
            let at = self.below(bytes.len() + 1);
            match self.below(6) {
                0 => bytes.insert(at, u8::try_from(self.below(256)).unwrap()),
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                3 => bytes.truncate(at),
                4 => {
                    let from = self.below(bytes.len() + 1).min(at);
                    let piece = bytes[from..at].to_vec();
                    bytes.splice(at..at, piece);
                }
                _ => drop(bytes.splice(at..at, PIECES[self.below(PIECES.len())].bytes())),
            }
        }
        bytes
    }
}

#[test]
fn damaged_messages_break_nothing() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    for seed in [1, 2, 3, u64::from(seed) | 1] {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..5_000 {
            let message = random.message();
            properties::client_line(&message);
            properties::server_line(&message);
            properties::kept_result(&message);
        }
        for _ in 0..500 {
            let message = random.message();
            let cut = random.below(message.len() + 1);
            properties::stream(&message, cut);
        }
    }
}
