//! A RESP value as a server sends it.

use std::fmt;

/// One value of RESP2 or RESP3, right or wrong. The character is the first byte, which names the
/// type.
#[derive(Clone)]
pub enum Frame {
    /// A line: `+`, `-`, `:`, `_`, `,`, `#` or `(`.
    Line(char, String),
    /// Bytes after their length: `$`, `=` or `!`.
    Blob(char, Vec<u8>),
    /// Values after their count: `*`, `~`, `>`, or `%` with keys and values in turn. After `|` come
    /// a key and a value that describe the value behind them.
    List(char, Vec<Frame>),
    /// These bytes.
    Raw(Vec<u8>),
}

impl Frame {
    /// An integer.
    pub fn int(number: i64) -> Self {
        Frame::Line(':', number.to_string())
    }

    /// A bulk string.
    pub fn text(text: impl Into<String>) -> Self {
        Frame::Blob('$', text.into().into_bytes())
    }

    /// An error.
    pub fn error(text: impl Into<String>) -> Self {
        Frame::Line('-', text.into())
    }

    /// An array.
    pub fn array(items: impl Into<Vec<Frame>>) -> Self {
        Frame::List('*', items.into())
    }

    /// A push.
    pub fn push(items: impl Into<Vec<Frame>>) -> Self {
        Frame::List('>', items.into())
    }

    /// The integer, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Frame::Line(':', digits) => digits.parse().ok(),
            _ => None,
        }
    }

    /// The elements, if it is an array.
    pub fn as_array(&self) -> Option<&[Frame]> {
        match self {
            Frame::List('*', items) => Some(items),
            _ => None,
        }
    }

    /// The text of a string, simple or bulk, if it is UTF-8. The client library makes `+OK` a value
    /// of its own.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Frame::Blob('$', bytes) => std::str::from_utf8(bytes).ok(),
            Frame::Line('+', text) if text != "OK" => Some(text),
            _ => None,
        }
    }

    /// Returns true if an error is in it anywhere.
    pub fn has_error(&self) -> bool {
        match self {
            Frame::Line(kind, _) => *kind == '-',
            Frame::Blob(kind, _) => *kind == '!',
            Frame::List(_, items) => items.iter().any(Frame::has_error),
            Frame::Raw(_) => false,
        }
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            // A line cannot contain its own end.
            Frame::Line(kind, text) => {
                format!("{kind}{}\r\n", text.replace(['\r', '\n'], " ")).into()
            }
            Frame::Blob(kind, bytes) => [
                format!("{kind}{}\r\n", bytes.len()).as_bytes(),
                bytes,
                b"\r\n",
            ]
            .concat(),
            Frame::List(kind, items) => {
                let count = match kind {
                    '%' => items.len() / 2,
                    '|' => 1,
                    _ => items.len(),
                };
                let mut bytes = format!("{kind}{count}\r\n").into_bytes();
                bytes.extend(items.iter().flat_map(Frame::encode));
                bytes
            }
            Frame::Raw(bytes) => bytes.clone(),
        }
    }

    /// Returns the reply with the number of its request at the end, if it is a list or a text:
    /// others have none.
    #[must_use]
    pub fn numbered(mut self, number: &str) -> Self {
        match &mut self {
            Frame::List('*', items) => items.push(Frame::text(number)),
            Frame::Blob('$', bytes) => bytes.extend(format!(" {number}").bytes()),
            Frame::Line('+', text) => *text += &format!(" {number}"),
            _ => {}
        }
        self
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.encode().escape_ascii())
    }
}
