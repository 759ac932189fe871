//! A strict, slow decoder of replies. It was written from `lua/` alone, so that it shares no code
//! with the decoder that it checks.

use super::Frame;

/// Returns the token in `{'held', now, token}`, the reply to a confirmation. `None` if the reply
/// contains an error, because the client library rejects such a reply.
pub fn confirmed(reply: &Frame) -> Option<u64> {
    if reply.has_error() {
        return None;
    }
    let [verdict, now, token, ..] = reply.as_array()? else {
        return None;
    };
    let is_held = verdict.as_text()? == "held" && now.as_int()? >= 0 && token.as_int()? >= 1;
    u64::try_from(token.as_int()?).ok().filter(|_| is_held)
}

/// Returns the token in `held token` or `held token now`, the reply to an acquire.
pub fn held(reply: &Frame) -> Option<u64> {
    let numbers = reply.as_text()?.strip_prefix("held ")?;
    let (token, now) = numbers.split_once(' ').unwrap_or((numbers, numbers));
    number(now)?;
    number(token).filter(|token| *token != 0)
}

/// Parses a number in the form in which Redis prints it.
fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Parses the number of an owner id of this client, `client:number`.
fn owner(client: &str, text: &str) -> Option<u64> {
    number(text.strip_prefix(client)?.strip_prefix(':')?)
}

/// Returns the locks of a batch, in order, that a renewal did not extend: `{{index, error} ...}`.
pub fn failures(reply: &Frame, batch: usize) -> Option<Vec<usize>> {
    if reply.has_error() {
        return None;
    }
    let mut failures = Vec::new();
    for item in reply.as_array()? {
        let [index, error, ..] = item.as_array()? else {
            return None;
        };
        let index = usize::try_from(index.as_int()?).ok()?;
        let is_text = matches!(error, Frame::Blob('$', _)) || error.as_text().is_some();
        if index >= batch || failures.last().is_some_and(|last| *last >= index) || !is_text {
            return None;
        }
        failures.push(index);
    }
    Some(failures)
}

/// A grant in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The number in the owner id.
    pub owner: u64,
    /// The fencing token.
    pub token: u64,
    /// The lease of the short grant, ms.
    pub lease: u64,
    /// The lock's key after `distlock:lock:`.
    pub key: String,
}

/// Returns the grant to this client in a message, `kind client:number token time lease lock`.
pub fn granted(client: &str, push: &Frame) -> Option<Granted> {
    let Frame::List('>', items) = push else {
        return None;
    };
    let [kind, _, Frame::Blob('$', payload), ..] = items.as_slice() else {
        return None;
    };
    if !["message", "smessage"].contains(&kind.as_text()?) {
        return None;
    }
    let fields: Vec<&str> = std::str::from_utf8(payload).ok()?.splitn(6, ' ').collect();
    let ["mutex" | "rw" | "permits", owned, token, time, lease, lock] = fields[..] else {
        return None;
    };
    number(time)?;
    let key = lock.strip_prefix("distlock:lock:")?.to_owned();
    let granted = Granted {
        owner: owner(client, owned)?,
        token: number(token)?,
        lease: number(lease)?,
        key,
    };
    let is_whole = granted.token > 0 && granted.lease > 0 && !granted.key.is_empty();
    is_whole.then_some(granted)
}
