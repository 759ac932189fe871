//! The slot of a name, and a name for each slot.

use once_cell::sync::Lazy;

use crate::key::hash_tag;

/// The number of slots into which a cluster divides its keys.
pub(crate) const SLOT_COUNT: u16 = 16_384;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u16);

impl Slot {
    pub(crate) fn new(number: u16) -> Option<Self> {
        (number < SLOT_COUNT).then_some(Slot(number))
    }

    /// Returns the slot of a key, or of a channel.
    pub(crate) fn of(name: &str) -> Self {
        let hashed = hash_tag(name).unwrap_or(name);
        Slot(crc16(hashed.as_bytes()) % SLOT_COUNT)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the tag that is in this slot when enclosed in braces. It is the least such number,
    /// in decimal digits, so that all clients agree on it.
    pub(crate) fn tag(self) -> u32 {
        TAGS[self.index()]
    }
}

/// The tags of all slots. They are computed once, which takes milliseconds.
static TAGS: Lazy<Box<[u32]>> = Lazy::new(|| {
    let mut tags = vec![None; usize::from(SLOT_COUNT)];
    let mut missing = tags.len();
    for number in 0_u32.. {
        if missing == 0 {
            break;
        }
        let tag = &mut tags[Slot::of(&number.to_string()).index()];
        if tag.is_none() {
            *tag = Some(number);
            missing -= 1;
        }
    }
    tags.into_iter().flatten().collect()
});

/// Returns the CRC-16/XMODEM, the hash of Redis Cluster.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let index = (crc >> 8) ^ u16::from(*byte);
        (crc << 8) ^ TABLE[usize::from(index)]
    })
}

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (name, slot) in [
            ("foo", 12_182),
            ("bar", 5_061),
            ("{user1000}.following", 3_443),
            ("foo{}{bar}", 8_363),
            ("", 0),
        ] {
            assert_eq!(Slot::of(name).0, slot, "{name}");
        }
        assert_eq!(Slot::of("distlock:lock:{bar}x"), Slot::of("bar"));
    }

    #[test]
    fn each_slot_has_a_tag_that_lies_in_it() {
        for number in 0..SLOT_COUNT {
            let slot = Slot::new(number).expect("it is one of them");
            assert_eq!(Slot::of(&format!("a:{{{}}}:b", slot.tag())), slot);
        }
        assert_eq!(Slot::new(SLOT_COUNT), None);
    }
}
