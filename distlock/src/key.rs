//! Lock keys, and the escaping that keeps values from changing them.

use std::fmt::{self, Write};
use std::sync::Arc;

use crate::error::Error;
use crate::util::visible::start;

/// Maximum length of a key, in bytes.
pub(crate) const MAX_KEY: usize = 512;

/// The end of an [escaped](escape) value whose `Display` returned an error. No key contains it.
pub(crate) const FAILED: char = '\u{1a}';

/// A checked lock key.
///
/// Braces mark a Redis Cluster hash tag: a key has either none or exactly one non-empty `{...}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LockKey(Arc<str>);

impl LockKey {
    pub(crate) fn new(key: &str) -> Result<Self, Error> {
        let refuse = |detail: String| {
            Err(Error::InvalidKey {
                key: shortened(key),
                detail,
            })
        };
        if key.is_empty() {
            return refuse("it is empty; name what the lock protects, like `inventory:42`".into());
        }
        if key.len() > MAX_KEY {
            return refuse(format!(
                "it has {} bytes and at most {MAX_KEY} are allowed; use an id or a hash instead of the whole value",
                key.len()
            ));
        }
        if key.contains(FAILED) {
            return refuse(
                "it contains U+001A, with which `escape` ends a value whose `Display` returned an error; fix that \
                 `Display`, or pass another value"
                    .into(),
            );
        }
        if key.chars().any(char::is_control) {
            return refuse("it contains a control character; remove or escape it".into());
        }
        match (key.matches('{').count(), key.matches('}').count()) {
            (0, 0) => {}
            (1, 1) if hash_tag(key).is_some() => {}
            _ => {
                return refuse(
                    "braces mark a Redis Cluster hash tag; write one non-empty `{...}`, or none, \
                     and escape braces in values (`distlock::escape`)"
                        .into(),
                );
            }
        }
        Ok(LockKey(key.into()))
    }

    /// Creates a key from its name in the store, which includes the hash tag.
    pub(crate) fn from_tagged(tagged: &str) -> Self {
        LockKey(tagged.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// Returns the key with exactly one hash tag, so that all data of a lock is in one slot.
    ///
    /// Braces only select the slot: `{a}` and `a` are the same lock.
    pub(crate) fn tagged(&self) -> Tagged<'_> {
        Tagged(&self.0)
    }

    /// Returns true if both keys name the same lock.
    pub(crate) fn same_lock(&self, other: &LockKey) -> bool {
        self.0 == other.0 || self.tagged().to_string() == other.tagged().to_string()
    }
}

impl fmt::Display for LockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key with exactly one hash tag, see [`LockKey::tagged`].
pub(crate) struct Tagged<'a>(&'a str);

impl<'a> Tagged<'a> {
    /// Returns the text in three parts.
    pub(crate) fn parts(&self) -> [&'a str; 3] {
        if self.0.contains('{') {
            ["", self.0, ""]
        } else {
            ["{", self.0, "}"]
        }
    }
}

impl fmt::Display for Tagged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().iter().try_for_each(|part| f.write_str(part))
    }
}

/// Returns the text that Redis Cluster hashes, between the first `{` and the first `}` behind it,
/// unless it is empty.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let start = key.find('{')? + 1;
    let length = key[start..].find('}')?;
    (length > 0).then(|| &key[start..start + length])
}

/// Returns a key as an error shows it: escaped, and at most its first 80 bytes.
fn shortened(key: &str) -> String {
    const SHOWN: usize = 80;
    let dots = if key.len() <= SHOWN { "" } else { "..." };
    format!("{}{dots}", start(key, SHOWN).escape_debug())
}

/// Returns the error for a value whose `Display` returned one. `key` is the key as far as known.
pub(crate) fn cut_off(key: &str, value: &str) -> Error {
    Error::InvalidKey {
        key: shortened(key),
        detail: format!(
            "the `Display` of {value} returned an error, and different values would be one; fix that `Display`, or \
             pass another value"
        ),
    }
}

/// Escapes a value so that it forms exactly one part of a key. Percent-encodes `%`, `:`, `{`, `}`,
/// white space and control characters, as `#[distributed_lock]` does with every `<...>`.
///
/// If the `Display` of the value returns an error, the text ends with U+001A, and a call with such
/// a key fails with [`Error::InvalidKey`].
///
/// Two different values never have the same escaped form. In a key that you build by hand, separate
/// values by one of these characters other than `%`, such as `format!("{}:{}", escape(a),
/// escape(b))`.
///
/// ```
/// assert_eq!(distlock::escape("a:b {c}"), "a%3Ab%20%7Bc%7D");
/// assert_eq!(distlock::escape(42), "42");
/// ```
#[must_use]
pub fn escape(value: impl fmt::Display) -> String {
    let mut out = String::new();
    if write!(Escaped::before(&mut out, ':'), "{value}").is_err() {
        out.push(FAILED);
    }
    out
}

/// Reverses [`escape`]. A `%` without two hexadecimal digits stays.
pub(crate) fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let escaped = match after {
            [high, low, ..] if *first == b'%' => digit(high).zip(digit(low)),
            _ => None,
        };
        let byte = escaped.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A writer that escapes a value and appends it to a key.
pub(crate) struct Escaped<'a> {
    out: &'a mut String,
    end: char,
}

impl<'a> Escaped<'a> {
    /// Creates a writer that also escapes `end`, the character behind the value.
    ///
    /// A reader from left to right takes `%` and its two digits as one unit. The value ends at the
    /// first unit that is `end`, even if `end` is a digit of an escape. Only `%` cannot end a
    /// value.
    pub(crate) fn before(out: &'a mut String, end: char) -> Self {
        Escaped { out, end }
    }
}

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for c in s.chars() {
            let special = matches!(c, '%' | ':' | '{' | '}') || c == self.end;
            if special || c.is_whitespace() || c.is_control() {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    write!(self.out, "%{byte:02X}")?;
                }
            } else {
                self.out.push(c);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn legal_keys_have_exactly_one_tag_in_the_store() {
        for (key, tagged) in [
            ("inventory:42", "{inventory:42}"),
            ("{tenant:7}:stock:9", "{tenant:7}:stock:9"),
            ("job {a}", "job {a}"),
            ("{a}", "{a}"),
        ] {
            assert_eq!(LockKey::new(key).unwrap().tagged().to_string(), tagged);
        }
    }

    #[test]
    fn braces_only_steer_the_slot() {
        let same = |a: &str, b: &str| {
            LockKey::new(a)
                .unwrap()
                .same_lock(&LockKey::new(b).unwrap())
        };
        assert!(same("{a}", "a"));
        assert!(!same("{a}b", "ab"));
    }

    proptest! {
        #[test]
        fn escaping_can_be_undone_so_it_is_injective(value in any::<String>()) {
            let escaped = escape(&value);
            prop_assert_eq!(unescape(&escaped), value);
            let special = |c: char| ":{}".contains(c) || c.is_control() || c.is_whitespace();
            prop_assert!(!escaped.contains(special), "{}", escaped);
        }

        #[test]
        fn any_string_is_a_lock_key_or_an_error(value in any::<String>()) {
            if let Ok(key) = LockKey::new(&value) {
                let tagged = key.tagged().to_string();
                prop_assert!(hash_tag(&tagged).is_some());
                prop_assert_eq!(tagged.matches('{').count(), 1);
            }
        }
    }
}
