//! Keeps `tests/FAULTS.md` and `docs/internals/topologies.md` correct: every row has tests, and they exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("../../../FAULTS.md");

const PAGE: &str = include_str!("../../../../docs/internals/topologies.md");

/// The modules that the macros of the conformance suite make, which run one function on several
/// stores.
const STORES: [&str; 6] = [
    "redis",
    "memory",
    "cluster",
    "proxied",
    "quorum",
    "redis_only",
];

/// Returns the existing rows. The others are about replicas without a wait.
fn kept() -> impl Iterator<Item = u32> {
    (1..=20).chain(22..=25).chain(27..=63)
}

/// Returns the cells of a line of a table.
fn cells(line: &'static str) -> Option<Vec<&'static str>> {
    let inside = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

/// Returns the texts in backquotes, such as `binary module::test`.
fn quoted(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the rows of the table: number, failure, behavior, tests.
fn rows() -> Vec<(u32, Vec<&'static str>)> {
    let mut rows = Vec::new();
    for cells in TABLE.lines().filter_map(cells) {
        if let Ok(number) = cells[0].parse() {
            assert_eq!(cells.len(), 4, "row {number}: {cells:?}");
            assert!(cells.iter().all(|cell| !cell.is_empty()), "row {number}");
            rows.push((number, cells));
        }
    }
    rows
}

/// Returns the folder of the tests of a binary.
fn root_of(binary: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    match binary {
        "inventory" => package.join("../examples/inventory/tests"),
        "ui" => package.join("compile-fail/tests"),
        "quorum" | "node" => package.join("model/tests"),
        "fuzz" => package.to_owned(),
        _ => package.join("tests"),
    }
}

/// Returns the file of a module of a binary, or of the binary itself if there is no name.
fn file_of(binary: &str, modules: &[&str]) -> Option<PathBuf> {
    let module = root_of(binary).join(binary).join(modules.join("/"));
    let files = [
        module.join("mod.rs"),
        module.join("main.rs"),
        module.join("src/main.rs"),
        module.with_extension("rs"),
    ];
    files.into_iter().find(|file| file.exists())
}

/// Returns true if a filter names a module, and so all tests in it.
fn is_module(filter: &str) -> bool {
    let Some((binary, path)) = filter.split_once(' ') else {
        return false;
    };
    let is_store = binary == "conformance" && STORES.contains(&path);
    let modules: Vec<&str> = path.split("::").collect();
    is_store || file_of(binary, &modules).is_some()
}

/// Returns true if a test of that path exists. It is a function with the attribute of a test, or
/// one that a macro makes for several stores.
fn is_test(test: &str) -> bool {
    let Some((binary, path)) = test.split_once(' ') else {
        return false;
    };
    let mut modules: Vec<&str> = path.split("::").collect();
    let name = modules.pop().unwrap_or_default();
    let count = modules.len();
    if binary == "conformance" {
        modules.retain(|module| !STORES.contains(module));
    }
    let source = file_of(binary, &modules).map(fs::read_to_string);
    let Some(Ok(source)) = source else {
        return false;
    };
    let Some(at) = source.find(&format!("fn {name}(")) else {
        return false;
    };
    let before = &source[..at];
    if modules.len() < count {
        let makers = ["for_each_store! {", "for_redis! {"];
        return makers.iter().any(|maker| before.contains(maker));
    }
    // Only attributes and `async`, up to the end of the preceding item.
    let own = before.rfind("\n}\n").map_or(before, |end| &before[end..]);
    own.contains("#[test]") || own.contains("#[tokio::test")
}

#[test]
fn every_row_names_tests_that_exist() {
    let rows = rows();
    let numbers: Vec<u32> = rows.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, kept().collect::<Vec<_>>(), "rows");
    let mut named: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (number, cells) in &rows {
        assert!(quoted(cells[3]).count() > 0, "row {number} has no test");
        for test in quoted(cells[3]) {
            assert!(is_test(test), "row {number}: there is no test {test:?}");
            named.entry(test).or_default().push(*number);
        }
    }
    for (test, rows) in named {
        assert!(rows.len() <= 2, "{test} serves {rows:?}");
    }
}

/// The statements of the page on topologies. A filter may name a test, or a module of tests.
#[test]
fn every_statement_about_topologies_names_tests_that_exist() {
    let binaries = [
        "faults",
        "conformance",
        "install",
        "inventory",
        "quorum",
        "node",
    ];
    let names_test = |words: &str| match words.split_once(' ') {
        None => words == "conformance",
        Some((binary, _)) => binaries.contains(&binary),
    };
    let named: Vec<_> = quoted(PAGE).filter(|words| names_test(words)).collect();
    assert!(named.len() > 60, "only {named:?}");
    for test in named.into_iter().filter(|test| test.contains(' ')) {
        let exists = is_test(test) || is_module(test);
        assert!(exists, "there is no test `{test}`");
    }
    let mut is_shown = false;
    for line in PAGE.lines() {
        let Some(last) = cells(line).and_then(|cells| cells.last().copied()) else {
            is_shown = false;
            continue;
        };
        if last == "test" {
            is_shown = true;
        } else if is_shown && !last.starts_with('-') {
            let shows = |words: &str| names_test(words) || words.starts_with("cargo run");
            assert!(quoted(last).any(shows), "nothing shows that: {line}");
        }
    }
}
