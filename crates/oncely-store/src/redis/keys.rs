//! The names of keys, and which shard and slot they belong to.
//!
//! All keys of a shard carry the same hash tag, `{PREFIX:SHARD}`, so that one script may touch several of them, in a
//! cluster too: a record, its events and its entries change together or not at all.

use oncely_core::IntentId;

/// The slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// How keys of one ledger are named.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    tags: Vec<String>,
}

impl Keys {
    pub(crate) fn new(prefix: &str, shards: u16) -> Self {
        Self { tags: (0..shards).map(|shard| format!("{{{prefix}:{shard}}}")).collect() }
    }

    pub(crate) fn shards(&self) -> u16 {
        self.tags.len() as u16
    }

    /// The shard that a record belongs to.
    pub(crate) fn shard(&self, intent: &IntentId) -> u16 {
        // The id is a digest: any part of it spreads evenly.
        u16::from_be_bytes([intent.0[30], intent.0[31]]) % self.shards()
    }

    /// The slot of a shard.
    pub(crate) fn slot(&self, shard: u16) -> u16 {
        let tag = self.tag(shard);
        slot_of(&tag.as_bytes()[1..tag.len() - 1])
    }

    /// A record.
    pub(crate) fn record(&self, intent: &IntentId) -> Vec<u8> {
        self.of_intent(":r:", intent)
    }

    /// The places of a removed record's events.
    pub(crate) fn gone(&self, intent: &IntentId) -> Vec<u8> {
        self.of_intent(":g:", intent)
    }

    /// What says that a shard is part of a ledger, and of which.
    pub(crate) fn head(&self, shard: u16) -> Vec<u8> {
        self.of_shard(shard, ":head")
    }

    /// How often the gate of a shard was turned.
    pub(crate) fn turn(&self, shard: u16) -> Vec<u8> {
        self.of_shard(shard, ":turn")
    }

    /// What a move is about to bring, in the first shard.
    pub(crate) fn plan(&self, shard: u16) -> Vec<u8> {
        self.of_shard(shard, ":plan")
    }

    /// Written so that replicas confirm what stands before it.
    pub(crate) fn mark(&self, shard: u16) -> Vec<u8> {
        self.of_shard(shard, ":mark")
    }

    /// The audit log: a stream. Its ids are the versions of records.
    pub(crate) fn log(&self, shard: u16) -> Vec<u8> {
        self.of_shard(shard, ":log")
    }

    /// All records, by when they were made.
    pub(crate) fn order(&self, shard: u16) -> Vec<u8> {
        self.of_shard(shard, ":order")
    }

    /// All records that are not running, by when something is due.
    pub(crate) fn due(&self, shard: u16) -> Vec<u8> {
        self.of_shard(shard, ":due")
    }

    /// The counters, in the first shard.
    pub(crate) fn counters(&self) -> Vec<u8> {
        self.of_shard(0, ":count")
    }

    /// What a handle has added to the counters last.
    pub(crate) fn counted(&self, handle: &str) -> Vec<u8> {
        self.of_shard(0, &format!(":counted:{handle}"))
    }

    fn tag(&self, shard: u16) -> &str {
        self.tags.get(usize::from(shard)).map_or("{}", String::as_str)
    }

    fn of_shard(&self, shard: u16, rest: &str) -> Vec<u8> {
        [self.tag(shard), rest].concat().into_bytes()
    }

    fn of_intent(&self, kind: &str, intent: &IntentId) -> Vec<u8> {
        let mut key = self.of_shard(self.shard(intent), kind);
        key.extend_from_slice(&intent.0);
        key
    }
}

fn slot_of(tag: &[u8]) -> u16 {
    crc16(tag) % SLOTS
}

/// CRC-16/XMODEM, as a cluster spreads keys.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0_u16;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::{Keys, crc16, slot_of};
    use oncely_core::IntentId;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"foo"), 12_182);
    }

    #[test]
    fn all_keys_of_a_record_carry_the_tag_of_its_shard() {
        let keys = Keys::new("pay", 64);
        let intent = IntentId([0xab; 32]);
        let shard = keys.shard(&intent);
        let tag = format!("{{pay:{shard}}}");
        for key in
            [keys.record(&intent), keys.gone(&intent), keys.log(shard), keys.order(shard), keys.due(shard)]
        {
            assert!(key.starts_with(tag.as_bytes()));
            // A brace in an id cannot open another tag: the first one counts.
            assert_eq!(key.iter().position(|b| *b == b'}'), Some(tag.len() - 1));
        }
    }

    #[test]
    fn shards_spread_over_the_slots() {
        let keys = Keys::new("oncely", 64);
        let mut thirds = [0; 3];
        for shard in 0..64 {
            thirds[usize::from(keys.slot(shard) / 5_462)] += 1;
        }
        assert!(thirds.iter().all(|n| *n > 10), "{thirds:?}");
    }
}
