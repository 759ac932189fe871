//! Hashing a state, which is half of the work of exploring.

use std::hash::{Hash, Hasher};

use super::state::State;

impl Hash for State {
    /// Writes all bytes at once, which is several times faster than field by field.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut bytes = Bytes::default();
        self.server.hash(&mut bytes);
        self.clients.hash(&mut bytes);
        self.faults.hash(&mut bytes);
        self.last.hash(&mut bytes);
        self.wrongs.hash(&mut bytes);
        state.write(&bytes.bytes[..bytes.len]);
    }
}

/// Collects the fields, one byte for every number, because none is larger.
struct Bytes {
    bytes: [u8; 512],
    len: usize,
}

impl Default for Bytes {
    fn default() -> Self {
        Bytes {
            bytes: [0; 512],
            len: 0,
        }
    }
}

impl Hasher for Bytes {
    fn finish(&self) -> u64 {
        unreachable!("it only collects")
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u8(number as u8);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.write_u8(number as u8);
    }
}
