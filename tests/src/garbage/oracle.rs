//! What the bytes prove: strict, slow, and written from `lua/` alone, so that it shares nothing with the code
//! that it judges.

use super::Frame;

/// `{1, now, token}`. The client library refuses an answer that has an error anywhere.
pub fn proof(answer: &Frame) -> Option<u64> {
    if answer.has_error() {
        return None;
    }
    match answer.array()? {
        [Frame::Int(1), Frame::Int(0..), Frame::Int(token @ 1..), ..] => u64::try_from(*token).ok(),
        _ => None,
    }
}

/// `held token` or `held token now`, the answer to an ask.
pub fn proof_of_ask(answer: &Frame) -> Option<u64> {
    let numbers = answer.as_text()?.strip_prefix("held ")?;
    let (token, now) = numbers.split_once(' ').unwrap_or((numbers, numbers));
    number(now)?;
    number(token).filter(|token| *token != 0)
}

/// The digits of a number as Redis prints it.
fn number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Our number in `client:number`.
fn owner(client: &str, text: &str) -> Option<u64> {
    number(text.strip_prefix(client)?.strip_prefix(':')?)
}

/// The owner in `2 client:number token ttl since name`, if it is ours.
pub fn owner_of_value(client: &str, value: &str) -> Option<u64> {
    owner(client, value.strip_prefix("2 ")?.split(' ').next()?)
}

/// What a renewal says of a batch: `{{index, error} ...}`, in the batch's order; whether each is gone.
pub fn failures(answer: &Frame, batch: usize) -> Option<Vec<(usize, bool)>> {
    if answer.has_error() {
        return None;
    }
    let mut failures = Vec::new();
    for item in answer.array()? {
        let [index, error, ..] = item.array()? else {
            return None;
        };
        let index = usize::try_from(index.int()?).ok()?;
        if index >= batch || failures.last().is_some_and(|(last, _)| *last >= index) {
            return None;
        }
        let gone = match error {
            Frame::Bulk(bytes) => bytes.is_empty(),
            Frame::Simple(text) => text.is_empty(),
            _ => return None,
        };
        failures.push((index, gone));
    }
    Some(failures)
}

/// Whose lock a look saw, if it is ours: `{value, ttl left, {index ...}}`.
pub fn ours_seen(client: &str, item: Option<&Frame>) -> Option<u64> {
    owner_of_value(client, item?.array()?.first()?.as_text()?)
}

/// The owners that a look did not find.
pub fn missing(item: Option<&Frame>, owners: &[u64]) -> Option<Vec<u64>> {
    let indices = item?.array()?.get(2)?.array()?;
    let owner = |index: &Frame| owners.get(usize::try_from(index.int()?).ok()?).copied();
    indices.iter().map(owner).collect()
}

/// A grant, as its message says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The owner's number.
    pub owner: u64,
    /// The fencing token.
    pub token: u64,
    /// The short lease, ms.
    pub lease: u64,
    /// The lock's key behind `distlock:lock:`.
    pub key: String,
}

/// What a message grants us: `client:number token time lease lock`.
pub fn grant(client: &str, push: &Frame) -> Option<Granted> {
    let Frame::Push(items) = push else {
        return None;
    };
    if !["message", "smessage"].contains(&items.first()?.as_text()?) {
        return None;
    }
    let Frame::Bulk(payload) = items.get(2)? else {
        return None;
    };
    let fields: Vec<&str> = std::str::from_utf8(payload).ok()?.splitn(5, ' ').collect();
    let [owned, token, time, lease, lock] = fields[..] else {
        return None;
    };
    number(time)?;
    Some(Granted {
        owner: owner(client, owned)?,
        token: number(token).filter(|token| *token > 0)?,
        lease: number(lease).filter(|lease| *lease > 0)?,
        key: lock
            .strip_prefix("distlock:lock:")
            .filter(|key| !key.is_empty())?
            .to_owned(),
    })
}
