//! Faults on the link of one worker.

use std::time::Duration;

use distlock_tests::{After, Directions, ProxyHandle};

use crate::kind::Kind;
use crate::plan::Planned;

/// Bytes that a dripping link forwards at a time.
const DRIP: usize = 7;

pub(crate) fn begin(link: &ProxyHandle, fault: &Planned) {
    set(link, fault, true);
    match fault.kind {
        Kind::Reset if fault.flag => drop(link.reset_clients()),
        Kind::Reset | Kind::CutOff => drop(link.reset_connections()),
        Kind::HoldRequests => drop(link.hold_requests()),
        Kind::SwallowReply => {
            let after = if fault.flag {
                After::Reset
            } else {
                After::Silence
            };
            // Swallows the reply to a script, because a lost reply to PING tests nothing.
            link.swallow_reply_to("EVALSHA", after);
        }
        _ => {}
    }
}

pub(crate) fn end(link: &ProxyHandle, fault: &Planned) {
    set(link, fault, false);
    if fault.kind == Kind::HoldRequests {
        link.release_held();
    }
}

/// Sets or resets the faults that are switches of the proxy.
fn set(link: &ProxyHandle, fault: &Planned, on: bool) {
    let by = if on { fault.by } else { Duration::ZERO };
    match fault.kind {
        Kind::CutOff => link.refuse_connections(on),
        Kind::BlackHole => link.black_hole(on),
        Kind::DropToServer => link.drop_data(Directions::ToServer, on),
        Kind::DropToClient => link.drop_data(Directions::ToClient, on),
        Kind::HalfOpen if fault.flag => link.stop_reading(Directions::Both, on),
        Kind::HalfOpen => link.stop_reading(Directions::ToServer, on),
        Kind::Delay => link.delay(Directions::Both, by),
        Kind::DelayReplies => link.delay(Directions::ToClient, by),
        Kind::Drip => link.drip(Directions::ToClient, if on { DRIP } else { 0 }, by),
        Kind::DropPushes => link.drop_pushes(on),
        Kind::HoldReplies => link.stop_reading(Directions::ToClient, on),
        Kind::DelayRenewals => link.delay_unsubscribed(by),
        _ => {}
    }
}
