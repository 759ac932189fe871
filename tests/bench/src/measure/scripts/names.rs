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
const NEXT: &str = include_str!("../../../../../lua/next.lua");

/// Names by hash. Sources are made as the library makes them; a hash that is not here is an error where it
/// is looked up, so that a library that does otherwise is noticed.
pub(super) fn by_hash() -> HashMap<String, &'static str> {
    let sources = SOURCES.map(|source| {
        let whole = source.replace("--@include next", NEXT);
        let kept = whole
            .lines()
            .filter(|line| !line.trim_start().starts_with("--"));
        let body: String = kept.map(|line| format!("{line}\n")).collect();
        format!("if not KEYS[1] then return 0 end\n{body}")
    });
    let hashes = sources.map(|source| Sha1::from(&source).digest().to_string());
    hashes.into_iter().zip(NAMES).collect()
}
