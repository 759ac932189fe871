//! Which script a hash stands for: the server's log of commands has nothing else.

use std::collections::HashMap;

use sha1_smol::Sha1;

/// Those that a client sends. The probe, the last one, does the same whatever there is: no setup is hard for it.
pub(super) const NAMES: [&str; 7] = [
    "ask", "confirm", "renew", "release", "look", "inspect", "probe",
];

const SOURCES: [&str; 7] = [
    include_str!("../../../../../lua/ask.lua"),
    include_str!("../../../../../lua/confirm.lua"),
    include_str!("../../../../../lua/renew.lua"),
    include_str!("../../../../../lua/release.lua"),
    include_str!("../../../../../lua/look.lua"),
    include_str!("../../../../../lua/inspect.lua"),
    include_str!("../../../../../lua/probe.lua"),
];
const NUMBERED: &str = "end
local reply, number = run(), ARGV[#ARGV]
if type(reply) ~= 'table' then return reply .. ' ' .. number end
reply[#reply + 1] = number
return reply
";
const NEXT: &str = include_str!("../../../../../lua/next.lua");

/// Names by hash. Sources are made as the library makes them; a hash that is not here is an error where it
/// is looked up, so that a library that does otherwise is noticed.
pub(super) fn by_hash() -> HashMap<String, &'static str> {
    let sources = SOURCES.map(|source| {
        let whole = source.replace("--@include next", NEXT);
        let (fast, slow) = whole.split_once("--@slow path\n").unwrap_or(("", &whole));
        let (fast, slow) = (without_comments(fast), without_comments(slow));
        format!("if not KEYS[1] then return 0 end\n{fast}local function run()\n{slow}{NUMBERED}")
    });
    let hashes = sources.map(|source| Sha1::from(&source).digest().to_string());
    hashes.into_iter().zip(NAMES).collect()
}

fn without_comments(source: &str) -> String {
    let kept = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("--"));
    kept.map(|line| format!("{line}\n")).collect()
}
