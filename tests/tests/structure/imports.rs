//! Imports between the files of the library run from higher layers to lower ones and form no cycle,
//! and some folders do not name some crates and types.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source::Crate;

/// The layers of the library from top to bottom, by modules. The innermost module around a file
/// decides; the empty one is the crate.
const LAYERS: &[&[&str]] = &[
    &["testing"],
    &["attribute"],
    &["lock"],
    &["manager"],
    &["manager/engine"],
    &["manager/telemetry"],
    &["manager/core"],
    &["store/redis"],
    &["store/redis/cluster"],
    &["store/redis/quorum"],
    &["store/redis/node"],
    &["store/redis/conn"],
    &["store/redis/transport"],
    &["store/redis/wire"],
    &["store"],
    &["protocol"],
    &["observer", "metrics"],
    &["config", "util", ""],
];

/// Imports from every layer; no file imports from it.
const ROOT: &str = "lib.rs";

/// The only folder that names the crate `redis`, so that another store is another folder.
const REDIS: &str = "store/redis/";

/// The folder that names no I/O, telemetry, clock or task: its results depend on its arguments
/// alone.
const PROTOCOL: &str = "protocol/";

/// What it does not name.
const IMPURE: &[&[&str]] = &[
    &["tokio"],
    &["redis"],
    &["tracing"],
    &["metrics"],
    &["Instant"],
    &["SystemTime", "now"],
    &["async"],
    &["await"],
];

fn layer(file: &str) -> Option<usize> {
    let find = |around| {
        let mut layers = LAYERS.iter();
        layers.position(|modules| modules.iter().any(|module| Path::new(module) == around))
    };
    let module = Path::new(file).with_extension("");
    module.ancestors().find_map(find)
}

/// Returns the pairs of an importing and an imported file.
fn imports(library: &Crate) -> BTreeSet<(&str, &str)> {
    let mut imports = BTreeSet::new();
    for source in &library.sources {
        // Macros for users are at the root, and their names start with underscores.
        let is_macro = |path: &[String]| path.get(1).is_some_and(|name| name.starts_with("__"));
        let paths = source.paths.iter().filter(|path| !is_macro(path));
        let imported = paths.filter_map(|path| library.resolve(source, path));
        imports.extend(imported.map(|file| (&*source.file, file)));
    }
    imports.retain(|(from, to)| from != to && *from != ROOT);
    imports
}

fn describe(imports: BTreeSet<(&str, &str)>) -> Vec<String> {
    let describe = |(from, to)| format!("{from} imports {to}");
    imports.into_iter().map(describe).collect()
}

fn upward_imports(library: &Crate) -> Vec<String> {
    let mut imports = imports(library);
    imports.retain(|(from, to)| *to == ROOT || layer(to) < layer(from));
    describe(imports)
}

/// Returns the imports of files that import each other, directly or through other files.
fn cyclic_imports(library: &Crate) -> Vec<String> {
    let mut imports = imports(library);
    let mut count = 0;
    while count != imports.len() {
        count = imports.len();
        let (from, to): (BTreeSet<_>, BTreeSet<_>) = imports.iter().copied().unzip();
        imports.retain(|import| from.contains(import.1) && to.contains(import.0));
    }
    describe(imports)
}

fn forbidden_names(library: &Crate) -> Vec<String> {
    let mut forbidden = Vec::new();
    for source in &library.sources {
        for path in &source.paths {
            let contains = |name: &&[&str]| path.windows(name.len()).any(|part| part == *name);
            let is_impure = source.file.starts_with(PROTOCOL) && IMPURE.iter().any(contains);
            let is_redis = path.len() > 1 && path[0] == "redis";
            let is_crate = is_redis && library.resolve(source, path).is_none();
            if is_impure || (is_crate && !source.file.starts_with(REDIS)) {
                forbidden.push(format!("{} names {}", source.file, path.join("::")));
            }
        }
    }
    forbidden
}

#[test]
fn imports_run_from_higher_layers_to_lower_ones() {
    assert_eq!(upward_imports(&Crate::read("distlock")), [""; 0]);
}

#[test]
fn imports_form_no_cycle() {
    assert_eq!(cyclic_imports(&Crate::read("distlock")), [""; 0]);
}

#[test]
fn folders_name_only_permitted_items() {
    assert_eq!(forbidden_names(&Crate::read("distlock")), [""; 0]);
}

/// A small library without violations, in which one file is replaced or added.
fn library(file: &str, text: &str) -> Crate {
    let mut files = BTreeMap::from([
        ("lib.rs", "pub use lock::Lock;"),
        ("key.rs", "pub(in crate::lock) fn key() {}"),
        ("lock.rs", "#[cfg(test)] use crate::testing::X;"),
        ("lock/guard.rs", "use super::Lock;"),
        ("protocol/a.rs", "//! async\nuse std::time::SystemTime;"),
        ("store.rs", "use crate::{key::{self, K}};"),
        ("store/redis/mod.rs", "use redis::Cmd;"),
        ("testing.rs", ""),
    ]);
    files.insert(file, text);
    let owned = |(file, text): (&str, &str)| (file.to_owned(), text.to_owned());
    Crate::parse(files.into_iter().map(owned))
}

fn violations(library: &Crate) -> Vec<String> {
    let checks = [upward_imports, cyclic_imports, forbidden_names];
    checks.map(|check| check(library)).concat()
}

#[test]
fn violations_are_found() {
    assert_eq!(violations(&library("key.rs", "")), [""; 0]);
    for (file, text, expected) in [
        ("key.rs", "use crate::Lock;", "imports lib.rs"),
        ("key.rs", "use crate::{key, lock::{b}};", "imports lock.rs"),
        ("key.rs", "f!(crate::lock::f())", "imports lock.rs"),
        ("store.rs", "use redis::f;", "imports store/redis/mod.rs"),
        ("store/a.rs", "use redis::f;", "names redis::f"),
        ("protocol/a.rs", "use a::{Instant};", "names a::Instant"),
        ("protocol/a.rs", "SystemTime::now", "names SystemTime::now"),
        ("protocol/a.rs", "fn f() { g().await }", "names await"),
    ] {
        let expected = [format!("{file} {expected}")];
        assert_eq!(violations(&library(file, text)), expected, "{text}");
    }
    let cyclic = cyclic_imports(&library("lock.rs", "use guard::Guard;"));
    assert_eq!(cyclic[0], "lock.rs imports lock/guard.rs");
    assert_eq!(cyclic[1..], ["lock/guard.rs imports lock.rs"]);
}
