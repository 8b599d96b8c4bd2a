//! Numbers for tests that must fail the same way twice.

/// Numbers that look random and are the same at every run (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers that follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 to `end - 1`.
    pub fn below(&mut self, end: i64) -> i64 {
        // Fewer than 63 bits are a number that is not negative.
        (self.next_u64() >> 2) as i64 % end.max(1)
    }

    /// One of the list.
    ///
    /// # Panics
    ///
    /// When the list is empty.
    pub fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as i64) as usize]
    }

    /// `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length)
            .map(|_| self.next_u64().to_be_bytes()[0])
            .collect()
    }
}
