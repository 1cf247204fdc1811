//! What is kept of a run: both streams and the exit code, in a versioned form of its own.

use serde_json::{Value, json};

const VERSION: u8 = 1;

/// Output and exit code of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// Its exit code; 128 and the signal's number if a signal ended it.
    pub exit_code: i32,
}

impl Captured {
    /// As bytes: version, exit code, length of standard output, standard output, standard error.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(13 + self.stdout.len() + self.stderr.len());
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.exit_code.to_be_bytes());
        bytes.extend_from_slice(&(self.stdout.len() as u64).to_be_bytes());
        bytes.extend_from_slice(&self.stdout);
        bytes.extend_from_slice(&self.stderr);
        bytes
    }

    /// Reads the bytes back; `None` if they are something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&version, rest) = bytes.split_first()?;
        let (code, rest) = rest.split_first_chunk::<4>()?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let len = usize::try_from(u64::from_be_bytes(*len)).ok()?;
        if version != VERSION || len > rest.len() {
            return None;
        }
        let (stdout, stderr) = rest.split_at(len);
        Some(Self { stdout: stdout.to_vec(), stderr: stderr.to_vec(), exit_code: i32::from_be_bytes(*code) })
    }

    /// For the `data` of an envelope. A stream that is not UTF-8 is given in base64 under a name that says so.
    pub fn to_json(&self) -> Value {
        let mut data = json!({ "exit_code": self.exit_code });
        for (name, stream) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            match std::str::from_utf8(stream) {
                Ok(text) => data[name] = text.into(),
                Err(_) => data[format!("{name}_base64")] = base64(stream).into(),
            }
        }
        data
    }
}

/// Base64 with padding, after RFC 4648.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { digit as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Captured, base64};

    #[test]
    fn what_is_kept_reads_back_byte_for_byte() {
        let run = Captured { stdout: vec![0, 255, b'\n'], stderr: b"warn".to_vec(), exit_code: -7 };
        assert_eq!(Captured::decode(&run.encode()), Some(run.clone()));
        // Pinned: ledgers in the field hold this form.
        assert_eq!(run.encode(), b"\x01\xff\xff\xff\xf9\0\0\0\0\0\0\0\x03\x00\xff\nwarn");
        assert_eq!(Captured::decode(b""), None);
        assert_eq!(Captured::decode(b"{\"json\":true}"), None);
        assert_eq!(Captured::decode(&run.encode()[..12]), None);
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, coded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        let data = Captured { stdout: vec![0xff], ..Captured::default() }.to_json();
        assert_eq!(data["stdout_base64"], "/w==");
        assert_eq!(data["stderr"], "");
    }
}
