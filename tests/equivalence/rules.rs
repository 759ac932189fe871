//! The rules of counted locks, of success records and of several keys that the scripts keep
//! (`docs/internals/rules.md`). Without one of them, Redis differs from the memory store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Bench, op};
use crate::store::redis::wire::scripts::Scripts;

/// Upper limit of the sequences until a difference is found.
const MAX_CASES: u32 = 40_000;

/// A rule, a passage of the scripts, and the replacement that breaks the rule.
type Edit = (&'static str, &'static str, &'static str);

const EDITS: &[Edit] = &[
    ("K2", " or expires <= now_text or", " or"),
    (
        "K3",
        "if used > 0 then redis.call('HDEL', lock, owner) end",
        "if used > 0 and used % 2 == 1 then redis.call('HDEL', lock, owner) end",
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
        "now + ttl * 1000)\n  if expires < next_expiry then next_expiry = expires end",
        "now + ttl * 1000)",
    ),
    ("K4: shortens", "if expires > latest then", "if false then"),
    (
        "K5",
        "return 'full'",
        "redis.call('ZADD', queue, '9000000000000000', owner)",
    ),
    (
        "K6",
        "if outcome == 'free' and used + weight <= limit",
        "if used + weight <= limit",
    ),
    (
        "K7: acquire",
        "outcome = grant_next(owner)",
        "outcome = used == 0 and grant_next(owner) or 'full'",
    ),
    (
        "K7: revoke",
        "if head then grant_next('') end -- also because",
        "-- also because",
    ),
    (
        "K7: a downgrade without a hold",
        "if head then grant_next('') end -- a sweep",
        "-- a sweep",
    ),
    (
        "K7: release",
        "remove(owner)\n  outcome = grant_next('')",
        "remove(owner)\n  outcome = used == 0 and grant_next('')",
    ),
    (
        "K7: downgrade",
        "local outcome = head and grant_next('')",
        "local outcome",
    ),
    (
        "K7: check_queue",
        "local outcome = grant_next('')",
        "local outcome",
    ),
    (
        "K8",
        "or not is_responding(client_id, entry[2])",
        "or used == 0 and not is_responding(client_id, entry[2])",
    ),
    (
        "K9: phase",
        "if is_reader and phase ~= '0' then return phase end",
        "",
    ),
    (
        "K9: downgrade",
        "token = token_for(1, head ~= nil)",
        "phase = token",
    ),
    (
        "K10: phase",
        "  phase = '0'\nend\nfor owner, record",
        "end\nfor owner, record",
    ),
    (
        "K10: revoked again",
        "is_new = is_new or flag ~= 'r'",
        "is_new = true",
    ),
    ("K12", "if is_writer then", "do"),
    (
        "K13",
        "not (granted_until and granted_until < now_text) and",
        "",
    ),
    ("K14", "if flag == 'r' then return nil, 'REVOKED' end", ""),
    (
        "K15",
        "local flag, _, _, rest, token = string.match",
        "local flag, rest, token = nil, string.match",
    ),
    (
        "K16: newcomers",
        "if kind and kind ~= my_kind then",
        "if false then",
    ),
    ("K16: waiters", "or kind and its_kind ~= kind then", "then"),
    (
        "K17: newcomers",
        "if outcome == 'free' and used + weight <= limit then",
        "if outcome == 'free' and used + weight <= (capacity or limit) then",
    ),
    (
        "K17: waiters",
        "elseif used + weight > its_capacity then",
        "elseif used + weight > (capacity or its_capacity) then",
    ),
    ("P1: late-record", "token == succeeded and", "token and"),
    (
        "P1: revoked",
        "'^2 ' .. ARGV[1] .. ' ([1-9]%d*) (%d+) (%d+) (.*)$'",
        "'^2 ' .. ARGV[1] .. ' 0*(%d+) (%d+) (%d+) (.*)$'",
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
        "if tonumber(since) > tonumber(now) then since = now end",
        "",
    ),
    (
        "P6: anchor-at-release",
        "if tonumber(since) > tonumber(now) then since = now end",
        "since = now",
    ),
    (
        "P8: record-shortened",
        "'PX', math.max(redis.call('PTTL', key), record_ttl)",
        "'PX', record_ttl",
    ),
    (
        "P8: a refusal lengthens",
        "if redis.call('PTTL', KEYS[5]) < needed then",
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
        b'R' => "acquire_all",
        _ => "counted/",
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
        let result = Bench::run_sequences(scripts, sequences, MAX_CASES, 0);
        assert!(result.is_err(), "no difference without {}", edit.0);
    }
}
