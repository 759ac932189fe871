//! Packs a state into bytes. Hashing them at once is several times faster than hashing field by
//! field, and hashing is half of the exploration's work.

use std::hash::{Hash, Hasher};

/// Returns the fields as bytes. Small numbers, discriminants and lengths are one byte each.
pub(crate) fn pack(fields: impl Hash) -> Vec<u8> {
    let mut bytes = Bytes(Vec::with_capacity(512));
    fields.hash(&mut bytes);
    bytes.0
}

struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    fn finish(&self) -> u64 {
        unreachable!("it only collects")
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.0.push(byte);
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
