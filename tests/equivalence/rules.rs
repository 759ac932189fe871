//! The rules of counted locks, of success records and of several keys that the scripts keep
//! (`docs/internals/rules.md`), and those that the functions in PostgreSQL keep. Without one of
//! them, the server differs from the memory store.

#[cfg(feature = "postgres")]
use proptest::strategy::BoxedStrategy;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "postgres")]
use super::op::Sequence;
#[cfg(feature = "postgres")]
use super::postgres::{InPostgres, source};
use super::side::InRedis;
use super::{Bench, op};
use crate::store::redis::wire::scripts::Scripts;

/// Upper limit of the sequences until a difference is found.
const MAX_CASES: u32 = 40_000;
#[cfg(feature = "postgres")]
const MAX_FUNCTION_CASES: u32 = 3_000;

/// A rule, a passage that keeps it, and the replacement that breaks it.
type Edit = (&'static str, &'static str, &'static str);

const EDITS: &[Edit] = &[
    ("K2", " or expires <= now_text or", " or"),
    (
        "K3",
        "if l.used > 0 then redis.call('HDEL', l.lock, owner) end",
        "if l.used > 0 and l.used % 2 == 1 then redis.call('HDEL', l.lock, owner) end",
    ),
    ("K4: at", "and now_text >= at then", "then"),
    ("K4: next", "if now_text < next_expiry and", "if"),
    (
        "K4: renewals and at",
        "if at < now_text then at = now_text end",
        "at = now_text",
    ),
    (
        "K4: renewals and next",
        "now_text + ttl * 1000)\n  if expires < next_expiry then next_expiry = expires end",
        "now_text + ttl * 1000)",
    ),
    (
        "K4: grants and next",
        "if expires < l.next_expiry then l.next_expiry = expires end\n  local",
        "local",
    ),
    ("K4: shortens", "if expires > latest then", "if false then"),
    (
        "R7: the head",
        "return 'blocked'",
        "redis.call('ZADD', l.queue, '9000000000000000', owner)",
    ),
    (
        "R7: newcomers",
        "(outcome ~= 'free' or l.used + request.weight > request.capacity) then",
        "l.used + request.weight > request.capacity then",
    ),
    (
        "R5: acquire",
        "outcome = serve(l, owner)",
        "outcome = l.used == 0 and serve(l, owner) or has_queue(l) and 'blocked' or 'free'",
    ),
    ("R5: revoke", "serve(l) -- also because", "-- also because"),
    (
        "R5: a downgrade without a hold",
        "serve(l) -- a sweep",
        "-- a sweep",
    ),
    (
        "R5: release",
        "(serve(l) == 'more' and ' more'",
        "(l.used == 0 and serve(l) == 'more' and ' more'",
    ),
    ("R5: downgrade", "serve(l) == 'more' and 1", "nil and 1"),
    (
        "R5: check_queue",
        "local outcome = grant_next(l)",
        "local outcome",
    ),
    (
        "R6: while held",
        "or is_silent or not is_alive(l, client_id, name)",
        "or l.used == 0 and (is_silent or not is_alive(l, client_id, name))",
    ),
    ("R23: each lock", ", MIN_WORK)", ", 0)"),
    ("R23: all locks", ", MIN_WORK)", ", WORK_LIMIT)"),
    ("K9: phase", "if token then return token end", ""),
    (
        "K9: downgrade",
        "hold.token, hold.weight, l.used = token_for(l, 1, may_wait), 1, 1",
        "l.phase, hold.weight, l.used = hold.token, 1, 1",
    ),
    (
        "K10: phase",
        "  l.phase = '0'\nend\nfor owner, hold",
        "end\nfor owner, hold",
    ),
    (
        "K10: revoked again",
        "is_new = is_new or hold.flag ~= 'r'",
        "is_new = true",
    ),
    ("K12", "if is_writer then", "do"),
    ("R6: silent", "or is_silent or", "or"),
    (
        "R20: revoked",
        "if flag == 'r' then return nil, 'REVOKED' end",
        "",
    ),
    (
        "R1: again",
        "return enter(l, request, read_state(l, request.owner))",
        "return enter(l, request, read_state(l, request.owner) and nil)",
    ),
    (
        "K16: newcomers",
        "if l.kind and l.kind ~= request.kind then",
        "if false then",
    ),
    ("K16: waiters", "or l.kind and kind ~= l.kind then", "then"),
    (
        "K17: newcomers",
        "l.used + request.weight > request.capacity) then",
        "l.used + request.weight > (l.capacity or request.capacity)) then",
    ),
    (
        "K17: waiters",
        "elseif l.used + weight > capacity then",
        "elseif l.used + weight > (l.capacity or capacity) then",
    ),
    ("P1: late-record", "hold.token == succeeded and", ""),
    (
        "P1: revoked",
        "hold.flag == 'h' and hold.token",
        "hold.token",
    ),
    (
        "P2: record-unchecked",
        "if since + gap * 1000 > start then",
        "if false then",
    ),
    (
        "P5: future-record",
        "if tonumber(since) > now then",
        "if false then",
    ),
    (
        "P5: in a release",
        "tonumber(hold.since) > call.now and call.now_text or hold.since",
        "hold.since",
    ),
    (
        "P6: anchor-at-release",
        "tonumber(hold.since) > call.now and call.now_text or hold.since",
        "call.now_text",
    ),
    (
        "P8: record-shortened",
        "'PX', math.max(redis.call('PTTL', key), record_ttl)",
        "'PX', record_ttl",
    ),
    (
        "P8: a refusal lengthens",
        "if redis.call('PTTL', KEYS[3]) < needed then",
        "if false then",
    ),
    (
        "P21: judged-now, an acquire",
        "holder == ARGV[1] and math.min(acquired, now) or now",
        "now",
    ),
    (
        "P21: a step back before an acquire",
        "math.min(acquired, now) or now",
        "tonumber(acquired) or now",
    ),
    (
        "P21: a step back before a confirmation",
        "> math.min(acquired, now) then",
        "> tonumber(acquired) then",
    ),
    (
        "P21: judged-now, a confirmation",
        "> math.min(acquired, now) then",
        "> redis.call('TIME')[1] * 1000000 then",
    ),
    (
        "R41: all or none",
        "\nend\nfor i = 1, #KEYS, 3 do\n  redis.call('SET', KEYS[i + 2]",
        "\n  redis.call('SET', KEYS[i + 2]",
    ),
    (
        "R41: held keys",
        "if not is_uncontended or redis.call('EXISTS', KEYS[i]) == 1 then",
        "if not is_uncontended then",
    ),
    (
        "R41: only the first key is checked",
        "for i = 1, #KEYS, 3 do\n  local fence_value",
        "for i = 1, 1 do\n  local fence_value",
    ),
    (
        "R41: a queue with a fence",
        "#fence_value == 16 and fence_value < now_text and tonumber(fence_value)",
        "string.sub(fence_value, 1, 16) < now_text",
    ),
    (
        "R41: a queue without a fence",
        "redis.call('EXISTS', KEYS[i + 2], KEYS[i + 1]) == 0",
        "true",
    ),
    ("R41: tokens rise", "fence_value < now_text and", "true and"),
    (
        "R41: the fence",
        "redis.call('SET', KEYS[i + 2], now_text, 'PX', fence_ttl)",
        "",
    ),
    ("R41: an owner each", "ARGV[4 + (i + 2) / 3]", "ARGV[5]"),
];

/// Returns the start of the names of the scripts that keep a rule.
fn scripts_of(rule: &str) -> &'static str {
    match rule.as_bytes()[0] {
        b'P' => "once/",
        b'R' if rule.starts_with("R41") => "acquire_all",
        _ => "",
    }
}

/// Returns the scripts without a rule.
fn scripts_without((rule, passage, replacement): Edit) -> Scripts {
    let found = Arc::new(AtomicBool::new(false));
    let in_edit = found.clone();
    let scripts = Scripts::edited(move |name, source| {
        let is_edited = name.starts_with(scripts_of(rule));
        in_edit.fetch_or(is_edited && source.contains(passage), Ordering::Relaxed);
        if is_edited {
            source.replace(passage, replacement)
        } else {
            source
        }
    });
    assert!(
        found.load(Ordering::Relaxed),
        "no script has the passage of {rule}: {passage}"
    );
    scripts
}

#[test]
fn a_script_without_a_rule_differs() {
    for edit in EDITS {
        let scripts = Arc::new(scripts_without(*edit));
        let sequences = match scripts_of(edit.0) {
            "once/" => op::after_success(),
            "acquire_all" => op::on_mutexes(),
            _ => op::on_counted(),
        };
        let mut bench = Bench::start(InRedis::start(scripts));
        let result = bench.run_sequences(&sequences, MAX_CASES, 0);
        assert!(result.is_err(), "no difference without {}", edit.0);
    }
}

/// The rules of the functions in PostgreSQL, and the sequences that find each.
#[cfg(feature = "postgres")]
const FUNCTION_EDITS: &[(&Sequences, Edit)] = &[
    (
        &op::sequences,
        (
            "R2: no tombstone",
            "IF p_cancel_until >",
            "IF false AND p_cancel_until >",
        ),
    ),
    (
        &op::sequences,
        (
            "R2: a tombstone is cut down",
            "h.key = p_key AND h.weight > 0 AND h.expires > t + distlock.ms(h.ttl)",
            "h.key = p_key AND h.expires > t + distlock.ms(h.ttl)",
        ),
    ),
    (
        &op::sequences,
        (
            "R19: an expired hold is renewed",
            "h.expires > t FOR NO KEY UPDATE OF h SKIP LOCKED",
            "true FOR NO KEY UPDATE OF h SKIP LOCKED",
        ),
    ),
    (
        &op::on_counted,
        (
            "K9: readers get new tokens",
            "IF p_kind = 'r' AND p_weight < p_capacity THEN",
            "IF false THEN",
        ),
    ),
    (
        &op::sequences,
        (
            "R7: newcomers pass the queue",
            "ELSIF v_first IS NULL AND v_used + p_weight <= p_capacity THEN",
            "ELSIF v_used + p_weight <= p_capacity THEN",
        ),
    ),
    (
        &op::sequences,
        (
            "R6: a silent client's waiters stay",
            "IF gone.state = 'g' AND gone.client <> p_client THEN",
            "IF false THEN",
        ),
    ),
    (
        &op::sequences,
        (
            "R6: a dead client is granted",
            "IF q.client <> p_client AND pg_try_advisory_xact_lock_shared(q.liveness) THEN",
            "IF false THEN",
        ),
    ),
    (
        &op::sequences,
        (
            "R7: an overdue waiter is granted",
            "IF q.deadline < t THEN",
            "IF false THEN",
        ),
    ),
    (
        &op::sequences,
        (
            "D-3: a pinned hold is taken over",
            "e.expires <= t FOR UPDATE SKIP LOCKED))\n    RETURNING h.client",
            "e.expires <= t FOR KEY SHARE SKIP LOCKED))\n    RETURNING h.client",
        ),
    ),
    (
        &op::sequences,
        (
            "R24: tokens by the clock only",
            "SET token = greatest(l.token + 1, v_us)",
            "SET token = v_us",
        ),
    ),
    (
        &op::sequences,
        (
            "R40: a revoked hold is renewed",
            "WHERE h.token = a.token AND h.state IN ('g', 'h')",
            "WHERE h.token = a.token AND h.state IN ('g', 'h', 'r')",
        ),
    ),
    (
        &op::sequences,
        (
            "R20: min_hold is ignored",
            "IF p_keep = 0 THEN",
            "IF true THEN",
        ),
    ),
    (
        &op::on_counted,
        (
            "R21: nothing is cut down",
            "AND h.expires > t + distlock.ms(h.ttl) + interval '1 ms'",
            "AND false",
        ),
    ),
    (
        &op::on_counted,
        (
            "K16: newcomers of another kind",
            "IF held_kind <> p_kind THEN",
            "IF false THEN",
        ),
    ),
    (
        &op::on_counted,
        (
            "K16: waiters of another kind",
            "IF v_kind <> q.kind THEN",
            "IF false THEN",
        ),
    ),
    (
        &op::on_counted,
        (
            "K16: waiters of another kind, in a queue check",
            " OR v_kind <> q.kind",
            "",
        ),
    ),
    (
        &op::on_counted,
        (
            "K10: a phase goes on after a revocation",
            "token := CASE WHEN v_new THEN",
            "token := CASE WHEN false THEN",
        ),
    ),
    (
        &op::sequences,
        (
            "R5: a release grants to no waiter",
            "IF EXISTS (SELECT FROM distlock.queue w WHERE w.key = p_key) THEN\n    t :=",
            "IF false THEN\n    t :=",
        ),
    ),
    (
        &op::on_mutexes,
        (
            "R41: held keys",
            "IF EXISTS (SELECT FROM distlock.hold h WHERE h.key = ANY (p_keys))\n    OR",
            "IF",
        ),
    ),
    (
        &op::after_success,
        (
            "P21: an acquire is judged now",
            "<= coalesce(v_start, t) THEN",
            "<= t THEN",
        ),
    ),
    (
        &op::after_success,
        (
            "P8: a record is shortened",
            "expires = greatest(r.expires, excluded.expires), name",
            "expires = excluded.expires, name",
        ),
    ),
];

/// Sequences of operations.
#[cfg(feature = "postgres")]
type Sequences = dyn Fn() -> BoxedStrategy<Sequence> + Sync;

#[cfg(feature = "postgres")]
#[test]
fn a_function_without_a_rule_differs() {
    let functions = source("functions.sql");
    let mut bench = Bench::start(InPostgres::start());
    let mut missed = Vec::new();
    for (sequences, (rule, passage, replacement)) in FUNCTION_EDITS {
        let edited = functions.replace(passage, replacement);
        assert_ne!(edited, functions, "no function has the passage of {rule}");
        bench.load(&edited);
        let result = bench.run_sequences(&sequences(), MAX_FUNCTION_CASES, 0);
        if result.is_ok() {
            missed.push(rule);
        }
        // Shown with `--nocapture`.
        println!("{rule}: {}", result.err().unwrap_or_default());
    }
    assert!(missed.is_empty(), "no difference without {missed:?}");
}
