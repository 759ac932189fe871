//! Keeps `tests/FAULTS.md` and `docs/topologies.md` true: every row has tests, and they exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("../../../FAULTS.md");

const GUIDE: &str = include_str!("../../../../docs/topologies.md");

/// The modules that the macros of the conformance suite make, which run one function on several stores.
const STORES: [&str; 6] = [
    "redis",
    "memory",
    "cluster",
    "proxied",
    "quorum",
    "redis_only",
];

/// The rows that are there. The others are of replicas that nobody waits for, and of `fork`.
fn kept() -> impl Iterator<Item = u32> {
    (1..=20).chain(22..=25).chain(27..=42).chain(44..=56)
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

/// The folder of the tests of a binary.
fn root_of(binary: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    match binary {
        "inventory" => package.join("../examples/inventory/tests"),
        "ui" => package.join("compile-fail/tests"),
        "quorum" | "node" => package.join("model/tests"),
        "fuzz" => package.join("fuzz/src"),
        _ => package.join("tests"),
    }
}

/// Whether a filter names a module, and so all tests in it.
fn is_module(filter: &str) -> bool {
    let Some((binary, path)) = filter.split_once(' ') else {
        return false;
    };
    let module = root_of(binary).join(binary).join(path.replace("::", "/"));
    let is_store = binary == "conformance" && STORES.contains(&path);
    is_store || module.with_extension("rs").exists() || module.join("mod.rs").exists()
}

/// Where a test of that path is written, and its name.
fn source_of(test: &str) -> Option<(PathBuf, &str)> {
    let (binary, path) = test.split_once(' ')?;
    let root = root_of(binary);
    let mut parts: Vec<&str> = path.split("::").collect();
    let name = parts.pop()?;
    if binary == "conformance" {
        parts.retain(|part| !STORES.contains(part));
    }
    let file = match parts.as_slice() {
        [] if root.join("main.rs").exists() => root.join("main.rs"),
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

/// What the guide says, and where. A filter may name a test, or a module of them.
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
    let quoted = |text: &'static str| text.split('`').skip(1).step_by(2);
    let named: Vec<_> = quoted(GUIDE).filter(|words| names_test(words)).collect();
    assert!(named.len() > 60, "only {named:?}");
    for test in named.into_iter().filter(|test| test.contains(' ')) {
        let is_written = source_of(test).is_some_and(|(file, name)| {
            fs::read_to_string(file).is_ok_and(|source| is_test(&source, name, false))
        });
        assert!(is_written || is_module(test), "there is no test `{test}`");
    }
    let mut is_shown = false;
    for line in GUIDE.lines() {
        let Some(cells) = line
            .strip_prefix('|')
            .and_then(|line| line.strip_suffix('|'))
        else {
            is_shown = false;
            continue;
        };
        let last = cells.rsplit('|').next().unwrap_or_default().trim();
        if last == "test" {
            is_shown = true;
        } else if is_shown && !last.starts_with('-') {
            let shows = |words: &str| names_test(words) || words.starts_with("cargo run");
            assert!(quoted(last).any(shows), "nothing shows that{cells}");
        }
    }
}
