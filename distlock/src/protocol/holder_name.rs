//! The name of a holder in a store: that of its client and, if there is one, the metadata of the
//! hold. The scripts treat both as one opaque text at the end of a record.

use std::borrow::Cow;

use crate::protocol::store_error::one_line;

/// Separates the two. Neither contains a control character.
const SEPARATOR: char = '\u{1f}';

/// Returns the text for the store. Without metadata it is the client's name. A separator in front
/// says that the store cannot see whether the client is alive, because of a proxy.
pub(crate) fn join<'a>(client: &'a str, metadata: Option<&str>, is_proxied: bool) -> Cow<'a, str> {
    let start = if is_proxied { "\u{1f}" } else { "" };
    match metadata {
        None if !is_proxied => Cow::Borrowed(client),
        None => Cow::Owned(format!("{start}{client}")),
        Some(metadata) => Cow::Owned(format!("{start}{client}{SEPARATOR}{metadata}")),
    }
}

/// Returns the client's name and the metadata.
pub(crate) fn split(name: &str) -> (String, Option<String>) {
    let clean = |text: &str| one_line(text.to_owned());
    let name = name.strip_prefix(SEPARATOR).unwrap_or(name);
    match name.split_once(SEPARATOR) {
        None => (clean(name), None),
        Some((client, metadata)) => (clean(client), Some(clean(metadata))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_metadata_is_the_clients() {
        assert_eq!(join("host:7", None, false), "host:7");
        assert_eq!(split("host:7"), ("host:7".into(), None));
        assert_eq!(split("a b\nc"), ("a b c".into(), None));
        let proxied = join("host:7", None, true);
        assert_ne!(proxied, "host:7");
        assert_eq!(split(&proxied), ("host:7".into(), None));
    }

    #[test]
    fn metadata_returns_as_it_was_and_without_control_characters() {
        for metadata in ["import 42", "ünïcode \u{3000} text", "a:b {c} %d"] {
            for is_proxied in [false, true] {
                let name = join("host:7", Some(metadata), is_proxied);
                assert_eq!(split(&name), ("host:7".into(), Some(metadata.into())));
            }
        }
        let foreign = split("host:7\u{1f}a\u{1f}b\u{202e}c");
        assert_eq!(foreign, ("host:7".into(), Some("a b c".into())));
    }
}
