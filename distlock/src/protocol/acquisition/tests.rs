//! What the tests of each stage share. A test is a list of inputs.

pub(super) use std::time::Duration;

pub(super) use super::*;
pub(super) use crate::config::options::Options;
pub(super) use crate::error::Outage;
pub(super) use crate::key::LockKey;
pub(super) use crate::protocol::kind::Kind;
use crate::protocol::messages::OwnerId;
pub(super) use crate::protocol::once::Record;
pub(super) use crate::protocol::timing::Timing;
pub(super) use crate::util::clock::ServerTime;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn at(ms: u64) -> BootInstant {
    BootInstant(ms * 1_000_000)
}

/// Returns an acquisition that is about to acquire at 1 s.
pub(super) fn fresh(lease: Duration, wait: Duration) -> Acquisition {
    with_options(Options {
        lease: Some(lease),
        wait: Some(wait),
        ..Options::default()
    })
}

pub(super) fn with_options(options: Options) -> Acquisition {
    let request = Request::new(LockKey::new("k").unwrap(), Kind::Mutex, options, at(1_000));
    Acquisition::new(Arc::new(request), None)
}

/// Returns an acquisition that sent its acquire at 1 s, with a lease of 30 s and a wait of 10 s.
pub(super) fn sent() -> Acquisition {
    let mut acquisition = fresh(SECOND * 30, SECOND * 10);
    let command = acquisition.poll_action(true, at(1_000));
    assert!(
        command
            == Some(Action::Acquire {
                wait: SECOND * 10,
                timeout: SECOND
            }),
        "{command:?}"
    );
    acquisition
}

pub(super) fn proof(sent_at: u64, token: u64) -> Proof {
    Proof {
        sent_at: at(sent_at),
        token: FencingToken::new(token),
    }
}

pub(super) fn held(token: u64) -> Result<AcquireReply, StoreError> {
    Ok(AcquireReply::Held(proof(1_000, token)))
}

pub(super) fn queued() -> Result<AcquireReply, StoreError> {
    Ok(AcquireReply::Queued(vec![HolderView {
        local_owner: None,
        this_process: false,
        token: FencingToken::new(1),
        weight: 1,
        since: ServerTime(0),
        expires_in: None,
        kept_until: None,
        client_name: "another".into(),
        metadata: None,
    }]))
}

pub(super) fn grant(granted_at: Option<u64>, token: u64) -> Grant {
    Grant {
        kind: Kind::Mutex,
        key: LockKey::new("k").unwrap(),
        owner: OwnerId(1),
        token: FencingToken::new(token),
        granted_at: granted_at.map(at),
        lease: SECOND,
    }
}

pub(super) fn error(outage: Outage) -> StoreError {
    StoreError::new(outage, "it happens")
}

/// Returns an acquisition that has received `reply`.
pub(super) fn replied(reply: Result<AcquireReply, StoreError>) -> Acquisition {
    let mut acquisition = sent();
    acquisition.handle_acquire_reply(reply, at(1_010));
    acquisition
}

/// Returns a waiting acquisition that was granted the lock at 2 s with the token 7. Its call has
/// not received the grant.
pub(super) fn unclaimed() -> Acquisition {
    let mut acquisition = replied(queued());
    assert_eq!(acquisition.state(), AcquisitionState::Queued);
    acquisition.handle_grant(&grant(Some(2_000), 7), at(2_010));
    acquisition
}

/// Returns the acquisition of `unclaimed`, after its call has received the grant.
pub(super) fn granted() -> Acquisition {
    let mut acquisition = unclaimed();
    assert_eq!(acquisition.claim_outcome(), Some(Outcome::Held));
    acquisition
}

#[track_caller]
pub(super) fn assert_confirms(acquisition: &mut Acquisition, now: BootInstant) {
    let action = acquisition.poll_action(true, now);
    assert!(matches!(action, Some(Action::Confirm { .. })), "{action:?}");
}
