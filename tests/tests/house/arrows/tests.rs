//! Small libraries with one mistake each, and some that look as if they had one.

use crate::arrows::bans;
use crate::arrows::graph::{Arrow, arrows, detours};
use crate::library::made_up;
use crate::library::modules::Library;

fn library(files: &[(&str, &str)]) -> Library {
    Library::read(&made_up(files))
}

fn arrows_of(files: &[(&str, &str)]) -> Vec<String> {
    let text = |arrow: &Arrow| format!("{} -> {}: {}", arrow.from, arrow.to, arrow.what);
    arrows(&library(files)).iter().map(text).collect()
}

/// Both files at the top, and what the first one says.
fn arrows_from(code: &str) -> Vec<String> {
    arrows_of(&[
        ("lib.rs", "mod a; mod b; mod store;"),
        ("a.rs", code),
        ("b.rs", "pub struct B; pub mod inline { pub struct I; }"),
        ("store/mod.rs", "pub mod redis; pub struct Settings;"),
        ("store/redis.rs", "pub struct Node;"),
    ])
}

#[test]
fn a_path_outside_of_a_use_is_an_arrow() {
    for code in [
        "fn f() { crate::b::g(); }",
        "fn f(_: &'static crate::b::B) {}",
        "fn f(x: u8) -> bool { matches!(x, crate::b::C) }",
        "fn f(x: u8) { match x { crate::b::C => {} _ => {} } }",
        "struct S { field: Option<super::b::B> }",
        "impl crate::b::T for u8 {}",
        "fn f() { let _ = <crate::b::B as Default>::default(); }",
        "type X = <u8 as super::b::T>::Out;",
        "#[derive(crate::b::Made)] struct S;",
        "fn f() { let x = Y { ..crate::b::B::default() }; }",
        "use crate::b; fn f() { b::g(); }",
        "mod inner { fn f() { super::super::b::g() } }",
        "mod inner { use super::*; fn f() { crate::b::g() } }",
    ] {
        let arrows = arrows_from(code);
        assert!(!arrows.is_empty(), "{code}: no arrow");
        assert!(
            arrows
                .iter()
                .all(|arrow| arrow.starts_with("a.rs -> b.rs: ")),
            "{code}: {arrows:?}"
        );
    }
}

#[test]
fn a_path_in_a_macro_is_an_arrow() {
    for code in [
        "fn f() { println!(\"{}\", crate::b::NAME); }",
        "fn f() { tokio::select! { x = crate::b::g() => {} } }",
        "thread_local! { static X: Vec<crate::b::B> = Vec::new(); }",
        "macro_rules! m { () => { $crate::b::g() } }",
        "macro_rules! m { () => { use $crate::b::{B}; } }",
        "fn f() { vec![vec![(1, super::b::B)]]; }",
    ] {
        let arrows = arrows_from(code);
        assert_eq!(arrows.len(), 1, "{code}: {arrows:?}");
        assert!(
            arrows[0].starts_with("a.rs -> b.rs: "),
            "{code}: {arrows:?}"
        );
    }
}

#[test]
fn a_macro_that_is_seen_without_a_path_is_an_arrow() {
    let files = [
        ("lib.rs", "#[macro_use] mod a; mod b;"),
        ("a.rs", "macro_rules! made { () => {} }"),
        ("b.rs", "fn f() { made!(); println!(); }"),
    ];
    assert_eq!(arrows_of(&files), ["b.rs -> a.rs: made!"]);
}

#[test]
fn an_arrow_ends_at_the_file_that_defines_the_module() {
    for (code, expected) in [
        (
            "use crate::store::Settings;",
            "store/mod.rs: crate::store::Settings",
        ),
        (
            "use crate::store::redis::Node;",
            "store/redis.rs: crate::store::redis::Node",
        ),
        (
            "use crate::store::redis;",
            "store/redis.rs: crate::store::redis",
        ),
        ("use crate::store;", "store/mod.rs: crate::store"),
        ("use crate::b::inline::I;", "b.rs: crate::b::inline::I"),
        (
            "use crate::store::redis::{Node as N, self};",
            "store/redis.rs: crate::store::redis",
        ),
    ] {
        let arrows = arrows_from(code);
        assert_eq!(
            arrows[0],
            format!("a.rs -> {expected}"),
            "{code}: {arrows:?}"
        );
    }
}

#[test]
fn what_only_looks_like_a_path_is_no_arrow() {
    for code in [
        "use std::sync::Arc; fn f<b>() { Arc::<b>::default(); }",
        "/// See [`crate::b::B`].\n//! crate::b\nfn f() { let _ = \"crate::b::B\"; }",
        "fn f(self_: u8) -> Vec<u8> { Vec::<u8>::new() }",
        "fn f() -> impl Sized + use<> { x.b::<u8>() }",
        "pub(in crate::store) struct A;",
        "mod b { pub struct Own; } use self::b::Own; fn f() { b::g() }",
        "type X = <T as Y>::b; fn f() { <Vec<u8>>::b() }",
    ] {
        let code = code.replace("//! crate::b\n", "");
        assert_eq!(arrows_from(&code), Vec::<String>::new(), "{code}");
    }
}

#[test]
fn code_of_tests_is_not_looked_at() {
    for code in [
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(test)] use crate::b::B;",
        "#[cfg(all(test, distlock_inside))] fn f() { crate::b::g() }",
        "#[cfg(any(test, distlock_inside))] fn f() { crate::b::g() }",
        "struct S { #[cfg(test)] seen: crate::b::B }",
        "impl S { #[cfg(test)] fn f(&self) { crate::b::g() } }",
        "fn f() { #[cfg(test)] let x = crate::b::g(); #[cfg(test)] { crate::b::g() } }",
        "fn f() { S { #[cfg(test)] seen: crate::b::B } }",
        "fn f(x: u8) { match x { #[cfg(test)] 1 => crate::b::g(), _ => {} } }",
        "#![cfg(test)] use crate::b::B;",
        "#[path = \"../../tests/inside/mod.rs\"] mod door; use door::B; use crate::a::door::b;",
    ] {
        assert_eq!(arrows_from(code), Vec::<String>::new(), "{code}");
    }
    for code in [
        "#[cfg(not(test))] use crate::b::B;",
        "#[cfg(any(test, feature = \"macros\"))] use crate::b::B;",
        "#[cfg(sabotage)] use crate::b::B;",
        "fn f() { #[cfg(test)] let x = 1; crate::b::g() }",
    ] {
        assert_eq!(arrows_from(code).len(), 1, "{code}");
    }
    let files = [
        ("lib.rs", "#[cfg(test)] mod tests; mod b;"),
        ("tests.rs", "mod more; use crate::b::B;"),
        ("tests/more.rs", "use crate::b::B;"),
        ("b.rs", "pub struct B;"),
    ];
    assert_eq!(arrows_of(&files), Vec::<String>::new());
}

#[test]
fn an_import_through_a_reexport_is_told_with_the_path_to_write() {
    let library = library(&[
        (
            "lib.rs",
            "mod a; mod error; mod store; pub use error::Error; pub use a::install;",
        ),
        ("error.rs", "pub enum Error { Busy }"),
        (
            "store/mod.rs",
            "mod config; mod link; pub use config::{Config as Settings}; use std::sync::Arc;",
        ),
        ("store/config.rs", "pub struct Config;"),
        (
            "store/link.rs",
            "use super::Settings;\nuse super::{Arc};\nfn f() { super::Settings::new() }\nuse super::config::Config;",
        ),
        (
            "a.rs",
            "use crate::Error;\nfn f() { crate::Error::Busy; crate::install(); }\nuse crate::store::*;\npub fn install() {}",
        ),
    ]);
    assert_eq!(
        detours(&library),
        [
            "a.rs:1 uses crate::Error: lib.rs only imports `Error`; write crate::error::Error",
            "a.rs:2 uses crate::Error::Busy: lib.rs only imports `Error`; write crate::error::Error::Busy",
            "a.rs:2 uses crate::install: lib.rs only imports `install`; write crate::a::install",
            "a.rs:3 uses crate::store::*: store/mod.rs has a `pub use`, and a glob takes that along; name what is used",
            "store/link.rs:1 uses super::Settings: store/mod.rs only imports `Settings`; write crate::store::config::Config",
            "store/link.rs:2 uses super::Arc: store/mod.rs only imports `Arc`; write std::sync::Arc",
            "store/link.rs:3 uses super::Settings::new: store/mod.rs only imports `Settings`; write crate::store::config::Config::new",
        ]
    );
    let to_settings =
        |arrow: &Arrow| arrow.from == "store/link.rs" && arrow.to == "store/config.rs";
    assert!(
        arrows(&library).iter().any(to_settings),
        "the arrow ends at the definition all the same"
    );
}

#[test]
fn a_function_of_the_same_name_as_its_module_is_no_module() {
    let library = library(&[
        (
            "lib.rs",
            "mod installed; mod a; pub use installed::installed;",
        ),
        ("installed.rs", "pub fn installed() {}"),
        (
            "a.rs",
            "use crate::installed::installed;\nfn f() { crate::installed() }",
        ),
    ]);
    assert_eq!(
        detours(&library),
        [
            "a.rs:2 uses crate::installed: lib.rs only imports `installed`; write crate::installed::installed"
        ]
    );
}

#[test]
fn redis_is_named_in_its_folder_only() {
    let library = library(&[
        ("lib.rs", "mod a; mod b; mod store;"),
        (
            "a.rs",
            "use redis::Cmd;\nfn f(_: ::redis::Value) {}\nfn g() { vec![redis::cmd()] }",
        ),
        (
            "b.rs",
            "use crate::store::redis;\nfn f(redis: u8) -> X { redis::open() }\nextern crate redis as r;",
        ),
        (
            "store/mod.rs",
            "mod redis; fn f() -> u8 { redis::open() } use redis::link;",
        ),
        ("store/redis/mod.rs", "pub mod link; use redis::Cmd;"),
        (
            "store/redis/link.rs",
            "use redis::Value; #[cfg(test)] use redis::Other;",
        ),
    ]);
    assert_eq!(
        bans::redis_elsewhere(&library),
        [
            "a.rs:1 names redis::Cmd; only store/redis/ may",
            "a.rs:2 names redis::Value; only store/redis/ may",
            "a.rs:3 names redis::cmd; only store/redis/ may",
            "b.rs:3 names redis; only store/redis/ may",
        ]
    );
}

#[test]
fn the_protocol_names_nothing_impure() {
    let library = library(&[
        ("lib.rs", "mod protocol; mod clock;"),
        (
            "clock.rs",
            "use std::time::Instant; use tokio::time::sleep;",
        ),
        (
            "protocol/mod.rs",
            "//! No Instant, and tokio::time is not used; nothing is async.\n\
             use std::time::{Duration, Instant, SystemTime};\n\
             fn f(wall: SystemTime) { now(wall, \"tokio\") }\n\
             fn g() { let x = std::time::SystemTime::now(); }\n\
             async fn h() { tokio::select! { x = y.await => {} } }\n\
             #[cfg(test)] mod tests { use tokio::time::Instant; }\n",
        ),
    ]);
    assert_eq!(
        bans::impure(&library),
        [
            "protocol/mod.rs:2 names Instant: it has no clock: the time is an argument",
            "protocol/mod.rs:4 names SystemTime::now: it has no clock: the time is an argument",
            "protocol/mod.rs:5 names async: it waits for nothing",
            "protocol/mod.rs:5 names tokio: it runs on nothing",
            "protocol/mod.rs:5 names await: it waits for nothing",
        ]
    );
}

#[test]
#[should_panic(expected = "b.rs: no `mod` line leads to this file")]
fn a_file_that_belongs_to_nothing_is_told() {
    library(&[("lib.rs", "mod a;"), ("a.rs", ""), ("b.rs", "")]);
}
