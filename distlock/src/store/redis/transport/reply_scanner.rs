//! Scans replies and pushes as they arrive, before the `redis` crate parses them.
//!
//! The scanner limits the size of a reply. The crate buffers a reply until it is complete, so an
//! endless one would take all memory.
//!
//! In a cluster it also renames a push. A node that gives a slot away ends the subscriptions in it
//! with the push that is also the reply to a `SUNSUBSCRIBE`. The `redis` crate mistakes that push
//! for the reply to the oldest command in flight. Every later command would get the reply to the
//! one before it, so a caller could take another's lock for its own. distlock never unsubscribes,
//! so no such push is a reply. The crate passes the renamed push on.

/// Upper limit of the size of a reply, in bytes. The reply of `CLUSTER SLOTS` is the largest known,
/// with 1 MiB for thousands of ranges.
const MAX_REPLY_SIZE: u64 = 8 << 20;

/// Minimum size of a nested value, in addition to its text.
const VALUE_SIZE: u64 = 16;

pub(crate) const TOO_LARGE_MESSAGE: &str = "a reply was larger than 8 MiB, so the connection was closed; check that the URL points to a Redis server";

/// A reply exceeds the limit, or announces that it will.
#[derive(Debug)]
pub(crate) struct TooLarge;

/// The name of the push.
const SUNSUBSCRIBE: &[u8; 12] = b"sunsubscribe";

/// The new name of the push. It differs only in its last byte, so no bytes have to be held back.
pub(crate) const RENAMED_SUNSUBSCRIBE: &str = "sunsubscribd";

/// A scanner of replies, which may arrive in pieces of any size.
#[derive(Debug)]
pub(crate) struct ReplyScanner {
    state: ScanState,
    renames_sunsubscribe: bool,
    /// Size of the current reply so far.
    size: u64,
    /// Values of the current reply or push that are still missing.
    missing: u64,
    /// True if the next value is the name of a push.
    expects_push_name: bool,
}

#[derive(Clone, Copy, Debug)]
enum ScanState {
    /// Before a value.
    Start,
    /// In the first line of a value of this kind, with the number read so far.
    Line { kind: u8, number: Option<u64> },
    /// In a text. `matched` is the number of its bytes so far, if all match the name.
    Text {
        remaining: u64,
        matched: Option<usize>,
    },
}

impl ReplyScanner {
    pub(crate) fn new(renames_sunsubscribe: bool) -> Self {
        ReplyScanner {
            state: ScanState::Start,
            renames_sunsubscribe,
            size: 0,
            missing: 0,
            expects_push_name: false,
        }
    }

    pub(crate) fn scan(&mut self, mut bytes: &mut [u8]) -> Result<(), TooLarge> {
        while let Some(first) = bytes.first_mut() {
            let used = match self.state {
                ScanState::Start => {
                    if self.missing == 0 {
                        self.missing = 1;
                        self.size = 0;
                    }
                    let kind = *first;
                    self.state = ScanState::Line {
                        kind,
                        number: Some(0),
                    };
                    1
                }
                ScanState::Line { kind, number } => {
                    match *first {
                        b'\n' => self.end_line(kind, number)?,
                        b'\r' => {}
                        digit @ b'0'..=b'9' => {
                            let digit = u64::from(digit - b'0');
                            let number = number
                                .and_then(|number| number.checked_mul(10)?.checked_add(digit));
                            self.state = ScanState::Line { kind, number };
                        }
                        // `-1` means that there is no value.
                        _ => self.state = ScanState::Line { kind, number: None },
                    }
                    1
                }
                ScanState::Text { remaining, matched } => {
                    if let Some(matched) = matched {
                        self.match_name(first, remaining, matched);
                        1
                    } else {
                        let used = usize::try_from(remaining)
                            .map_or(bytes.len(), |remaining| remaining.min(bytes.len()));
                        self.advance_text(remaining, used, None);
                        used
                    }
                }
            };
            bytes = &mut bytes[used..];
            self.add_size(used as u64)?;
        }
        Ok(())
    }

    fn add_size(&mut self, size: u64) -> Result<(), TooLarge> {
        self.size = self.size.saturating_add(size);
        (self.size <= MAX_REPLY_SIZE).then_some(()).ok_or(TooLarge)
    }

    fn end_line(&mut self, kind: u8, number: Option<u64>) -> Result<(), TooLarge> {
        self.missing -= 1;
        let is_push_name = std::mem::take(&mut self.expects_push_name);
        self.state = ScanState::Start;
        let Some(number) = number else {
            return Ok(());
        };
        let inside = match kind {
            b'$' | b'=' | b'!' => {
                // The bytes of the text are counted as they arrive.
                if self.size.saturating_add(number) > MAX_REPLY_SIZE {
                    return Err(TooLarge);
                }
                let matched = (self.renames_sunsubscribe
                    && is_push_name
                    && number == SUNSUBSCRIBE.len() as u64)
                    .then_some(0);
                // The line end belongs to the text.
                self.state = ScanState::Text {
                    remaining: number.saturating_add(2),
                    matched,
                };
                0
            }
            b'*' | b'~' => number,
            b'>' => {
                self.expects_push_name = self.missing == 0;
                number
            }
            b'%' => number.saturating_mul(2),
            // An attribute is followed by the value that it belongs to.
            b'|' => number.saturating_mul(2).saturating_add(1),
            _ => 0,
        };
        self.missing = self.missing.saturating_add(inside);
        self.add_size(inside.saturating_mul(VALUE_SIZE))
    }

    fn match_name(&mut self, byte: &mut u8, remaining: u64, matched: usize) {
        let matched = (*byte == SUNSUBSCRIBE[matched]).then_some(matched + 1);
        if matched == Some(SUNSUBSCRIBE.len()) {
            *byte = RENAMED_SUNSUBSCRIBE.as_bytes()[SUNSUBSCRIBE.len() - 1];
            self.advance_text(remaining, 1, None);
        } else {
            self.advance_text(remaining, 1, matched);
        }
    }

    fn advance_text(&mut self, remaining: u64, read: usize, matched: Option<usize>) {
        let remaining = remaining.saturating_sub(read as u64);
        self.state = if remaining == 0 {
            ScanState::Start
        } else {
            ScanState::Text { remaining, matched }
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PUSH: &str = ">3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n";
    const RENAMED_PUSH: &str = ">3\r\n$12\r\nsunsubscribd\r\n$1\r\na\r\n:0\r\n";

    /// Other output of a server, with the name wherever it is not that of a push.
    const OTHERS: &[&str] = &[
        "+OK\r\n",
        "+sunsubscribe\r\n",
        "-MOVED 1 >3 $12 sunsubscribe\r\n",
        ":-7\r\n",
        "_\r\n",
        "#t\r\n",
        ",1.5\r\n",
        "$-1\r\n",
        "$0\r\n\r\n",
        "$12\r\nsunsubscribe\r\n",
        "$30\r\n>3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*2\r\n$12\r\nsunsubscribe\r\n*1\r\n:1\r\n",
        "%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",
        "|1\r\n+a\r\n:1\r\n$12\r\nsunsubscribe\r\n",
        "=5\r\ntxt:a\r\n",
        "!5\r\nERR a\r\n",
        ">3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$12\r\nsunsubscribe\r\n",
        ">3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n",
        ">3\r\n$12\r\npunsubscribe\r\n$1\r\na\r\n:1\r\n",
    ];

    #[test]
    fn an_oversized_reply_is_rejected_as_early_as_possible() {
        let text = format!("$1000000\r\n{}\r\n", "x".repeat(1_000_000));
        let line = format!("+{}", "x".repeat(9_000_000));
        let list = format!("*9\r\n{}", text.repeat(8));
        for (said, is_too_large) in [
            (&*text.repeat(20), false),
            (&*format!("{list}{text}"), true),
            (&*list, false),
            (&*line, true),
            ("$8000000\r\n", false),
            ("$2000000000\r\n", true),
            ("*500000\r\n", false),
            ("*600000\r\n", true),
            ("%300000\r\n", true),
            (">18446744073709551615\r\n", true),
        ] {
            let mut scanner = ReplyScanner::new(false);
            let read = scanner.scan(&mut said.as_bytes().to_vec());
            assert_eq!(read.is_err(), is_too_large, "{:.30}", said);
        }
    }

    proptest! {
        #[test]
        fn only_sunsubscribe_pushes_are_renamed(
            said in prop::collection::vec(0..=OTHERS.len(), 0..20),
            pieces in prop::collection::vec(1_usize..40, 1..20),
        ) {
            let text = |push: &str| -> String {
                said.iter().map(|index| *OTHERS.get(*index).unwrap_or(&push)).collect()
            };
            let mut bytes = text(PUSH).into_bytes();
            let mut scanner = ReplyScanner::new(true);
            let mut rest = &mut bytes[..];
            for piece in pieces.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, behind) = rest.split_at_mut((*piece).min(rest.len()));
                scanner.scan(piece).unwrap();
                rest = behind;
            }
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), text(RENAMED_PUSH));
            prop_assert_eq!(scanner.missing, 0);
        }
    }
}
