//! The length of RESP values (RESP2 and RESP3), without copying.

use std::fmt;

/// The error for bytes that are not RESP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Offset of the offending byte.
    pub at: usize,
    /// The mistake at that byte.
    pub reason: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not RESP at byte {}: {}", self.at, self.reason)
    }
}

impl std::error::Error for Malformed {}

/// Returns the length in bytes of the first value in `buf`, including nested values and attributes,
/// or `None` while it is incomplete.
///
/// # Errors
///
/// [`Malformed`] if the bytes cannot be the beginning of a value.
pub fn value_len(buf: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut at = 0;
    // Number of values still to be read. Without recursion, no depth can overflow the stack.
    let mut open: u64 = 1;
    while open > 0 {
        let Some((line, next)) = line_at(buf, at) else {
            return Ok(None);
        };
        let malformed = |reason| Malformed { at, reason };
        let Some((&kind, rest)) = line.split_first() else {
            return Err(malformed("empty line"));
        };
        open -= 1;
        let count = || number(rest).ok_or_else(|| malformed("bad length"));
        let mut end = next;
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => {}
            b'$' | b'=' | b'!' => {
                // -1 is RESP2's nil, which has no body.
                if let Some(len) = count()? {
                    let body_end = next + len as usize;
                    end = body_end + 2;
                    match buf.get(body_end..end) {
                        None => return Ok(None),
                        Some(b"\r\n") => {}
                        Some(_) => return Err(malformed("a body is not followed by CRLF")),
                    }
                }
            }
            b'*' | b'~' | b'>' => open += count()?.unwrap_or(0),
            b'%' => open += 2 * count()?.unwrap_or(0),
            // An attribute belongs to the value that follows it.
            b'|' => open += 2 * count()?.unwrap_or(0) + 1,
            _ => return Err(malformed("unknown type")),
        }
        at = end;
    }
    Ok(Some(at))
}

/// Like [`value_len`] for requests, which may also be inline commands (`PING\r\n`).
///
/// # Errors
///
/// [`Malformed`] if the bytes cannot be the beginning of a command.
pub fn request_len(buf: &[u8]) -> Result<Option<usize>, Malformed> {
    match buf.first() {
        None => Ok(None),
        Some(b'*') => value_len(buf),
        Some(_) => Ok(buf.iter().position(|&b| b == b'\n').map(|end| end + 1)),
    }
}

/// Returns true if a complete value is a RESP3 push, and so no reply.
pub fn is_push(value: &[u8]) -> bool {
    value.first() == Some(&b'>')
}

/// Returns the kind of a RESP3 push (`message`, `subscribe`, ...), `None` for other values.
pub fn push_kind(value: &[u8]) -> Option<&[u8]> {
    if is_push(value) {
        first_item(value)
    } else {
        None
    }
}

/// Returns the name of the command in a complete request, as sent.
pub fn command_name(request: &[u8]) -> Option<&[u8]> {
    match request.first()? {
        b'*' => first_item(request),
        _ => request
            .split(u8::is_ascii_whitespace)
            .find(|word| !word.is_empty()),
    }
}

/// Returns the first element of an aggregate, if it is a string.
fn first_item(aggregate: &[u8]) -> Option<&[u8]> {
    let (_, start) = line_at(aggregate, 0)?;
    let (line, body) = line_at(aggregate, start)?;
    match line.split_first()? {
        (b'$', rest) => {
            let len = number(rest)?? as usize;
            aggregate.get(body..body + len)
        }
        (b'+', rest) => Some(rest),
        _ => None,
    }
}

/// Returns the line at `at` without its CRLF, and the offset of the next line.
pub(crate) fn line_at(buf: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = buf.get(at..)?;
    let len = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&rest[..len], at + len + 2))
}

/// Parses a length: `Some(None)` for -1, `None` if invalid. Bounded, so sums cannot overflow.
fn number(digits: &[u8]) -> Option<Option<u64>> {
    let n: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match n {
        -1 => Some(None),
        0..=0xffff_ffff => Some(Some(n as u64)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of every type of RESP2 and RESP3, including nested ones. `↵` is CRLF.
    const VALUES: &str = "+OK↵ -ERR↵ :42↵ $5↵hello↵ $0↵↵ $-1↵ $4↵↵↵↵ *0↵ *-1↵ *2↵$1↵a↵:1↵ _↵ #t↵ \
        *2↵*2↵+a↵+b↵*1↵*1↵$1↵x↵ ,3.14↵ ,inf↵ (3492890328409238509324850943850943825024385↵ \
        !5↵ERR-x↵ =7↵txt:abc↵ %2↵+a↵:1↵+b↵*1↵_↵ ~3↵+a↵#f↵,1.5↵ >3↵$7↵message↵$2↵ch↵$5↵hello↵ \
        |1↵+ttl↵:3600↵*1↵$1↵x↵";

    #[test]
    fn each_value_ends_exactly_at_its_last_byte() {
        for value in VALUES.split(' ') {
            let value = value.replace('↵', "\r\n");
            let (bytes, length) = (value.as_bytes(), Ok(Some(value.len())));
            assert_eq!(value_len(bytes), length, "{value:?}");
            assert_eq!(
                value_len(&[bytes, b"+NEXT\r\n"].concat()),
                length,
                "{value:?}"
            );
            for cut in 0..bytes.len() {
                assert_eq!(value_len(&bytes[..cut]), Ok(None), "{value:?} cut at {cut}");
            }
        }
    }
}
