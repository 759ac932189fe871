//! Reads replies. A malformed reply becomes an error, and never a panic or a hold.

use std::fmt::Display;

use redis::Value;

use crate::error::Outage;
use crate::fencing::FencingToken;
use crate::protocol::store_error::StoreError;
use crate::store::redis::wire::status::Status;
use crate::util::clock::ServerTime;

/// A reply that is read from front to back.
pub(crate) struct ReplyReader(std::vec::IntoIter<Value>);

impl ReplyReader {
    pub(crate) fn from_list(value: Value) -> Result<Self, StoreError> {
        match value {
            // An empty list means that every renewal succeeded, so no other value may pass for a
            // list.
            Value::Array(values) => Ok(ReplyReader(values.into_iter())),
            _ => Err(malformed("a value that is not a list")),
        }
    }

    pub(crate) fn from_value(value: Value) -> Self {
        ReplyReader(vec![value].into_iter())
    }

    pub(crate) fn next(&mut self) -> Option<Value> {
        self.0.next()
    }

    pub(crate) fn signed(&mut self) -> Result<i64, StoreError> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(number),
            _ => Err(malformed("a value that is not a number")),
        }
    }

    pub(crate) fn time(&mut self) -> Result<ServerTime, StoreError> {
        self.int().map(ServerTime)
    }

    pub(crate) fn int(&mut self) -> Result<u64, StoreError> {
        u64::try_from(self.signed()?).map_err(|_| malformed("a negative number"))
    }

    /// Reads an index into a list. A number that is too large becomes an index beyond every list.
    pub(crate) fn index(&mut self) -> Result<usize, StoreError> {
        Ok(usize::try_from(self.int()?).unwrap_or(usize::MAX))
    }

    pub(crate) fn token(&mut self) -> Result<FencingToken, StoreError> {
        match self.int()? {
            0 => Err(malformed("a fencing token of zero")),
            token => Ok(FencingToken::new(token)),
        }
    }

    pub(crate) fn status(&mut self) -> Result<Status, StoreError> {
        let word = self.text()?;
        Status::parse(&word).ok_or_else(|| unknown_status(word, "a command"))
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        text(self.0.next().unwrap_or(Value::Nil))
    }
}

pub(crate) fn text(value: Value) -> Result<String, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())),
        Value::SimpleString(text) => Ok(text),
        _ => Err(malformed("a value that is not a string")),
    }
}

pub(crate) fn is_list(value: &Value) -> bool {
    matches!(value, Value::Array(_))
}

/// Returns the payload of a message on a channel.
pub(crate) fn payload(message: &[Value]) -> Option<&str> {
    match message.get(1) {
        Some(Value::BulkString(payload)) => std::str::from_utf8(payload).ok(),
        _ => None,
    }
}

pub(crate) fn unknown_status(status: impl Display, command: &str) -> StoreError {
    malformed(&format!("the unknown status {status} to {command}"))
}

pub(crate) fn malformed(what: &str) -> StoreError {
    StoreError::new(
        Outage::Other,
        format!(
            "the server replied with {what}; check that the URL points to a Redis server, not to a proxy that rewrites \
             replies"
        ),
    )
}
