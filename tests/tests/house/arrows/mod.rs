//! Which file imports which. An arrow runs from a file to the one that defines the module which it names: in a `use`, or
//! by a path anywhere else. Code of tests is not looked at, and `mod` lines are no arrows.

use crate::library::modules::Library;
use crate::library::sources_of;
use crate::none;

mod bans;
mod circles;
mod graph;
mod rooms;
#[cfg(test)]
mod tests;

/// The rooms of the house, and the files of each. Arrows run down this list, or stay within a room; only `lib.rs`, the
/// table of contents, imports what it likes, and nobody imports it. What is in no room is a mistake.
const ROOMS: &[(&str, &[&str])] = &[
    ("the test kit", &["testing/"]),
    ("the attribute", &["attribute/"]),
    ("what users touch", &["lock/"]),
    ("the manager", &["manager/"]),
    (
        "the Redis store",
        &[
            "store/redis/mod.rs",
            "store/redis/open.rs",
            "store/redis/servers.rs",
        ],
    ),
    ("the cluster", &["store/redis/cluster/"]),
    ("the quorum", &["store/redis/quorum/"]),
    ("one server", &["store/redis/node/"]),
    ("its connections", &["store/redis/conn/"]),
    ("sockets", &["store/redis/transport/"]),
    ("commands and replies", &["store/redis/wire/"]),
    ("the stores", &["store/"]),
    ("the protocol", &["protocol/"]),
    ("those who observe", &["observer/", "metrics.rs"]),
    // The clock, random numbers, keys, options, tokens, errors: every other file at the top.
    ("values", &["config/", "util/", "*.rs"]),
];

/// The one folder that names the crate `redis`.
const REDIS: &str = "store/redis/";

/// The folder that is pure: what happens there depends on nothing but its arguments.
const PURE: &str = "protocol/";

/// What no code there names, and why.
const IMPURE: &[(&str, &str)] = &[
    ("tokio", "it runs on nothing"),
    ("redis", "it knows no store"),
    ("Instant", "it has no clock: the time is an argument"),
    (
        "SystemTime::now",
        "it has no clock: the time is an argument",
    ),
    ("async", "it waits for nothing"),
    ("await", "it waits for nothing"),
];

fn distlock() -> Library {
    Library::read(&sources_of("distlock"))
}

#[test]
fn no_two_files_import_each_other() {
    none(
        &circles::mutual(&graph::arrows(&distlock())),
        "two files that import each other are one, or have a third one in them",
    );
}

#[test]
fn imports_run_in_no_circle() {
    none(
        &circles::shortest(&graph::arrows(&distlock())),
        "who follows the imports must come to an end",
    );
}

#[test]
fn imports_run_down_the_rooms() {
    let library = distlock();
    none(
        &rooms::upward(&library, &graph::arrows(&library)),
        "a room imports only what stands below it in the list `ROOMS`",
    );
}

#[test]
fn what_is_imported_is_named_where_it_is_defined() {
    none(
        &graph::detours(&distlock()),
        "the `pub use`s of a `mod.rs` or of `lib.rs` are for users, not for the code behind them",
    );
}

#[test]
fn only_the_redis_store_names_redis() {
    none(
        &bans::redis_elsewhere(&distlock()),
        "another store must be another folder, so nothing else knows the crate `redis`",
    );
}

#[test]
fn the_protocol_is_pure() {
    none(
        &bans::impure(&distlock()),
        "the protocol is tested, simulated and modelled by its arguments alone",
    );
}
