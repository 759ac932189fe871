//! A RESP value as it stands on the wire.

/// One value of RESP2 or RESP3, right or wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// `+...`
    Simple(String),
    /// `-...`
    Error(String),
    /// `:...`
    Int(i64),
    /// `$...`
    Bulk(Vec<u8>),
    /// `_`
    Nil,
    /// `*-1`, the nil of RESP2.
    NilArray,
    /// `,...`
    Double(f64),
    /// `#...`
    Bool(bool),
    /// `(...`
    BigNumber(String),
    /// `=...`
    Verbatim(String),
    /// `!...`
    BlobError(String),
    /// `*...`
    Array(Vec<Frame>),
    /// `~...`
    Set(Vec<Frame>),
    /// `>...`
    Push(Vec<Frame>),
    /// `%...`
    Map(Vec<(Frame, Frame)>),
    /// `|...`, an attribute before a value.
    Attribute(Box<Frame>),
    /// These very bytes.
    Raw(Vec<u8>),
}

impl Frame {
    /// A bulk string.
    pub fn text(text: impl Into<String>) -> Self {
        Frame::Bulk(text.into().into_bytes())
    }

    /// The integer, if it is one.
    pub fn int(&self) -> Option<i64> {
        match self {
            Frame::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of an array.
    pub fn array(&self) -> Option<&[Frame]> {
        match self {
            Frame::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The text of a string, simple or bulk, if it is UTF-8.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Frame::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            Frame::Simple(text) => Some(text),
            _ => None,
        }
    }

    /// Whether an error is in it anywhere.
    pub fn has_error(&self) -> bool {
        match self {
            Frame::Error(_) | Frame::BlobError(_) => true,
            Frame::Array(items) | Frame::Set(items) | Frame::Push(items) => {
                items.iter().any(Frame::has_error)
            }
            Frame::Map(pairs) => pairs
                .iter()
                .any(|(key, value)| key.has_error() || value.has_error()),
            Frame::Attribute(value) => value.has_error(),
            _ => false,
        }
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut Vec<u8>) {
        let line = |out: &mut Vec<u8>, kind: char, rest: &str| {
            // A line cannot contain its own end.
            let rest = rest.replace(['\r', '\n'], " ");
            out.extend(format!("{kind}{rest}\r\n").bytes());
        };
        let blob = |out: &mut Vec<u8>, kind: char, bytes: &[u8]| {
            out.extend(format!("{kind}{}\r\n", bytes.len()).bytes());
            out.extend(bytes);
            out.extend(b"\r\n");
        };
        let items = |out: &mut Vec<u8>, kind: char, items: &[Frame]| {
            out.extend(format!("{kind}{}\r\n", items.len()).bytes());
            items.iter().for_each(|item| item.write(out));
        };
        match self {
            Frame::Simple(text) => line(out, '+', text),
            Frame::Error(text) => line(out, '-', text),
            Frame::Int(number) => line(out, ':', &number.to_string()),
            Frame::Bulk(bytes) => blob(out, '$', bytes),
            Frame::Nil => line(out, '_', ""),
            Frame::NilArray => line(out, '*', "-1"),
            Frame::Double(number) => line(out, ',', &number.to_string()),
            Frame::Bool(yes) => line(out, '#', if *yes { "t" } else { "f" }),
            Frame::BigNumber(digits) => line(out, '(', digits),
            Frame::Verbatim(text) => blob(out, '=', format!("txt:{text}").as_bytes()),
            Frame::BlobError(text) => blob(out, '!', text.as_bytes()),
            Frame::Array(all) => items(out, '*', all),
            Frame::Set(all) => items(out, '~', all),
            Frame::Push(all) => items(out, '>', all),
            Frame::Map(pairs) => {
                line(out, '%', &pairs.len().to_string());
                for (key, value) in pairs {
                    key.write(out);
                    value.write(out);
                }
            }
            Frame::Attribute(value) => {
                line(out, '|', "1");
                Frame::Simple("ttl".into()).write(out);
                Frame::Int(3_600).write(out);
                value.write(out);
            }
            Frame::Raw(bytes) => out.extend(bytes),
        }
    }

    /// How many values there are, this one included.
    pub(super) fn count(&self) -> usize {
        match self {
            Frame::Array(items) | Frame::Set(items) | Frame::Push(items) => {
                1 + items.iter().map(Frame::count).sum::<usize>()
            }
            _ => 1,
        }
    }

    /// Changes the `index`th value, counted as [`Frame::count`] does.
    pub(super) fn change(&mut self, index: usize, change: &mut dyn FnMut(&mut Frame)) {
        if index == 0 {
            return change(self);
        }
        let mut left = index - 1;
        if let Frame::Array(items) | Frame::Set(items) | Frame::Push(items) = self {
            for item in items {
                let count = item.count();
                if left < count {
                    return item.change(left, change);
                }
                left -= count;
            }
        }
    }
}
