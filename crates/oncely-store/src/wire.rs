//! The alphabet of stored bytes: variable-length numbers, length-prefixed bytes and text. Reading never panics.

/// Stored bytes that do not follow their own format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged(pub(crate) &'static str);

/// Appends values.
#[derive(Default)]
pub(crate) struct Packer(Vec<u8>);

impl Packer {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Seven bits at a time, the lowest first; the top bit says that more follows.
    pub(crate) fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// The difference between two numbers, small in either direction.
    pub(crate) fn difference(&mut self, from: u64, to: u64) {
        let delta = to.wrapping_sub(from) as i64;
        self.number(((delta << 1) ^ (delta >> 63)) as u64);
    }

    /// Bytes whose length the reader knows.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Bytes with their length before them.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    /// Text with its length before it.
    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Takes values off the front.
pub(crate) struct Unpacker<'a>(&'a [u8]);

impl<'a> Unpacker<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Damaged> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn number(&mut self) -> Result<u64, Damaged> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Damaged("a number is too long"))
    }

    pub(crate) fn number32(&mut self) -> Result<u32, Damaged> {
        u32::try_from(self.number()?).map_err(|_| Damaged("a number is too large"))
    }

    pub(crate) fn difference(&mut self, from: u64) -> Result<u64, Damaged> {
        let folded = self.number()?;
        let delta = ((folded >> 1) as i64) ^ -((folded & 1) as i64);
        Ok(from.wrapping_add(delta as u64))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(*array)
    }

    /// Bytes with their length before them.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let len = usize::try_from(self.number()?).map_err(|_| Damaged("a length is too large"))?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damaged("a text is not UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Damaged, Packer, Unpacker};

    #[test]
    fn numbers_differences_and_text_read_back() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let mut packer = Packer::default();
        for n in numbers {
            packer.number(n);
            packer.difference(1_000, n);
        }
        packer.text("grüße");
        let bytes = packer.finish();
        let mut unpacker = Unpacker::new(&bytes);
        for n in numbers {
            assert_eq!(unpacker.number(), Ok(n));
            assert_eq!(unpacker.difference(1_000), Ok(n));
        }
        assert_eq!(unpacker.text(), Ok("grüße"));
        assert!(unpacker.is_empty());
    }

    #[test]
    fn damaged_bytes_are_an_error_and_not_a_panic() {
        assert_eq!(Unpacker::new(&[0xff; 12]).number(), Err(Damaged("a number is too long")));
        assert_eq!(Unpacker::new(&[0x80]).number(), Err(Damaged("it ends too early")));
        assert_eq!(Unpacker::new(&[5, b'a']).text(), Err(Damaged("it ends too early")));
        assert_eq!(Unpacker::new(&[1, 0xff]).text(), Err(Damaged("a text is not UTF-8")));
        assert!(Unpacker::new(&[1, 2, 3]).array::<4>().is_err());
    }
}
