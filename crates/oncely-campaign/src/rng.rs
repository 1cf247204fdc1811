//! Random numbers from a seed, the same on every machine.

/// SplitMix64: one word of state, every seed is good.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The numbers that follow from this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Numbers for one of several that share a seed.
    pub fn split(seed: u64, part: u64) -> Self {
        Self(Self(seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03)).word())
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below the bound, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn a_seed_gives_the_published_numbers() {
        let mut rng = Rng::new(1_234_567);
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([rng.word(), rng.word(), rng.word()], expected);
    }
}
