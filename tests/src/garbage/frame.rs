//! A RESP value as a server sends it.

use std::fmt;

/// One value of RESP2 or RESP3, valid or not. The character is the type, the first byte.
#[derive(Clone)]
pub enum Frame {
    /// A line: `+`, `-`, `:`, `_`, `,`, `#` or `(`.
    Line(char, String),
    /// A length and its bytes: `$`, `=` or `!`.
    Blob(char, Vec<u8>),
    /// A count and its values: `*`, `~`, `>`, or `%` with alternating keys and values. `|` has a
    /// key and a value, which describe the value that follows them.
    List(char, Vec<Frame>),
    /// Arbitrary bytes.
    Raw(Vec<u8>),
}

impl Frame {
    /// Creates an integer.
    pub fn int(number: i64) -> Self {
        Frame::Line(':', number.to_string())
    }

    /// Creates a bulk string.
    pub fn text(text: impl Into<String>) -> Self {
        Frame::Blob('$', text.into().into_bytes())
    }

    /// Creates an error.
    pub fn error(text: impl Into<String>) -> Self {
        Frame::Line('-', text.into())
    }

    /// Creates an array.
    pub fn array(items: impl Into<Vec<Frame>>) -> Self {
        Frame::List('*', items.into())
    }

    /// Creates a push.
    pub fn push(items: impl Into<Vec<Frame>>) -> Self {
        Frame::List('>', items.into())
    }

    /// Returns the integer, if the frame is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Frame::Line(':', digits) => digits.parse().ok(),
            _ => None,
        }
    }

    /// Returns the elements, if the frame is an array.
    pub fn as_array(&self) -> Option<&[Frame]> {
        match self {
            Frame::List('*', items) => Some(items),
            _ => None,
        }
    }

    /// Returns the text of a simple or bulk string, if it is UTF-8. `None` for `+OK`, which the
    /// client library decodes to a separate value.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Frame::Blob('$', bytes) => std::str::from_utf8(bytes).ok(),
            Frame::Line('+', text) if text != "OK" => Some(text),
            _ => None,
        }
    }

    /// Returns true if the frame is or contains an error.
    pub fn has_error(&self) -> bool {
        match self {
            Frame::Line(kind, _) => *kind == '-',
            Frame::Blob(kind, _) => *kind == '!',
            Frame::List(_, items) => items.iter().any(Frame::has_error),
            Frame::Raw(_) => false,
        }
    }

    /// Returns the encoded bytes.
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

    /// Appends the number of the request, if the frame is a list or a text; other frames have none.
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
