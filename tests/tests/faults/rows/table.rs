//! Keeps `tests/FAULTS.md` true: every row has tests, and they exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("../../../FAULTS.md");

/// The rows that are there. The others are of quorum.
fn kept() -> impl Iterator<Item = u32> {
    (1..=18).chain([20]).chain(23..=25).chain(27..=52)
}

/// The cells of each row of the table: number, failure, behaviour, tests.
fn rows() -> Vec<(u32, Vec<&'static str>)> {
    let mut rows = Vec::new();
    for line in TABLE.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let Ok(number) = cells[0].parse() {
            assert_eq!(cells.len(), 4, "row {number}: {line}");
            assert!(cells.iter().all(|cell| !cell.is_empty()), "row {number}");
            rows.push((number, cells));
        }
    }
    rows
}

/// The tests that a row names: `binary module::test` in backquotes.
fn tests_of<'a>(cells: &[&'a str]) -> Vec<&'a str> {
    cells[3].split('`').skip(1).step_by(2).collect()
}

/// Where a test of that path is written, and its name.
fn source_of(test: &str) -> Option<(PathBuf, &str)> {
    let (binary, path) = test.split_once(' ')?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut parts: Vec<&str> = path.split("::").collect();
    let name = parts.pop()?;
    // Made by the macros of the conformance suite, which run one function on several stores.
    parts.retain(|part| !matches!(*part, "redis" | "memory" | "redis_only"));
    let file = match parts.as_slice() {
        [] if root.join(binary).is_dir() => root.join(binary).join("main.rs"),
        [] => root.join(format!("{binary}.rs")),
        modules => {
            let module = root.join(binary).join(modules.join("/"));
            let folder = module.join("mod.rs");
            if folder.exists() {
                folder
            } else {
                module.with_extension("rs")
            }
        }
    };
    Some((file, name))
}

/// Whether `name` is a test there, and not only a function.
fn is_test(source: &str, name: &str, by_macro: bool) -> bool {
    let Some(at) = source.find(&format!("fn {name}(")) else {
        return false;
    };
    let before = &source[..at];
    if by_macro {
        let makers = ["for_each_store! {", "for_redis! {"];
        return makers.iter().any(|maker| before.contains(maker));
    }
    // Attributes and `async` only, up to the end of what came before.
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
        let tests = tests_of(cells);
        assert!(!tests.is_empty(), "row {number} has no test");
        for test in tests {
            let (file, name) =
                source_of(test).unwrap_or_else(|| panic!("row {number}: {test:?} is no test"));
            let source = fs::read_to_string(&file)
                .unwrap_or_else(|error| panic!("row {number}: {}: {error}", file.display()));
            let by_macro = ["::redis::", "::memory::", "::redis_only::"]
                .iter()
                .any(|module| test.contains(module));
            assert!(
                is_test(&source, name, by_macro),
                "row {number}: there is no test {name} in {}",
                file.display()
            );
            named.entry(test).or_default().push(*number);
        }
    }
    for (test, rows) in named {
        assert!(rows.len() <= 2, "{test} serves {rows:?}");
    }
}
