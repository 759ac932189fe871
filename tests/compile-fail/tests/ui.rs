//! Compile-fail cases of the attribute: each mistake causes one error, with the correct code.
//!
//! * `ui/<theme>/<mistake>.rs`: the cases;
//! * `ui_plain/<mistake>.stderr`: the output for the cases of `ui/body` without the attribute, which
//!   a test writes and removes. They have the same errors.
//!
//! `tests/tests/attribute` has the code that compiles, and `unsafe_fn.rs` the unsafe code.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns all cases, `ui/<theme>/<mistake>.rs`.
fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
    let mut cases = Vec::new();
    for theme in fs::read_dir(&root).expect("ui exists") {
        let theme = theme.expect("a readable folder").path();
        for case in fs::read_dir(&theme).expect("a folder of cases") {
            let case = case.expect("a readable file").path();
            if case.extension().is_some_and(|extension| extension == "rs") {
                cases.push(case);
            }
        }
    }
    cases.sort();
    cases
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_mistake_gets_its_own_error() {
    let mut mistakes = 0;
    for case in cases() {
        let name = case.display();
        let source = read(&case);
        let expected = source.lines().next();
        let expected = expected.and_then(|line| line.strip_prefix("// mistakes: ")?.parse().ok());
        let expected: usize =
            expected.unwrap_or_else(|| panic!("{name} does not start with `// mistakes: n`"));
        let answer = read(&case.with_extension("stderr"));
        let is_error = |line: &&str| line.starts_with("error:") || line.starts_with("error[");
        let errors = answer.lines().filter(is_error).count();
        assert_eq!(errors, expected, "{name}: errors for mistakes:\n{answer}");
        for word in ["__private", "$RUST", "/registry/"] {
            assert!(!answer.contains(word), "{name} shows `{word}`:\n{answer}");
        }
        mistakes += expected;
    }
    assert!(mistakes >= 160, "only {mistakes} mistakes");
}

#[test]
fn a_mistake_in_the_body_gets_the_errors_of_the_plain_function() {
    for (case, plain) in in_bodies() {
        let answer = read(&case.with_extension("stderr"));
        let plain_answer = read(&plain.with_extension("stderr"));
        assert_eq!(errors(&answer), errors(&plain_answer), "{}", case.display());
        for word in ["attribute macro", "ui_plain"] {
            assert!(!answer.contains(word), "{answer}");
        }
    }
}

/// Returns the cases of `ui/body`, each with the place of its plain function.
fn in_bodies() -> Vec<(PathBuf, PathBuf)> {
    let plain = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui_plain");
    let mut cases = cases();
    cases.retain(|case| case.parent().is_some_and(|theme| theme.ends_with("body")));
    let with_plain = |case: PathBuf| {
        let plain = plain.join(case.file_name().expect("a file"));
        (case, plain)
    };
    cases.into_iter().map(with_plain).collect()
}

fn without_attribute(source: &str) -> String {
    let lines = source.lines().map(|line| match line {
        "use distlock::{Error, distributed_lock};" => "use distlock::Error;\n".to_owned(),
        line if line.starts_with("#[distributed_lock(") => "// Without the attribute.\n".to_owned(),
        line => format!("{line}\n"),
    });
    lines.collect()
}

/// Returns the code, or the message if there is no code, and the place of each error.
fn errors(answer: &str) -> Vec<(String, String)> {
    let mut errors = Vec::new();
    let mut lines = answer.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("error") {
            let code = line.split_once("]: ").map_or(line, |(code, _)| code);
            let place = lines.next().and_then(|place| place.split_once(".rs:"));
            let (_, place) = place.expect("an error has a place");
            errors.push((code.to_owned(), place.to_owned()));
        }
    }
    errors
}

#[test]
fn compiler_output_equals_the_expected_files() {
    for (case, plain) in in_bodies() {
        fs::write(plain, without_attribute(&read(&case))).expect("a file");
    }
    let tests = trybuild::TestCases::new();
    tests.compile_fail("ui/*/*.rs");
    tests.compile_fail("ui_plain/*.rs");
    drop(tests);
    for (_, plain) in in_bodies() {
        fs::remove_file(plain).expect("a file");
    }
}
